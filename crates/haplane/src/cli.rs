//! The command line: what can be typed.

pub mod examples;
mod haproxy_options;
mod help;
mod options;
mod serving_options;
pub mod tips;

use std::path::PathBuf;

use clap::{Arg, ArgAction, Args, CommandFactory, Parser, Subcommand, ValueHint};
use haplane_daemon::settings::{KEYS, KeyDoc};

pub use haproxy_options::*;
pub use options::*;
pub use serving_options::*;

/// A control plane for HAProxy: one store says who takes traffic, every HAProxy does it, provably
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
    /// Configuration [default: /etc/haplane/haplane.toml]
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
    /// Test the whole way: drain a row of its own, prove it, and back
    Heartbeat(HeartbeatOptions),
    /// Keep slots in line with service discovery
    Sync(SyncOptions),
    /// Who sits in which slot, since when and why; who has none
    Slots(SlotsOptions),
    /// Take out of rotation: drain, wait for sessions, then maint
    Drain(DrainOptions),
    /// Back into rotation
    Ready(ReadyOptions),
    /// Bring back in steps of weight, stopping at the first trouble
    Ramp(RampOptions),
    /// The same for the canary group, for ChatOps and pipelines
    Canary(CanaryOptions),
    /// Write ready, drain, maint or a weight such as 50%
    Set(SetOptions),
    /// Delete keys: their rows go back to what their other keys say
    Clear(ClearOptions),
    /// What in haproxy.cfg, a state file or the process will bite
    Audit(AuditOptions),
    /// Put agent-check parameters on the server lines of haproxy.cfg
    Enroll(EnrollOptions),
    /// Write a state file, so that a reload serves no drained server
    Seed(SeedOptions),
    /// The fleet: nodes, store, rows, forgotten drains
    Status(StatusOptions),
    /// One row: who wants what, what was answered, what HAProxy does
    Why(WhyOptions),
    /// The fleet as a page, for the browser
    Ui(UiOptions),
    /// Wait until every load balancer provably does what the store says
    Wait(WaitOptions),
    /// Desired state in the store, with who, when and why
    Show(ShowOptions),
    /// Who changed what, when and why
    Log(LogOptions),
    /// Make the store ready: create its marker
    Init(InitOptions),
    /// Take a node that is gone for good out of the fleet
    Forget(ForgetOptions),
    /// Print the completion script of a shell
    Completions(CompletionsOptions),
    /// Write the manual pages into a folder
    Man(ManOptions),
}

impl Command {
    /// How to write, of the commands that write keys.
    pub fn write_options(&self) -> Option<&WriteOptions> {
        match self {
            Self::Set(options) => Some(&options.write),
            Self::Clear(options) => Some(&options.write),
            Self::Drain(options) => Some(&options.write),
            Self::Ready(options) => Some(&options.write),
            Self::Ramp(options) => Some(&options.write),
            Self::Canary(options) if options.disable || options.enable => Some(&options.write),
            _ => None,
        }
    }
}

/// The whole command, with what the derives cannot express: the configuration's flags and the
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
    // They all matter to the agent, so its help shows them.
    command = command.mut_subcommand("agent", |mut agent| {
        for doc in KEYS.iter().filter(|doc| !is_common(doc)) {
            let flag = key_flag(doc).help(help::of_key_in_brief(doc));
            agent = agent.arg(flag.help_heading(help::IN_BRIEF));
        }
        agent
    });
    help::arrange(examples::add(command.mut_subcommands(with_times)))
}

/// A negative time is a wrong time, not an unknown flag.
fn with_times(command: clap::Command) -> clap::Command {
    let is_time = |arg: &Arg| {
        let names = arg.get_value_names().unwrap_or_default();
        names.iter().any(|name| name.as_str() == "TIME")
    };
    command.mut_args(|arg| {
        let is_time = is_time(&arg);
        arg.allow_hyphen_values(is_time)
    })
}

/// The flags that make sense for every command; the others are shown only where they do.
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
