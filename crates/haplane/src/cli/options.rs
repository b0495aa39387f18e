//! The options of the commands.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand, ValueHint};
use clap_complete::engine::ArgValueCompleter;
use haplane_core::duration;
use haplane_haproxy::Percent;

use crate::fleet::AgentAddress;
use crate::names;

/// Options of `haplane agent`.
#[derive(Debug, Args)]
pub struct AgentOptions {
    /// Check the configuration and end: 0 when it is right, 2 with all errors
    #[arg(long)]
    pub check_config: bool,
    /// Print every key as it will be used, and where it comes from
    #[arg(long)]
    pub print_config: bool,
    /// auto (text; under systemd with priorities), text, json or journald
    #[arg(long, value_enum, hide_possible_values = true, default_value_t = LogFormat::Auto, env = "HAPLANE_LOG_FORMAT", hide_env_values = true, value_name = "FORMAT")]
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

/// Options of `haplane sync`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct SyncOptions {
    /// What else than to keep slots in line.
    #[command(subcommand)]
    pub command: Option<SyncCommand>,
    /// Do what is to be done once, and end
    #[arg(long, conflicts_with = "plan")]
    pub once: bool,
    /// Say what is to be done and why; change nothing
    #[arg(long)]
    pub plan: bool,
    /// With --once: accept what would be held of this pool
    #[arg(long, requires = "once", value_name = "POOL")]
    pub accept: Vec<String>,
    /// As a daemon
    #[command(flatten)]
    pub daemon: AgentOptions,
}

/// What `haplane sync` can be told while it runs.
#[derive(Debug, Subcommand)]
pub enum SyncCommand {
    /// Accept the change of a pool that is held
    Confirm(ConfirmOptions),
}

/// Options of `haplane sync confirm`.
#[derive(Debug, Args)]
pub struct ConfirmOptions {
    /// The pool
    pub pool: String,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
}

/// Options of `haplane slots`.
#[derive(Debug, Args)]
pub struct SlotsOptions {
    /// Only these pools
    pub pools: Vec<String>,
    /// Also the last transitions of each slot
    #[arg(long)]
    pub history: bool,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// text; under systemd with the priorities of its journal
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
    #[arg(value_name = "TARGET", add = ArgValueCompleter::new(names::targets))]
    pub targets: Vec<String>,
    /// Every row whose server name has ZONE as a dash-separated part
    #[arg(short, long = "zone", value_name = "ZONE")]
    pub zones: Vec<String>,
}

/// Options of every command that writes.
#[derive(Debug, Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
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
    /// Refuse to leave a backend with less of its weight in rotation
    #[arg(long, value_name = "N%", value_parser = share)]
    pub min_ready: Option<Percent>,
    /// Write all the same when --min-ready would refuse
    #[arg(long)]
    pub force_below_floor: bool,
    /// Whether to wait for the proof.
    #[command(flatten)]
    pub proof: ProofOptions,
    /// Whom to ask.
    #[command(flatten)]
    pub fleet: FleetOptions,
}

/// A share of a backend, as `--min-ready` takes it.
fn share(text: &str) -> Result<Percent, String> {
    let share: Option<Percent> = text.parse().ok();
    share
        .filter(|share| *share <= Percent::FULL)
        .ok_or_else(|| "a share is 0% to 100%, a whole number with its %".to_owned())
}

/// Waiting for the proof after a write.
#[derive(Debug, Args)]
pub struct ProofOptions {
    /// Wait until every load balancer does it, or name those that do not (status 4)
    #[arg(long)]
    pub wait: bool,
    /// How long to wait
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration::parse)]
    pub timeout: Duration,
}

/// Which agents to ask, and which rows there are.
#[derive(Clone, Debug, Args)]
pub struct FleetOptions {
    /// Ask these agents (http://HOST:PORT,…), not those that the store leads to
    #[arg(
        long,
        value_name = "URL,…",
        value_delimiter = ',',
        env = "HAPLANE_AGENTS",
        hide_env_values = true
    )]
    pub agents: Vec<AgentAddress>,
    /// Take known rows from this haproxy.cfg or folder too
    #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub rows: Vec<PathBuf>,
}

/// `--for`.
#[derive(Debug, Args)]
pub struct LastingOption {
    /// Let the value end by itself after this time: 30m, 2h, 1d
    #[arg(long = "for", value_name = "TIME", value_parser = duration::parse)]
    pub lasting: Option<Duration>,
}

/// Options of `haplane show`.
#[derive(Debug, Args)]
pub struct ShowOptions {
    /// What to show.
    #[command(flatten)]
    pub selection: Selection,
    /// Whom to ask which rows a glob or a zone means.
    #[command(flatten)]
    pub fleet: FleetOptions,
}

/// Options of `haplane set`.
#[derive(Debug, Args)]
#[command(override_usage = "haplane set [OPTIONS] <TARGET>... <VALUE>")]
pub struct SetOptions {
    /// Keys or quoted globs, then the value: ready, drain, maint or N% (0% to 256%)
    #[arg(value_name = "TARGET... VALUE", required = true, num_args = 1.., add = ArgValueCompleter::new(names::targets_and_values))]
    pub words: Vec<String>,
    /// Every row whose server name has ZONE as a dash-separated part
    #[arg(short, long = "zone", value_name = "ZONE")]
    pub zones: Vec<String>,
    /// How long the value counts.
    #[command(flatten)]
    pub lasting: LastingOption,
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

/// Options of `haplane drain`.
#[derive(Debug, Args)]
pub struct DrainOptions {
    /// What to drain.
    #[command(flatten)]
    pub selection: Selection,
    /// How to go about it.
    #[command(flatten)]
    pub steps: DrainSteps,
    /// How long it lasts.
    #[command(flatten)]
    pub lasting: LastingOption,
    /// How to write.
    #[command(flatten)]
    pub write: WriteOptions,
}

/// The two steps out of rotation.
#[derive(Debug, Args)]
pub struct DrainSteps {
    /// How long sessions may take to end before maint
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration::parse)]
    pub grace: Duration,
    /// Stay at drain, without the step to maint
    #[arg(long)]
    pub drain_only: bool,
}

/// Options of `haplane ready`.
#[derive(Debug, Args)]
pub struct ReadyOptions {
    /// What to bring back.
    #[command(flatten)]
    pub selection: Selection,
    /// Write the word ready, which overrides the groups behind the key, instead of deleting the key
    #[arg(long)]
    pub explicit: bool,
    /// How long the word counts, with --explicit.
    #[command(flatten)]
    pub lasting: LastingOption,
    /// How to write.
    #[command(flatten)]
    pub write: WriteOptions,
}

/// Options of `haplane ramp`.
#[derive(Debug, Args)]
#[command(override_usage = "haplane ramp [OPTIONS] <TARGET>... <N%,N%,…>")]
pub struct RampOptions {
    /// Keys or quoted globs, then the weights: 10%,25%,50%,100%
    #[arg(value_name = "TARGET... WEIGHTS", required = true, num_args = 1.., add = ArgValueCompleter::new(names::targets))]
    pub words: Vec<String>,
    /// Every row whose server name has ZONE as a dash-separated part
    #[arg(short, long = "zone", value_name = "ZONE")]
    pub zones: Vec<String>,
    /// Time between two steps; each has to be proven by then
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration::parse)]
    pub every: Duration,
    /// How long the weights count.
    #[command(flatten)]
    pub lasting: LastingOption,
    /// How to write.
    #[command(flatten)]
    pub write: WriteOptions,
}

/// Options of `haplane canary`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true))]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
pub struct CanaryOptions {
    /// Take the group out of rotation: drain, wait for sessions, then maint
    #[arg(long, group = "what")]
    pub disable: bool,
    /// Bring it back
    #[arg(long, group = "what")]
    pub enable: bool,
    /// Say whether it takes traffic, since when and by whom
    #[arg(long, group = "what")]
    pub status: bool,
    /// Status 0 when it takes traffic, 7 when it does not
    #[arg(long, group = "what")]
    pub is_active: bool,
    /// With --enable: write the word ready instead of deleting the key
    #[arg(long, requires = "enable")]
    pub explicit: bool,
    /// The group
    #[arg(long, value_name = "KEY", default_value = "canary")]
    pub group: String,
    /// How to go about it.
    #[command(flatten)]
    pub steps: DrainSteps,
    /// How long it lasts.
    #[command(flatten)]
    pub lasting: LastingOption,
    /// How to write.
    #[command(flatten)]
    pub write: WriteOptions,
}

/// Options of `haplane status`.
#[derive(Debug, Args)]
pub struct StatusOptions {
    /// Show it again and again
    #[arg(long, conflicts_with = "json")]
    pub watch: bool,
    /// Name every row, not only those in trouble or out of rotation
    #[arg(long)]
    pub all: bool,
    /// Whom to ask.
    #[command(flatten)]
    pub fleet: FleetOptions,
}

/// Options of `haplane why`.
#[derive(Debug, Args)]
pub struct WhyOptions {
    /// The row: backend/server
    #[arg(value_name = "ROW", add = ArgValueCompleter::new(names::rows))]
    pub row: String,
    /// Whom to ask.
    #[command(flatten)]
    pub fleet: FleetOptions,
}

/// Options of `haplane wait`.
#[derive(Debug, Args)]
pub struct WaitOptions {
    /// What has to converge; everything when nothing is named.
    #[command(flatten)]
    pub selection: Selection,
    /// How long to wait
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration::parse)]
    pub timeout: Duration,
    /// Whom to ask.
    #[command(flatten)]
    pub fleet: FleetOptions,
}

/// Options of `haplane log`.
#[derive(Debug, Args)]
pub struct LogOptions {
    /// Only what was written to these: a key (web/srv1, canary) or a quoted glob ('web/*')
    #[arg(value_name = "KEY", add = ArgValueCompleter::new(names::targets))]
    pub targets: Vec<String>,
    /// Only what was written since this long ago: 30m, 2h, 1d
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub since: Option<Duration>,
    /// At most this many entries, the newest first
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = count)]
    pub limit: usize,
}

impl LogOptions {
    /// The newest entries, whatever they are about.
    pub fn newest(limit: usize) -> Self {
        Self {
            targets: Vec::new(),
            since: None,
            limit,
        }
    }
}

/// Options of `haplane forget`.
#[derive(Debug, Args)]
pub struct ForgetOptions {
    /// The node, by the name that `haplane status` shows
    #[arg(value_name = "NODE")]
    pub node: String,
    /// Show what would be taken out, change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Confirm, for environments that demand it
    #[arg(long)]
    pub yes: bool,
}

/// Options of `haplane completions`.
#[derive(Debug, Args)]
pub struct CompletionsOptions {
    /// bash, zsh, fish, elvish or powershell
    #[arg(value_name = "SHELL")]
    pub shell: String,
}

/// Options of `haplane man`.
#[derive(Debug, Args)]
pub struct ManOptions {
    /// The folder
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,
}

/// At least one of something.
fn count(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "write a whole number from 1".to_owned())
}
