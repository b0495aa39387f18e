//! A store in memory, for tests of what a command does with a store that refuses.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use haplane_core::guard::{Extent, Mode, Reading};
use haplane_core::log::{LogEntry, LogId};
use haplane_core::snapshot::{Pair, Snapshot};
use haplane_store::{Change, CommitError, Committed, Expected, Store, StoreError, Transaction};

/// Keys by path, and the log.
#[derive(Debug, Default)]
pub(crate) struct MemoryStore {
    inner: Mutex<Inner>,
    size: usize,
    conflict_at: Option<usize>,
    is_filtered: bool,
}

#[derive(Debug, Default)]
struct Inner {
    index: u64,
    transactions: usize,
    pairs: BTreeMap<String, Pair>,
    log: BTreeMap<LogId, LogEntry>,
}

impl MemoryStore {
    /// A store that takes `size` keys in one transaction; transaction number `conflict_at`, counted
    /// from 0, fails with a conflict.
    pub(crate) fn new(size: usize, conflict_at: Option<usize>) -> Self {
        Self {
            inner: Mutex::default(),
            size,
            conflict_at,
            is_filtered: false,
        }
    }

    /// A store that says that it leaves keys out of its lists.
    pub(crate) fn that_filters() -> Self {
        Self {
            is_filtered: true,
            ..Self::new(62, None)
        }
    }

    fn conflict(transaction: &Transaction) -> CommitError {
        CommitError::Conflict {
            keys: transaction
                .changes
                .iter()
                .map(|change| change.key.clone())
                .collect(),
        }
    }
}

impl Inner {
    fn is_as_expected(&self, change: &Change) -> bool {
        let now = self.pairs.get(&change.path).map(|pair| pair.version);
        match change.expected {
            Expected::Absent => now.is_none(),
            Expected::Version(version) => now == Some(version),
        }
    }

    fn apply(&mut self, change: &Change, log_id: Option<LogId>) {
        match &change.text {
            None => {
                self.pairs.remove(&change.path);
            }
            Some(text) => {
                let pair = Pair {
                    path: change.path.clone(),
                    value: text.clone().into_bytes(),
                    version: self.index,
                    log_id,
                };
                self.pairs.insert(change.path.clone(), pair);
            }
        }
    }
}

impl Store for MemoryStore {
    async fn read(&self, _: Mode, _: Duration) -> Result<Reading, StoreError> {
        let inner = self.inner.lock().unwrap();
        Ok(Reading {
            snapshot: Snapshot::new(inner.index, inner.pairs.values().cloned()),
            consistent: true,
            has_leader: true,
            extent: if self.is_filtered {
                Extent::Filtered
            } else {
                Extent::Whole
            },
            index_covers_content: true,
        })
    }

    async fn read_path(&self, path: &str) -> Result<Option<Pair>, StoreError> {
        Ok(self.inner.lock().unwrap().pairs.get(path).cloned())
    }

    async fn commit(&self, transaction: &Transaction) -> Result<Committed, CommitError> {
        let mut inner = self.inner.lock().unwrap();
        let number = inner.transactions;
        inner.transactions += 1;
        let fits = transaction
            .changes
            .iter()
            .all(|change| inner.is_as_expected(change));
        if self.conflict_at == Some(number) || !fits {
            return Err(Self::conflict(transaction));
        }
        inner.index += 1;
        let log_id = transaction.log.as_ref().map(|entry| entry.id);
        for change in &transaction.changes {
            inner.apply(change, log_id);
        }
        if let Some(entry) = &transaction.log {
            inner.log.insert(entry.id, entry.clone());
        }
        Ok(Committed {
            index: inner.index,
            made_marker: false,
        })
    }

    async fn log(&self, limit: usize) -> Result<Vec<LogEntry>, StoreError> {
        let inner = self.inner.lock().unwrap();
        Ok(inner.log.values().rev().take(limit).cloned().collect())
    }

    async fn log_entry(&self, id: LogId) -> Result<Option<LogEntry>, StoreError> {
        Ok(self.inner.lock().unwrap().log.get(&id).cloned())
    }

    async fn trim_log(&self, _: usize) -> Result<usize, StoreError> {
        Ok(0)
    }

    async fn forget_log_entry(&self, id: LogId) -> Result<(), StoreError> {
        self.inner.lock().unwrap().log.remove(&id);
        Ok(())
    }

    fn keys_per_transaction(&self) -> usize {
        self.size
    }
}
