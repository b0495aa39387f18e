//! What is answered from: the one thing that the watcher hands to the responder.

use std::sync::Arc;

use haplane_core::Snapshot;
use tokio::time::Instant;

/// The snapshot in force, and since when.
#[derive(Clone, Debug)]
pub struct Served {
    /// The snapshot.
    pub snapshot: Arc<Snapshot>,
    /// When it came.
    pub since: Instant,
}
