//! The only clock of the synchroniser: monotonic for decisions, wall time for people.

use std::time::Duration;

use haplane_core::slots::Moment;
use jiff::Timestamp;
use tokio::time::Instant;

/// When the process began, on both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    wall: Timestamp,
}

impl Clock {
    /// Starts now.
    pub fn start() -> Self {
        Self {
            start: Instant::now(),
            wall: Timestamp::now(),
        }
    }

    /// Now, for decisions.
    pub fn now(&self) -> Moment {
        Moment(self.start.elapsed())
    }

    /// A moment as people read it.
    pub fn wall(&self, moment: Moment) -> Timestamp {
        self.wall.checked_add(moment.0).unwrap_or(self.wall)
    }

    /// How long ago a moment was.
    pub fn ago(&self, moment: Moment) -> Duration {
        self.now().since(moment)
    }
}
