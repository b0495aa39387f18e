//! A command that did not do what was asked: what it says, and how it ends.

use haplane_core::target::TargetError;
use haplane_daemon::ConfigError;
use haplane_store::{CommitError, StoreError, StoreErrorKind};
use serde_json::Value;

use crate::exit::Exit;
use crate::report::{Part, Report};

/// A command that did not do what was asked.
#[derive(Debug)]
pub struct Failure {
    /// The exit status.
    pub exit: Exit,
    /// What happened, to what, and what to do.
    pub message: String,
    /// The document for `--json` beside the error, such as what was written before it failed.
    pub document: Option<Value>,
    /// The same for people: what can be reported although it failed.
    pub parts: Vec<Part>,
    /// The message for a terminal, where it differs: configuration errors with their carets.
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
        // Each problem's text begins with "error", and so does the line that shows the message.
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
            _ => Self::refused(error.to_string()),
        }
    }
}
