//! How the agent stands with its store: what it serves, since when it had contact, what is wrong.

use haplane_core::guard;
use jiff::Timestamp;
use tokio::time::Instant;

use crate::responder::Served;

/// A moment on both clocks: one to show, one to measure with.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// For people.
    pub at: Timestamp,
    /// For arithmetic.
    pub instant: Instant,
}

impl Moment {
    /// This moment.
    pub fn now() -> Self {
        Self {
            at: Timestamp::now(),
            instant: Instant::now(),
        }
    }
}

/// Reads are refused.
#[derive(Clone, Debug)]
pub struct GuardStanding {
    /// Since when.
    pub since: Timestamp,
    /// Why.
    pub reason: guard::Refusal,
    /// What happened and what to do.
    pub detail: String,
}

/// How things stand.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// What is answered from; `None` before the first snapshot.
    pub served: Option<Served>,
    /// When the snapshot that is served was kept, if it is the last good one of an earlier run.
    pub from_last_good: Option<Timestamp>,
    /// The last time that the store was reached and trusted.
    pub contact: Option<Moment>,
    /// Why reads are refused, while they are.
    pub guard: Option<GuardStanding>,
    /// The last failure, while the store cannot be read.
    pub failure: Option<String>,
}

impl Standing {
    /// What is wrong with the store, for people.
    pub fn trouble(&self) -> Option<String> {
        let guard = self.guard.as_ref().map(|guard| guard.detail.clone());
        guard.or_else(|| self.failure.clone())
    }

    /// The text of `/readyz`: `Ok` once there is a snapshot.
    pub fn readiness(&self) -> Result<String, String> {
        let trouble = || {
            self.trouble()
                .unwrap_or_else(|| "the first read is under way".to_owned())
        };
        match (&self.served, self.from_last_good) {
            (None, _) => Err(format!("no snapshot yet: {}", trouble())),
            (Some(_), Some(kept)) => Ok(format!(
                "degraded: answering from the snapshot kept at {kept}: {}",
                trouble()
            )),
            (Some(_), None) => Ok("ready".to_owned()),
        }
    }
}
