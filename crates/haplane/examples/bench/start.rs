//! From exec to listening.

use crate::figures::{Durations, durations};
use crate::subject::Subject;

const TIMES: usize = 10;

/// Starts an agent on this store, again and again.
pub(crate) async fn measure(name: &str, store: &str) {
    let mut starts = Vec::new();
    for _ in 0..TIMES {
        starts.push(Subject::on(store).await.started_in);
    }
    durations(name, &Durations::new(starts));
}
