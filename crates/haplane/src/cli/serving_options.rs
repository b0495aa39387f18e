//! The options of commands that stay and serve something over HTTP.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use haplane_core::duration;

use super::FleetOptions;
use crate::command::{heartbeat, ui};

/// Options of `haplane ui`.
#[derive(Debug, Args)]
pub struct UiOptions {
    /// Where the page is
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = ui::LISTEN, value_parser = address)]
    pub ui_listen: SocketAddr,
    /// Allow --ui-listen on an address that other machines reach
    #[arg(long)]
    pub ui_allow_remote: bool,
    /// Whom to ask.
    #[command(flatten)]
    pub fleet: FleetOptions,
}

/// Options of `haplane heartbeat`.
#[derive(Debug, Args)]
pub struct HeartbeatOptions {
    /// The row to drain and bring back; its server line belongs in every haproxy.cfg and takes no traffic
    #[arg(value_name = "ROW", default_value = heartbeat::ROW)]
    pub row: String,
    /// Between two beats
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = duration::parse)]
    pub every: Duration,
    /// How long to wait for the proof, on each of the two ways
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration::parse)]
    pub timeout: Duration,
    /// Beat once and end: 0 proven there and back, 4 not
    #[arg(long)]
    pub once: bool,
    /// Also a row that shares its backend with others, and so may take traffic
    #[arg(long)]
    pub force: bool,
    /// Where its figures are, at /metrics
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = heartbeat::LISTEN, value_parser = address)]
    pub heartbeat_listen: SocketAddr,
    /// Confirm, for environments that demand it
    #[arg(long)]
    pub yes: bool,
    /// Whom to ask.
    #[command(flatten)]
    pub fleet: FleetOptions,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let wrong = |_| "write an address and a port, such as 127.0.0.1:9780 or [::1]:9780".to_owned();
    text.parse().map_err(wrong)
}
