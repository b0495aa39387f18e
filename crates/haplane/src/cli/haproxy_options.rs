//! The options of the commands that look at haproxy.cfg.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use haplane_haproxy::HaproxyVersion;

use crate::fleet::AgentAddress;
use crate::haproxy_files::DEFAULT_CONFIG;

/// The files of one configuration, with `-f` as for HAProxy itself, or without.
#[derive(Debug, Args)]
pub struct ConfigFiles {
    /// The same, said as to haproxy itself
    #[arg(short, long = "file", value_name = "FILE", value_hint = ValueHint::AnyPath)]
    file: Vec<PathBuf>,
    /// haproxy.cfg, or a folder of *.cfg; several in HAProxy's order [default: /etc/haproxy/haproxy.cfg]
    #[arg(value_name = "FILE", value_hint = ValueHint::AnyPath)]
    bare: Vec<PathBuf>,
}

impl ConfigFiles {
    /// Those that were named, or the usual one.
    pub fn named(&self) -> Vec<PathBuf> {
        let named: Vec<PathBuf> = self.file.iter().chain(&self.bare).cloned().collect();
        if named.is_empty() {
            vec![PathBuf::from(DEFAULT_CONFIG)]
        } else {
            named
        }
    }
}

/// Options of `haplane audit`.
#[derive(Debug, Args)]
pub struct AuditOptions {
    /// What to read.
    #[command(flatten)]
    pub files: ConfigFiles,
    /// Server-state file to look at instead of the one that the configuration names
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub state_file: Option<PathBuf>,
    /// Compare with the running process, through its Runtime API socket (level user is enough)
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub socket: Option<PathBuf>,
    /// Say what every row will be after a reload
    #[arg(long)]
    pub forecast: bool,
    /// text, json (as --json) or sarif, for code-scanning pages
    #[arg(long, value_enum, hide_possible_values = true, default_value_t = AuditFormat::Text, value_name = "FORMAT")]
    pub format: AuditFormat,
    /// Exit 6 when there is a finding at least this bad: error, warning or note
    #[arg(long, value_enum, hide_possible_values = true, default_value_t = FailOn::Warning, value_name = "SEVERITY")]
    pub fail_on: FailOn,
    /// The HAProxy that reads the files, e.g. 2.8.25 [default: that of --socket]
    #[arg(long, value_name = "VERSION")]
    pub haproxy_version: Option<HaproxyVersion>,
}

/// How findings are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum AuditFormat {
    /// For people
    Text,
    /// One JSON document
    Json,
    /// SARIF 2.1.0, for code-scanning pages
    Sarif,
}

/// From which severity on the exit status says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum FailOn {
    /// What will break something
    Error,
    /// What will surprise
    Warning,
    /// What is worth knowing
    Note,
}

/// Options of `haplane enroll`.
#[derive(Debug, Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
#[command(group = clap::ArgGroup::new("what").args(["diff", "check", "write"]))]
pub struct EnrollOptions {
    /// What to read.
    #[command(flatten)]
    pub files: ConfigFiles,
    /// Groups, exclusions and the agent's address (docs/enroll.md of haplane)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub groups: Option<PathBuf>,
    /// Show what would change, as a unified diff (the default)
    #[arg(long)]
    pub diff: bool,
    /// Only say whether something would change: exit 6 if so
    #[arg(long)]
    pub check: bool,
    /// Change the files
    #[arg(long)]
    pub write: bool,
    /// Take the enrolment out again
    #[arg(long)]
    pub remove: bool,
    /// Let this haproxy check the result (-c) before anything is written
    #[arg(long, value_name = "PROGRAM", value_hint = ValueHint::ExecutablePath)]
    pub haproxy: Option<PathBuf>,
    /// The HAProxy that reads the files, e.g. 2.8.25, to decide conditions about its version
    #[arg(long, value_name = "VERSION")]
    pub haproxy_version: Option<HaproxyVersion>,
}

/// Options of `haplane seed`.
#[derive(Debug, Args)]
pub struct SeedOptions {
    /// What to read.
    #[command(flatten)]
    pub files: ConfigFiles,
    /// Where to write: the file that the configuration names as server-state-file
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: PathBuf,
    /// The agent to ask when the store does not answer [default: [http] listen]
    #[arg(long, value_name = "URL")]
    pub agent: Option<AgentAddress>,
    /// The running process to ask when the agent does not answer either [default: [haproxy] socket]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub socket: Option<PathBuf>,
    /// The HAProxy that reads the files, e.g. 2.8.25, to decide conditions about its version
    #[arg(long, value_name = "VERSION")]
    pub haproxy_version: Option<HaproxyVersion>,
}
