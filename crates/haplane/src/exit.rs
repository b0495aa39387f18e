//! The exit statuses: one place that says what each means.

use std::process::ExitCode;

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
    /// Ctrl-C. This is no exit status of ours: the process ends by the signal, so that a shell's loop
    /// ends as well.
    Interrupted = 130,
    /// SIGTERM, likewise.
    Terminated = 143,
}

impl Exit {
    /// All that a command can end with by itself, in order.
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

    /// What it means, in a word or two.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Unexpected => "unexpected",
            Self::Usage => "usage",
            Self::Refused => "refused",
            Self::NotConverged => "not converged",
            Self::Unreachable => "unreachable or denied",
            Self::Findings => "findings",
            Self::No => "no",
            Self::Interrupted => "interrupted",
            Self::Terminated => "terminated",
        }
    }

    /// What it means, for the manual and the documentation.
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
            Self::Interrupted => "ended by Ctrl-C (a shell's word for it)",
            Self::Terminated => "ended by SIGTERM (a shell's word for it)",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.status())
    }
}
