//! The watcher: hands each snapshot of the watch loop to the responder, and keeps its account in the
//! metrics and, if the site wants it, on disk.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use haplane_core::guard::Arrival;
use haplane_store::{Event, View};
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::last_good;
use crate::metrics::Metrics;
use crate::served::Served;

/// How often a snapshot that has not changed is kept again, to say that it is still true.
const KEEP_AGAIN: Duration = Duration::from_mins(1);

/// What the watch loop tells, as metrics.
pub fn count(metrics: &Metrics, event: Event<'_>) {
    let now = Timestamp::now();
    match event {
        Event::Accepted {
            snapshot, arrival, ..
        } => {
            metrics.store_contact(now);
            metrics.snapshot(snapshot, now);
            metrics.guard(None);
            if matches!(arrival, Arrival::Restored | Arrival::Reinitialised) {
                metrics.store_restored();
            }
        }
        Event::Unchanged => {
            metrics.store_contact(now);
            metrics.guard(None);
        }
        Event::Refused(reason) => metrics.guard(Some(reason)),
        Event::Failed(kind) => metrics.store_failed(kind),
        Event::Recovered { .. } => {}
    }
}

/// Waits for the first snapshot.
pub async fn first(views: &mut watch::Receiver<View>) -> Option<Served> {
    let view = views.wait_for(|view| view.snapshot.is_some()).await.ok()?;
    served(&view)
}

/// What is to be answered from by this view.
pub fn served(view: &View) -> Option<Served> {
    let snapshot = Arc::clone(view.snapshot.as_ref()?);
    let since = view
        .changed
        .map_or_else(Instant::now, |changed| changed.instant);
    Some(Served { snapshot, since })
}

/// Hands every new snapshot on until stopped.
pub async fn hand_on(
    mut views: watch::Receiver<View>,
    responder: watch::Sender<Served>,
    stop: CancellationToken,
) {
    let follow = async {
        while views.changed().await.is_ok() {
            let new = served(&views.borrow_and_update());
            if let Some(new) = new {
                responder.send_if_modified(|old| {
                    let is_new = !Arc::ptr_eq(&old.snapshot, &new.snapshot);
                    if is_new {
                        *old = new;
                    }
                    is_new
                });
            }
        }
    };
    stop.run_until_cancelled(follow).await;
}

/// Where the last good snapshot is kept.
#[derive(Clone, Debug)]
pub struct Keeper {
    /// The file.
    pub path: PathBuf,
    /// The store and its prefix: nobody may answer from another store's state.
    pub store: String,
}

impl Keeper {
    /// Keeps each new snapshot, and the present one again while the store is well.
    pub async fn run(self, mut views: watch::Receiver<View>, stop: CancellationToken) {
        let keep = async {
            let mut failed = false;
            loop {
                let view = views.borrow_and_update().clone();
                failed = self.keep(&view, failed).await;
                let changed = tokio::time::timeout(KEEP_AGAIN, views.changed()).await;
                if matches!(changed, Ok(Err(_))) {
                    return;
                }
            }
        };
        stop.run_until_cancelled(keep).await;
    }

    /// Keeps what the view knows, if it was known lately. Says whether that failed.
    async fn keep(&self, view: &View, failed_before: bool) -> bool {
        let (Some(snapshot), Some(contact)) = (view.snapshot.clone(), view.contact) else {
            return failed_before;
        };
        let Self { path, store } = self.clone();
        let at = contact.at;
        let kept =
            tokio::task::spawn_blocking(move || last_good::keep(&path, &store, &snapshot, at));
        let error = match kept.await {
            Ok(Ok(())) => return false,
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        if !failed_before {
            let path = self.path.display();
            tracing::warn!(%path, %error, "cannot keep the last good snapshot");
        }
        true
    }
}
