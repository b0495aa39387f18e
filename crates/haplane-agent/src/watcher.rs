//! The watcher: hands each snapshot of the watch loop to the responder, and keeps its account in the
//! metrics and, if the site wants it, on disk.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use haplane_core::Snapshot;
use haplane_core::guard::Arrival;
use haplane_store::{Event, View};
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::last_good;
use crate::metrics::Metrics;
use crate::served::Served;

/// How often an unchanged snapshot is written again, to note that it is still true.
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
    /// The store, its prefix and the node: nobody may answer from another store's state.
    pub store: String,
    /// Where it is counted when it cannot be kept.
    pub metrics: Arc<Metrics>,
}

/// How it stands with the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// It says what is known.
    Kept,
    /// It cannot be written, and no old one stands: the next start has nothing to begin from.
    NotKept,
    /// It cannot be written, and an old one stands that cannot be taken away.
    OldStands,
}

impl Keeping {
    /// All that is wrong with it.
    pub const FAILURES: [Self; 2] = [Self::NotKept, Self::OldStands];

    /// The word for it in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::NotKept => "not_kept",
            Self::OldStands => "old_file_stands",
        }
    }
}

impl Keeper {
    /// Keeps each new snapshot, and the present one again while the store is well. `begun_from` is what
    /// the file held at the start.
    pub async fn run(
        self,
        mut views: watch::Receiver<View>,
        begun_from: Option<Arc<Snapshot>>,
        stop: CancellationToken,
    ) {
        let keep = async {
            let mut keeping = Keeping::Kept;
            let mut in_file = None;
            let mut begun_from = begun_from;
            loop {
                let view = views.borrow_and_update().clone();
                if let (Some(snapshot), Some(contact)) = (view.snapshot, view.contact) {
                    if let Some(begun) = begun_from.take() {
                        tell_other_store(&begun, &snapshot);
                    }
                    let now = self
                        .keep(&snapshot, contact.at, &mut in_file, keeping)
                        .await;
                    self.metrics.last_good(now);
                    keeping = now;
                }
                let changed = tokio::time::timeout(KEEP_AGAIN, views.changed()).await;
                if matches!(changed, Ok(Err(_))) {
                    return;
                }
            }
        };
        stop.run_until_cancelled(keep).await;
    }

    /// Puts the snapshot into the file. What stands there is taken away first, unless it says the same.
    async fn keep(
        &self,
        snapshot: &Arc<Snapshot>,
        at: Timestamp,
        in_file: &mut Option<Arc<Snapshot>>,
        before: Keeping,
    ) -> Keeping {
        let is_old = in_file
            .take()
            .is_none_or(|old| !Arc::ptr_eq(&old, snapshot));
        let Self { path, store, .. } = self.clone();
        let new = Arc::clone(snapshot);
        let kept = tokio::task::spawn_blocking(move || {
            let taken = if is_old {
                last_good::take_away(&path)
            } else {
                Ok(())
            };
            (last_good::keep(&path, &store, &new, at), taken)
        });
        let path = self.path.display();
        let (keeping, error) = match kept.await {
            Ok((Ok(()), _)) => {
                *in_file = Some(Arc::clone(snapshot));
                return Keeping::Kept;
            }
            Ok((Err(error), Ok(()))) => {
                // What stands there, if anything does, is of this very snapshot.
                if !is_old {
                    *in_file = Some(Arc::clone(snapshot));
                }
                (Keeping::NotKept, error.to_string())
            }
            Ok((Err(_), Err(error))) => (Keeping::OldStands, error.to_string()),
            Err(error) => (Keeping::OldStands, error.to_string()),
        };
        match keeping {
            _ if keeping == before => {}
            Keeping::OldStands => tracing::error!(
                %path, %error,
                "cannot keep the last good snapshot, and cannot take the old one away: remove the \
                 file, or a start without the store may answer what is no longer true"
            ),
            _ => tracing::warn!(
                %path, %error,
                "cannot keep the last good snapshot: a start without the store has none to begin from"
            ),
        }
        keeping
    }
}

/// Tells when answers came from the state of another store until now.
fn tell_other_store(begun: &Snapshot, now: &Snapshot) {
    if begun.marker != now.marker {
        tracing::error!(
            "the last good snapshot was of another store than the one that answers now (their markers \
             differ): what was answered until now may have been wrong"
        );
    }
}
