//! The exit statuses: one place that says what each means.

use std::process::ExitCode;

use haplane_core::target::TargetError;
use haplane_daemon::ConfigError;
use haplane_store::{CommitError, StoreError, StoreErrorKind};
use serde_json::Value;

use crate::output::{Part, Report};

/// How a command ended, for pipelines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done; with `--wait`, proven.
    Done = 0,
    /// Something that should not happen.
    Unexpected = 1,
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// A guard, a conflict or a missing confirmation stopped it.
    Refused = 3,
    /// Written, but not proven in time.
    NotConverged = 4,
    /// A store or peer does not answer, or denies.
    Unreachable = 5,
    /// There are findings.
    Findings = 6,
    /// The answer to a yes/no question is no.
    No = 7,
}

impl Exit {
    /// All of them, in order.
    pub const ALL: [Self; 8] = [
        Self::Done,
        Self::Unexpected,
        Self::Usage,
        Self::Refused,
        Self::NotConverged,
        Self::Unreachable,
        Self::Findings,
        Self::No,
    ];

    /// The number.
    pub const fn status(self) -> u8 {
        self as u8
    }

    /// What it means, for `--help` and the documentation.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Done => "done (and proven, with --wait)",
            Self::Unexpected => "unexpected error",
            Self::Usage => "usage or configuration",
            Self::Refused => "refused by a guard, a conflict or a missing confirmation",
            Self::NotConverged => "not converged in time",
            Self::Unreachable => {
                "store or peer unreachable, or it denies (the message names the permission)"
            }
            Self::Findings => "findings",
            Self::No => "the answer to a yes/no question is no",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.status())
    }
}

/// A command that did not do what was asked.
#[derive(Debug)]
pub struct Failure {
    /// The exit status.
    pub exit: Exit,
    /// What happened, to what, and what to do.
    pub message: String,
    /// What there is to say for `--json` beside the error: what was written before it failed.
    pub document: Option<Value>,
    /// The same for people: what can be told although it failed.
    pub parts: Vec<Part>,
    /// The message for a terminal, when that is more than the message: configuration errors with
    /// their carets.
    pub styled: Option<String>,
}

impl Failure {
    /// A failure with nothing to show for it.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            document: None,
            parts: Vec::new(),
            styled: None,
        }
    }

    /// The command line is wrong.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// With what can be told all the same.
    #[must_use]
    pub fn telling(self, report: Report) -> Self {
        Self {
            document: Some(report.document),
            parts: report.parts,
            ..self
        }
    }

    /// A guard says no.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(Exit::Refused, message)
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        // The report of each problem says "error" itself; whoever shows the message says it too.
        let plain = error.to_string();
        let message = plain.strip_prefix("error: ").unwrap_or(&plain);
        Self {
            styled: Some(error.styled().to_owned()),
            ..Self::usage(message)
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let exit = match error.kind {
            StoreErrorKind::Config => Exit::Usage,
            _ => Exit::Unreachable,
        };
        Self::new(exit, error.story())
    }
}

impl From<CommitError> for Failure {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Store(error) => error.into(),
            CommitError::Conflict { .. } => Self::refused(error.to_string()),
            CommitError::Unholdable(_) => Self::usage(error.to_string()),
        }
    }
}

impl From<TargetError> for Failure {
    fn from(error: TargetError) -> Self {
        match error {
            TargetError::NobodyToAsk(_) => Self::new(Exit::Unreachable, error.to_string()),
            TargetError::FitsNothing { .. } => Self::refused(error.to_string()),
            TargetError::Unknown { .. } => {
                Self::refused(format!("{error} (--force writes it all the same)"))
            }
        }
    }
}
