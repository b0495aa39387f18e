//! Who may stay when every place is taken: the newest. The connection that has waited longest is
//! most likely silent, and a silent client must not keep others from their answer.

use std::collections::VecDeque;

use tokio::task::{AbortHandle, JoinSet};

/// The open connections, of which there may be a fixed number and no more.
#[derive(Debug)]
pub struct Admission {
    places: usize,
    /// In the order of their arrival; may hold some that have ended.
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
        // Ended ones in the middle are removed before they outnumber the open ones.
        if self.open.len() >= self.places.saturating_mul(2) {
            self.open.retain(|handle| !handle.is_finished());
        }
        self.open.push_back(connection);
    }
}
