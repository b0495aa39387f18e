//! What can go wrong with a store.

use haplane_core::key::Key;

/// A read or write that did not happen, or may not have happened.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct StoreError {
    /// The kind, for metrics and exit statuses.
    pub kind: StoreErrorKind,
    /// What happened, to what, and what to do, without the text of the source.
    pub what: String,
    /// The cause.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl StoreError {
    /// An error without a cause.
    pub fn new(kind: StoreErrorKind, what: impl Into<String>) -> Self {
        Self {
            kind,
            what: what.into(),
            source: None,
        }
    }

    /// The same error with its cause.
    #[must_use]
    pub fn because(self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self {
            source: Some(source.into()),
            ..self
        }
    }

    /// The whole story in one line: what happened, then its causes.
    pub fn story(&self) -> String {
        let mut story = self.what.clone();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            let text = error.to_string();
            // Some libraries repeat their cause in their own text.
            if !story.contains(&text) {
                story.push_str(": ");
                story.push_str(&text);
            }
            cause = error.source();
        }
        story
    }
}

/// The closed set of store errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StoreErrorKind {
    /// No connection, or it broke before an answer was complete.
    Unreachable,
    /// No answer in time.
    Timeout,
    /// A permission is missing.
    Denied,
    /// An HTTP status that is no answer.
    Status,
    /// An answer that cannot be understood, or a part of one.
    Undecodable,
    /// An answer beyond the bounds.
    TooLarge,
    /// A fault of this machine: a disk that is full, a file that cannot be read.
    Io,
    /// The settings are wrong: a certificate that cannot be read, an address that is none.
    Config,
}

impl StoreErrorKind {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Unreachable,
        Self::Timeout,
        Self::Denied,
        Self::Status,
        Self::Undecodable,
        Self::TooLarge,
        Self::Io,
        Self::Config,
    ];

    /// The word for it in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Timeout => "timeout",
            Self::Denied => "denied",
            Self::Status => "status",
            Self::Undecodable => "undecodable",
            Self::TooLarge => "too_large",
            Self::Io => "io",
            Self::Config => "config",
        }
    }
}

/// A transaction that did not go through.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// Somebody changed these keys since they were read; nothing was written.
    #[error("somebody changed {} meanwhile; nothing was written", names(.keys))]
    Conflict {
        /// The keys that were not as expected.
        keys: Vec<Key>,
    },
    /// The store cannot hold this key at all, or not together with another one.
    #[error("{0}")]
    Unholdable(String),
    /// Everything else. Whether the transaction happened is unknown unless the kind says otherwise.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn names(keys: &[Key]) -> String {
    let names: Vec<&str> = keys.iter().map(Key::as_str).collect();
    names.join(", ")
}
