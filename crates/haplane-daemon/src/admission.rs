//! Who may stay when every place is taken: the newest. Whoever has waited longest without being
//! answered is silent, and a silent client may not keep others from their answer.

use std::collections::VecDeque;

use tokio::task::{AbortHandle, JoinSet};

/// The connections that are open, of which there may be so many and no more.
#[derive(Debug)]
pub struct Admission {
    places: usize,
    /// In the order of their coming; may hold some that have ended.
    open: VecDeque<AbortHandle>,
}

impl Admission {
    /// With this many places, at least one.
    pub fn new(places: usize) -> Self {
        Self {
            places: places.max(1),
            open: VecDeque::new(),
        }
    }

    /// Ends the oldest connection if there is no place left. Says whether it had to.
    pub fn make_room(&mut self, connections: &JoinSet<()>) -> bool {
        while self.open.front().is_some_and(AbortHandle::is_finished) {
            self.open.pop_front();
        }
        if connections.len() < self.places {
            return false;
        }
        match self.open.pop_front() {
            Some(oldest) => {
                oldest.abort();
                true
            }
            None => false,
        }
    }

    /// Takes in one that was given its place.
    pub fn admit(&mut self, connection: AbortHandle) {
        // Ended ones in the middle are forgotten before they are more than the open ones.
        if self.open.len() >= self.places.saturating_mul(2) {
            self.open.retain(|handle| !handle.is_finished());
        }
        self.open.push_back(connection);
    }
}
