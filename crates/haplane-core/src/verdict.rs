//! What is said of a row on one node.
//!
//! The observer brings together what was answered ([`Said`]) and what HAProxy shows ([`Sight`]); here
//! it is decided what that means, and why.

mod cause;
mod judge;
mod sight;

use std::str::FromStr;

pub use cause::Cause;
pub use judge::{Judgement, SILENT_AFTER, judge, judge_unasked, judge_unseen};
pub use sight::{Difference, Past, Said, Seen, Sight, Stat};

/// Whether one HAProxy does for one row what its agent told it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verdict {
    /// Observed equals answered.
    Converged,
    /// Answered, not yet observed, and the time for that is not over.
    Pending,
    /// Observed differs from answered for longer than that.
    Diverged,
    /// Has not asked for three of its own intervals.
    Silent,
    /// There is nothing to compare: no socket is configured, HAProxy cannot be looked at, or the row
    /// cannot be matched with an ask.
    Unobserved,
}

impl Verdict {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Converged,
        Self::Pending,
        Self::Diverged,
        Self::Silent,
        Self::Unobserved,
    ];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Converged => "converged",
            Self::Pending => "pending",
            Self::Diverged => "diverged",
            Self::Silent => "silent",
            Self::Unobserved => "unobserved",
        }
    }
}

/// Not one of the five words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no verdict")]
pub struct VerdictError(String);

impl FromStr for Verdict {
    type Err = VerdictError;

    fn from_str(text: &str) -> Result<Self, VerdictError> {
        let found = Self::ALL
            .into_iter()
            .find(|verdict| verdict.as_str() == text);
        found.ok_or_else(|| VerdictError(text.to_owned()))
    }
}
