//! The one contract that every store keeps.

use std::sync::Arc;
use std::time::Duration;

use haplane_core::guard::{Mode, Reading};
use haplane_core::key::Key;
use haplane_core::kv_path;
use haplane_core::log::{LogEntry, LogId};
use haplane_core::snapshot::Pair;

use crate::error::{CommitError, StoreError, StoreErrorKind};

/// A place for desired state and its log.
pub trait Store: Send + Sync {
    /// Reads the whole state prefix once: at once in [`Mode::Consistent`], or when its index has
    /// moved past the one given, or after `wait`. Either a complete answer or an error.
    fn read(
        &self,
        mode: Mode,
        wait: Duration,
    ) -> impl Future<Output = Result<Reading, StoreError>> + Send;

    /// Reads one path below the state prefix by its own name, as fresh as the store can. `None` is an
    /// honest "not there"; a missing permission is an error of kind
    /// [`StoreErrorKind::Denied`](crate::StoreErrorKind::Denied).
    fn read_path(
        &self,
        path: &str,
    ) -> impl Future<Output = Result<Option<Pair>, StoreError>> + Send;

    /// Asks for many paths, each by its own name, and gives the results in the same order.
    fn read_names(
        &self,
        paths: &[String],
    ) -> impl Future<Output = Result<Vec<Named>, StoreError>> + Send {
        async move {
            let mut named = Vec::with_capacity(paths.len());
            for path in paths {
                named.push(Named::of(self.read_path(path).await)?);
            }
            Ok(named)
        }
    }

    /// Whether [`Self::read`] silently leaves out what we may not read. Then a key's absence from a
    /// snapshot proves nothing until the key has been asked for by its own name.
    fn hides_what_it_denies(&self) -> bool {
        false
    }

    /// A number that changes whenever what we may read may have changed: another token, or its file read
    /// again.
    fn rights(&self) -> u64 {
        0
    }

    /// Writes all of a transaction or nothing of it, with its log entry. The one of `haplane init` makes
    /// the marker when it is truly absent.
    fn commit(
        &self,
        transaction: &Transaction,
    ) -> impl Future<Output = Result<Committed, CommitError>> + Send;

    /// The newest log entries, newest first.
    fn log(&self, limit: usize) -> impl Future<Output = Result<Vec<LogEntry>, StoreError>> + Send;

    /// The log entry of this id, if it still exists.
    fn log_entry(
        &self,
        id: LogId,
    ) -> impl Future<Output = Result<Option<LogEntry>, StoreError>> + Send;

    /// The log entries of these ids, in their order; one that does not exist any more is left out.
    fn log_entries(
        &self,
        ids: &[LogId],
    ) -> impl Future<Output = Result<Vec<LogEntry>, StoreError>> + Send {
        async move {
            let mut entries = Vec::with_capacity(ids.len());
            for id in ids {
                entries.extend(self.log_entry(*id).await?);
            }
            Ok(entries)
        }
    }

    /// Deletes log entries beyond `keep`, oldest first, but none that a key still refers to. Gives the
    /// number deleted.
    fn trim_log(&self, keep: usize) -> impl Future<Output = Result<usize, StoreError>> + Send;

    /// Deletes one log entry if it is there. A key that it wrote then has no known author.
    fn forget_log_entry(&self, id: LogId) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// How many keys one transaction can carry.
    fn keys_per_transaction(&self) -> usize;
}

impl<S: Store> Store for Arc<S> {
    async fn read(&self, mode: Mode, wait: Duration) -> Result<Reading, StoreError> {
        S::read(self, mode, wait).await
    }

    async fn read_path(&self, path: &str) -> Result<Option<Pair>, StoreError> {
        S::read_path(self, path).await
    }

    async fn read_names(&self, paths: &[String]) -> Result<Vec<Named>, StoreError> {
        S::read_names(self, paths).await
    }

    fn hides_what_it_denies(&self) -> bool {
        S::hides_what_it_denies(self)
    }

    fn rights(&self) -> u64 {
        S::rights(self)
    }

    async fn commit(&self, transaction: &Transaction) -> Result<Committed, CommitError> {
        S::commit(self, transaction).await
    }

    async fn log(&self, limit: usize) -> Result<Vec<LogEntry>, StoreError> {
        S::log(self, limit).await
    }

    async fn log_entry(&self, id: LogId) -> Result<Option<LogEntry>, StoreError> {
        S::log_entry(self, id).await
    }

    async fn log_entries(&self, ids: &[LogId]) -> Result<Vec<LogEntry>, StoreError> {
        S::log_entries(self, ids).await
    }

    async fn trim_log(&self, keep: usize) -> Result<usize, StoreError> {
        S::trim_log(self, keep).await
    }

    async fn forget_log_entry(&self, id: LogId) -> Result<(), StoreError> {
        S::forget_log_entry(self, id).await
    }

    fn keys_per_transaction(&self) -> usize {
        S::keys_per_transaction(self)
    }
}

/// What came of asking for one path by its own name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// It is not there, and we may read it.
    Absent,
    /// It is there.
    Present,
    /// We may not read it, whether it is there or not.
    Denied,
}

impl Named {
    /// What reading it says. Any other failure stays a failure.
    pub fn of<T>(read: Result<Option<T>, StoreError>) -> Result<Self, StoreError> {
        match read {
            Ok(None) => Ok(Self::Absent),
            Ok(Some(_)) => Ok(Self::Present),
            Err(error) if error.kind == StoreErrorKind::Denied => Ok(Self::Denied),
            Err(error) => Err(error),
        }
    }
}

/// What the store says of each of these keys, asked for by every path that it may have.
pub async fn read_keys(store: &impl Store, keys: &[Key]) -> Result<Vec<Named>, StoreError> {
    let paths: Vec<Vec<String>> = keys.iter().map(kv_path::paths).collect();
    let mut named = store.read_names(&paths.concat()).await?.into_iter();
    let of_key = |paths: Vec<String>| {
        let of_paths: Vec<Named> = named.by_ref().take(paths.len()).collect();
        let worst = [Named::Denied, Named::Present];
        let worst = worst.into_iter().find(|one| of_paths.contains(one));
        worst.unwrap_or(Named::Absent)
    };
    Ok(paths.into_iter().map(of_key).collect())
}

/// What one transaction writes.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// The keys; none for `haplane init`, which only makes the marker.
    pub changes: Vec<Change>,
    /// The entry that goes with it; none when nothing but the marker is written.
    pub log: Option<LogEntry>,
}

impl Transaction {
    /// Whether it is the one that makes the marker. No other does, or a mistyped prefix would become a
    /// second truth.
    pub(crate) fn is_init(&self) -> bool {
        self.changes.is_empty() && self.log.is_none()
    }
}

/// One key of a transaction.
#[derive(Clone, Debug)]
pub struct Change {
    /// The key.
    pub key: Key,
    /// Where the store has it (`Snapshot::path_of`).
    pub path: String,
    /// What it must still be.
    pub expected: Expected,
    /// The new text; `None` deletes the key.
    pub text: Option<String>,
}

/// What a key must still be for a transaction to go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Not there.
    Absent,
    /// There, in the version that was read.
    Version(u64),
}

/// A transaction that went through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Every snapshot with at least this index has seen it.
    pub index: u64,
    /// Whether the marker was made by it.
    pub made_marker: bool,
}
