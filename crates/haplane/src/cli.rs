//! The command line: what can be typed.

mod help;

use std::path::PathBuf;

use clap::{Arg, ArgAction, Args, CommandFactory, Parser, Subcommand, ValueHint};
use haplane_daemon::settings::{KEYS, KeyDoc};

/// A control plane for HAProxy: desired state in one store, pulled by every
/// HAProxy, with proof that it took
#[derive(Debug, Parser)]
#[command(name = "haplane", version, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Options of every command.
    #[command(flatten)]
    pub common: Common,
}

/// Where the options of every command stand in a help page.
const COMMON: &str = "Common options";

/// Options of every command.
#[derive(Debug, Args)]
pub struct Common {
    /// Configuration file [default: /etc/haplane/haplane.toml if it exists]
    #[arg(long, global = true, help_heading = COMMON, env = "HAPLANE_CONFIG", hide_env_values = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
    /// Work on this environment of the configuration file ([env.NAME])
    #[arg(long, global = true, help_heading = COMMON, value_name = "NAME")]
    pub env: Option<String>,
    /// One JSON document on stdout, also when the command fails
    #[arg(long, global = true, help_heading = COMMON)]
    pub json: bool,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run beside an HAProxy and answer its agent checks
    Agent(AgentOptions),
    /// Make the store ready: create its marker
    Init(InitOptions),
    /// Desired state in the store, with who, when and why
    Show(Selection),
    /// Write ready, drain, maint or a weight such as 50%
    Set(SetOptions),
    /// Delete keys: their rows go back to what their other keys say
    Clear(ClearOptions),
}

/// Options of `haplane agent`.
#[derive(Debug, Args)]
pub struct AgentOptions {
    /// Check the configuration and end: 0 when it is right, 2 with all errors
    #[arg(long)]
    pub check_config: bool,
    /// Print every key as it will be used, and where it comes from
    #[arg(long)]
    pub print_config: bool,
    /// auto (journald under systemd, else text), text, json or journald
    #[arg(long, value_enum, default_value_t = LogFormat::Auto, env = "HAPLANE_LOG_FORMAT", hide_env_values = true, value_name = "FORMAT")]
    pub log_format: LogFormat,
    /// error, warn, info, debug or trace; also `info,haplane_store=debug`
    #[arg(
        long,
        default_value = "info",
        env = "HAPLANE_LOG",
        hide_env_values = true,
        value_name = "FILTER"
    )]
    pub log: String,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// journald under systemd, else text
    Auto,
    /// Lines for people
    Text,
    /// One JSON object a line
    Json,
    /// The journal's own protocol
    Journald,
}

/// Options of `haplane init`.
#[derive(Debug, Args)]
pub struct InitOptions {
    /// Show what would be written, write nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Confirm, for environments that demand it
    #[arg(long)]
    pub yes: bool,
}

/// What a command is pointed at.
#[derive(Debug, Args)]
pub struct Selection {
    /// A key (web/srv1, canary) or a quoted glob ('web/*us-east1-b*')
    #[arg(value_name = "TARGET")]
    pub targets: Vec<String>,
    /// Every row whose server name has ZONE as a dash-separated part
    #[arg(short, long = "zone", value_name = "ZONE")]
    pub zones: Vec<String>,
}

/// Options of every command that writes.
#[derive(Debug, Args)]
pub struct WriteOptions {
    /// Why, for the log and for whoever looks next
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// The ticket that goes with it
    #[arg(long, value_name = "ID")]
    pub ticket: Option<String>,
    /// Show what would be written, write nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Confirm, for environments that demand it
    #[arg(long)]
    pub yes: bool,
    /// Write keys too that no row asks for
    #[arg(long)]
    pub force: bool,
}

/// Options of `haplane set`.
#[derive(Debug, Args)]
#[command(override_usage = "haplane set [OPTIONS] <TARGET>... <VALUE>")]
pub struct SetOptions {
    /// Keys or quoted globs, then the value: ready, drain, maint or N% (0% to 256%)
    #[arg(value_name = "TARGET... VALUE", required = true, num_args = 1..)]
    pub words: Vec<String>,
    /// Every row whose server name has ZONE as a dash-separated part
    #[arg(short, long = "zone", value_name = "ZONE")]
    pub zones: Vec<String>,
    /// Let the value end by itself after this time: 30m, 2h, 1d
    #[arg(long = "for", value_name = "TIME")]
    pub lasting: Option<String>,
    /// How to write.
    #[command(flatten)]
    pub write: WriteOptions,
}

/// Options of `haplane clear`.
#[derive(Debug, Args)]
pub struct ClearOptions {
    /// What to clear.
    #[command(flatten)]
    pub selection: Selection,
    /// How to write.
    #[command(flatten)]
    pub write: WriteOptions,
}

/// The whole command with everything that derives cannot say: the configuration's flags and the
/// grouped help.
pub fn command() -> clap::Command {
    let mut command = Cli::command();
    for doc in &KEYS {
        command = command.arg(
            key_flag(doc)
                .global(true)
                .hide(!is_common(doc))
                .help_heading(COMMON),
        );
    }
    // The agent is where all of them matter, so there they are shown.
    command = command.mut_subcommand("agent", |mut agent| {
        for doc in KEYS.iter().filter(|doc| !is_common(doc)) {
            agent = agent.arg(key_flag(doc).help_heading("Configuration, as in the file"));
        }
        agent
    });
    help::arrange(command)
}

/// The flags that make sense for every command; the others are shown where they do.
fn is_common(doc: &KeyDoc) -> bool {
    matches!(doc.flag, "store" | "prefix")
}

fn key_flag(doc: &'static KeyDoc) -> Arg {
    let flag = Arg::new(doc.flag).long(doc.flag).help(help::of_key(doc));
    match doc.switch {
        Some(_) => flag.action(ArgAction::SetTrue),
        None => flag
            .action(ArgAction::Set)
            .value_name(help::value_name(doc)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        command().debug_assert();
    }
}
