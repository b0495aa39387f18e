//! The store on a folder.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use haplane_core::guard::{Extent, Mode, Reading};
use haplane_core::log::{LogEntry, LogId};
use haplane_core::marker;
use haplane_core::snapshot::{Pair, Snapshot};
use jiff::Timestamp;
use tokio::time::Instant;

use super::commit::{self, MAX_KEYS};
use super::files::{LOG, failed, is_absence, place, read_value};
use super::journal::Journal;
use super::lock::Lock;
use super::log;
use super::look::{self, Look, Memory};
use super::notice::Notice;
use super::stamp::{Digest, File};
use crate::blocking::off_the_loop;
use crate::error::{CommitError, StoreError, StoreErrorKind};
use crate::store::{Committed, Store, Transaction};

/// How long a folder may stay unsettled, as with a file that is emptied again and again.
const PATIENCE: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// After a look that brought nothing new, we rest for this many times as long as it took, so that a folder
/// in which somebody else writes all the time costs a fifth of a processor at most.
const REST: u32 = 4;

/// Keys that keep their last value though the folder does not say so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Since when there are some.
    pub since: Timestamp,
    /// Which, and why.
    pub what: String,
}

/// Desired state in a folder.
pub struct DirStore {
    inner: Arc<Inner>,
}

struct Inner {
    root: PathBuf,
    memory: Mutex<Memory>,
    /// The digest of what was returned last.
    returned: Mutex<Option<u64>>,
    /// What is told to be held.
    held: Mutex<Option<Held>>,
    notice: Notice,
}

impl DirStore {
    /// A store in this folder, which need not exist yet.
    pub fn new(root: PathBuf) -> Self {
        let inner = Inner {
            root,
            memory: Mutex::default(),
            returned: Mutex::default(),
            held: Mutex::default(),
            notice: Notice::default(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.inner.root
    }

    /// What is missing from the folder and not believed to be lost.
    pub fn held(&self) -> Option<Held> {
        let held = self.inner.held.lock();
        held.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Runs something that blocks, off the event loop.
    async fn off<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        let inner = Arc::clone(&self.inner);
        off_the_loop(move || work(&inner)).await
    }

    /// Looks until nothing is being written.
    async fn look(&self) -> Result<Seen, StoreError> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(seen) = self.off(Inner::look).await?? {
                return Ok(seen);
            }
            if Instant::now() >= until {
                let what = format!(
                    "files in {} are emptied or removed and written all the time",
                    self.root().display()
                );
                return Err(StoreError::new(StoreErrorKind::Io, what));
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

/// A settled look, as the outside sees it.
struct Seen {
    index: u64,
    pairs: Vec<Pair>,
    digest: u64,
}

impl Inner {
    fn look(&self) -> Result<Option<Seen>, StoreError> {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let look = look::look(&self.root, &mut memory)?;
        self.tell_held(look.settled.held.clone());
        Ok(look.settled.is_settled.then(|| seen(look, &memory)))
    }

    /// Tells once what keeps its value though the folder does not say so, and when that is over.
    fn tell_held(&self, now: Option<String>) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        match (&held as &Option<Held>, &now) {
            (None, Some(what)) => tracing::warn!("the last value counts for now: {what}"),
            (Some(_), None) => tracing::info!("{} is believed again", self.root.display()),
            _ => {}
        }
        let since = held.as_ref().map_or_else(Timestamp::now, |held| held.since);
        *held = now.map(|what| Held { since, what });
    }

    fn commit(&self, transaction: &Transaction) -> Result<Committed, CommitError> {
        let committed = commit::commit(&self.root, transaction)?;
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let changes = transaction.changes.iter();
        for removed in changes.filter(|change| change.text.is_none()) {
            memory.forget(&removed.path);
        }
        Ok(committed)
    }

    fn read_path(&self, path: &str) -> Result<Option<Pair>, StoreError> {
        let Some(place) = place(&self.root, path) else {
            return Ok(None);
        };
        // Whether the folder is there at all is a part of the answer "not there".
        look::find_root(&self.root)?;
        let file = match read_value(&place) {
            Ok(file) => Some(file),
            Err(error) if is_absence(&error) || place.is_dir() => None,
            Err(error) => return Err(failed("read", &place, error)),
        };
        let mut files = file
            .map(|file| (path.to_owned(), file))
            .into_iter()
            .collect();
        if let Some(journal) = Journal::read(&self.root)? {
            journal.overlay(&mut files);
        }
        Ok(files.remove(path).map(|file| Pair {
            path: path.to_owned(),
            version: version(path, &file),
            value: file.value,
            log_id: None,
        }))
    }

    fn log(&self, limit: usize) -> Result<Vec<LogEntry>, StoreError> {
        let mut ids = log::ids(&self.root)?;
        ids.extend(self.pending_log()?.map(|entry| entry.id));
        ids.sort_unstable();
        ids.dedup();
        let mut entries = Vec::new();
        for id in ids.into_iter().rev().take(limit) {
            entries.extend(self.log_entry(id)?);
        }
        Ok(entries)
    }

    fn log_entry(&self, id: LogId) -> Result<Option<LogEntry>, StoreError> {
        match log::read(&self.root, id)? {
            Some(logged) => Ok(Some(logged.entry)),
            None => Ok(self.pending_log()?.filter(|entry| entry.id == id)),
        }
    }

    /// The log entry of a write that is being carried out.
    fn pending_log(&self) -> Result<Option<LogEntry>, StoreError> {
        let Some(logged) = Journal::read(&self.root)?.and_then(|journal| journal.log) else {
            return Ok(None);
        };
        let logged = log::parse(&logged.text, &self.root.join(super::files::JOURNAL))?;
        Ok(Some(logged.entry))
    }

    fn trim_log(&self, keep: usize) -> Result<usize, StoreError> {
        let _lock = Lock::take(&self.root)?;
        commit::clear_up(&self.root)?;
        let ids = log::ids(&self.root)?;
        let beyond = ids.len().saturating_sub(keep);
        let mut memory = Memory::default();
        let look = look::look(&self.root, &mut memory)?;
        let in_use: Vec<Option<LogId>> = look
            .files
            .iter()
            .map(|(path, file)| memory.writers.of(path, file.stamp))
            .collect();
        let mut trimmed = 0;
        for id in ids.into_iter().take(beyond) {
            if !in_use.contains(&Some(id)) {
                self.remove_from_log(id)?;
                trimmed += 1;
            }
        }
        Ok(trimmed)
    }

    fn forget_log_entry(&self, id: LogId) -> Result<(), StoreError> {
        let _lock = Lock::take(&self.root)?;
        commit::clear_up(&self.root)?;
        self.remove_from_log(id)
    }

    fn remove_from_log(&self, id: LogId) -> Result<(), StoreError> {
        let path = self.root.join(LOG).join(id.to_string());
        match std::fs::remove_file(&path) {
            Err(error) if !is_absence(&error) => Err(failed("remove", &path, error)),
            _ => Ok(()),
        }
    }

    fn returned(&self, seen: &Seen) -> bool {
        let mut returned = self.returned.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = *returned != Some(seen.digest);
        *returned = Some(seen.digest);
        is_news
    }
}

/// The marker has no version: in a mounted `ConfigMap` its file is another one after every swap, and
/// whether a folder is being filled again is judged from the folder itself.
fn version(path: &str, file: &File) -> u64 {
    if path == marker::PATH {
        0
    } else {
        file.version()
    }
}

fn seen(look: Look, memory: &Memory) -> Seen {
    let mut digest = Digest::default();
    digest.add(&look.index.to_le_bytes());
    let mut pairs = Vec::with_capacity(look.files.len());
    for (path, file) in look.files {
        let version = version(&path, &file);
        digest.add(path.as_bytes());
        digest.add(&version.to_le_bytes());
        pairs.push(Pair {
            version,
            log_id: memory.writers.of(&path, file.stamp),
            value: file.value,
            path,
        });
    }
    Seen {
        index: look.index,
        pairs,
        digest: digest.0,
    }
}

impl From<Seen> for Reading {
    fn from(seen: Seen) -> Self {
        Self {
            snapshot: Snapshot::new(seen.index, seen.pairs),
            consistent: true,
            has_leader: true,
            extent: Extent::Whole,
            index_covers_content: false,
        }
    }
}

impl Store for DirStore {
    async fn read(&self, mode: Mode, wait: Duration) -> Result<Reading, StoreError> {
        let until = Instant::now() + wait;
        loop {
            // Watched before it is looked at, so that nothing falls in between.
            let at_most = self.off(|inner| inner.notice.watch(&inner.root)).await?;
            let begun = Instant::now();
            let seen = self.look().await?;
            let is_news = self.inner.returned(&seen);
            let is_asked_for = match mode {
                Mode::Consistent => true,
                Mode::Blocking(index) => is_news || seen.index != index,
            };
            let now = Instant::now();
            if is_asked_for || now >= until {
                return Ok(seen.into());
            }
            tokio::time::sleep_until(now + (begun.elapsed() * REST).max(LOOK_AGAIN)).await;
            let pause = at_most.min(until.saturating_duration_since(Instant::now()));
            // Told or not, the next look says what there is.
            drop(tokio::time::timeout(pause, self.inner.notice.news()).await);
        }
    }

    async fn read_path(&self, path: &str) -> Result<Option<Pair>, StoreError> {
        let path = path.to_owned();
        self.off(move |inner| inner.read_path(&path)).await?
    }

    async fn commit(&self, transaction: &Transaction) -> Result<Committed, CommitError> {
        let transaction = transaction.clone();
        self.off(move |inner| inner.commit(&transaction)).await?
    }

    async fn log(&self, limit: usize) -> Result<Vec<LogEntry>, StoreError> {
        self.off(move |inner| inner.log(limit)).await?
    }

    async fn log_entry(&self, id: LogId) -> Result<Option<LogEntry>, StoreError> {
        self.off(move |inner| inner.log_entry(id)).await?
    }

    async fn trim_log(&self, keep: usize) -> Result<usize, StoreError> {
        self.off(move |inner| inner.trim_log(keep)).await?
    }

    async fn forget_log_entry(&self, id: LogId) -> Result<(), StoreError> {
        self.off(move |inner| inner.forget_log_entry(id)).await?
    }

    fn keys_per_transaction(&self) -> usize {
        MAX_KEYS
    }
}
