//! The options of commands that stay and serve something over HTTP.

use std::net::SocketAddr;

use clap::Args;

use super::FleetOptions;
use crate::command::ui;

/// Options of `haplane ui`.
#[derive(Debug, Args)]
pub struct UiOptions {
    /// Where the page is
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = ui::LISTEN)]
    pub ui_listen: SocketAddr,
    /// Allow --ui-listen on an address that other machines reach
    #[arg(long)]
    pub ui_allow_remote: bool,
    /// Whom to ask.
    #[command(flatten)]
    pub fleet: FleetOptions,
}
