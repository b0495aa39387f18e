//! Notifications that something in a folder changed. They are only a hint: whoever waits also looks
//! from time to time, since a system may report nothing (network file systems) or too little (a folder
//! that was replaced).

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;

/// How often to look where changes are reported, and where they are not.
const TOLD: Duration = Duration::from_secs(2);
const NOT_TOLD: Duration = Duration::from_millis(250);

#[derive(Default)]
pub(super) struct Notice {
    news: Arc<Notify>,
    watching: Mutex<Option<Watching>>,
}

struct Watching {
    _watcher: RecommendedWatcher,
    /// The folder that is watched; one put in its place is another.
    folder: u64,
}

impl Notice {
    /// Makes sure that the folder which is there now is watched, and tells how long to wait before
    /// looking without having been told. Blocking.
    pub(super) fn watch(&self, root: &Path) -> Duration {
        let folder = fs::metadata(root).map(|metadata| metadata.ino()).ok();
        let mut watching = self.watching.lock().unwrap_or_else(PoisonError::into_inner);
        if watching.as_ref().map(|watching| watching.folder) != folder {
            *watching = folder.and_then(|folder| self.begin(root, folder));
        }
        if watching.is_some() { TOLD } else { NOT_TOLD }
    }

    fn begin(&self, root: &Path, folder: u64) -> Option<Watching> {
        let news = Arc::clone(&self.news);
        let tell = move |event: notify::Result<notify::Event>| {
            if event.is_ok_and(|event| !is_reading(event.kind)) {
                news.notify_one();
            }
        };
        let watcher = notify::recommended_watcher(tell).and_then(|mut watcher| {
            watcher.watch(root, RecursiveMode::Recursive)?;
            Ok(watcher)
        });
        match watcher {
            Ok(watcher) => Some(Watching {
                _watcher: watcher,
                folder,
            }),
            Err(error) => {
                tracing::debug!(%error, "cannot be told of changes in {}", root.display());
                None
            }
        }
    }

    /// Waits for news since the last time.
    pub(super) async fn news(&self) {
        self.news.notified().await;
    }
}

/// Events of our own looks, which open folders and files.
fn is_reading(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => false,
        EventKind::Access(_) => true,
        _ => false,
    }
}
