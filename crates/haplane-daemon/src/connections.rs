//! The connections that a listener serves, each by a task of its own, and never more than a fixed number.
//!
//! When every place is taken, the newest gets one: the connection that has waited longest is most likely
//! silent, and a silent client must not keep others from their answer.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::task::{AbortHandle, JoinError, JoinSet};

/// The open connections. Dropping this ends them all.
#[derive(Debug)]
pub struct Connections {
    places: usize,
    tasks: JoinSet<()>,
    /// In the order of their arrival; may hold some that have ended.
    open: VecDeque<AbortHandle>,
}

/// Whether a connection had to end for a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// There was a place left.
    ToFreePlace,
    /// The oldest one gave its place.
    InPlaceOfOldest,
}

impl Connections {
    /// None yet, with this many places, at least one.
    pub fn new(places: usize) -> Self {
        Self {
            places: places.max(1),
            tasks: JoinSet::new(),
            open: VecDeque::new(),
        }
    }

    /// Serves one more.
    pub fn admit(&mut self, connection: impl Future<Output = ()> + Send + 'static) -> Admitted {
        while let Some(ended) = self.tasks.try_join_next() {
            note_panic(ended);
        }
        while self.open.front().is_some_and(AbortHandle::is_finished) {
            self.open.pop_front();
        }
        // Ended ones in the middle are removed before they outnumber the open ones.
        if self.open.len() >= self.places.saturating_mul(2) {
            self.open.retain(|handle| !handle.is_finished());
        }
        let oldest = if self.tasks.len() < self.places {
            None
        } else {
            self.open.pop_front()
        };
        self.open.push_back(self.tasks.spawn(connection));
        match oldest {
            None => Admitted::ToFreePlace,
            Some(oldest) => {
                oldest.abort();
                Admitted::InPlaceOfOldest
            }
        }
    }

    /// Waits for one to end; for ever while none is open. Can be dropped at any time.
    pub async fn ended(&mut self) {
        match self.tasks.join_next().await {
            Some(ended) => note_panic(ended),
            None => std::future::pending().await,
        }
    }

    /// Lets all finish, but gives them no more than this time.
    pub async fn finish(mut self, grace: Duration) {
        let finish = async {
            while let Some(ended) = self.tasks.join_next().await {
                note_panic(ended);
            }
        };
        if tokio::time::timeout(grace, finish).await.is_err() {
            tracing::debug!("connections were still open at the end");
        }
    }
}

fn note_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "a connection's task failed; please report this");
    }
}
