//! The administrative state of a server: what an operator wants, as HAProxy's words say it.

use std::fmt;

/// May this server take traffic? HAProxy's three words (management guide 9.3, `set server … state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AdminState {
    /// In rotation; HAProxy's own checks still decide whether it is up.
    Ready,
    /// No new traffic except for persistent sessions; health checks go on.
    Drain,
    /// No traffic at all, health checks are paused.
    Maint,
}

impl AdminState {
    /// HAProxy's word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Drain => "drain",
            Self::Maint => "maint",
        }
    }
}

impl fmt::Display for AdminState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
