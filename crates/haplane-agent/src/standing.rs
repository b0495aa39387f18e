//! How the agent stands with its store: what it answers from, and what is wrong.

use std::sync::Arc;

use haplane_core::Snapshot;
use haplane_store::View;
use tokio::sync::watch;

use crate::last_good::LastGood;

/// The store as the watcher sees it, beside what an earlier run had kept of it.
#[derive(Clone, Debug)]
pub struct Standing {
    view: watch::Receiver<View>,
    last_good: Option<Arc<LastGood>>,
}

impl Standing {
    /// A standing that follows the watcher's views.
    pub fn new(view: watch::Receiver<View>, last_good: Option<LastGood>) -> Self {
        Self {
            view,
            last_good: last_good.map(Arc::new),
        }
    }

    /// What the watcher knows now.
    pub fn view(&self) -> View {
        self.view.borrow().clone()
    }

    /// What is answered from: the store's word, else the one that was kept.
    pub fn snapshot(&self) -> Option<Arc<Snapshot>> {
        let view = self.view.borrow();
        let kept = || {
            self.last_good
                .as_ref()
                .map(|kept| Arc::clone(&kept.snapshot))
        };
        view.snapshot.clone().or_else(kept)
    }

    /// The text of `/readyz`: `Ok` once there is something to answer from.
    pub fn readiness(&self) -> Result<String, String> {
        let view = self.view.borrow();
        let trouble = trouble(&view).unwrap_or_else(|| "the first read is under way".to_owned());
        match (&view.snapshot, &self.last_good) {
            (Some(_), _) => Ok("ready".to_owned()),
            (None, Some(kept)) => Ok(format!(
                "degraded: answering from the snapshot kept at {}: {trouble}",
                kept.kept_at
            )),
            (None, None) => Err(format!("no snapshot yet: {trouble}")),
        }
    }
}

/// What is wrong with the store, for people.
pub fn trouble(view: &View) -> Option<String> {
    let guard = view.guard.as_ref().map(|guarded| guarded.detail.clone());
    guard.or_else(|| view.failure.as_ref().map(|failing| failing.what.clone()))
}
