//! Writing keys: what changes, in which transactions, and what came of it.

use haplane_core::key::Key;
use haplane_core::log::{Changed, LogEntry, LogId};
use haplane_core::{Snapshot, Value};
use haplane_store::{Change, CommitError, Committed, Expected, Store, Transaction};
use jiff::{Timestamp, Unit};

use crate::identity::Identity;

/// Log entries that are kept.
const LOG_KEPT: usize = 1_000;

/// What a command wants of one key; no value deletes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The key.
    pub key: Key,
    /// Its new value.
    pub value: Option<Value>,
}

/// One key that has to be written, with what it was when it was read.
#[derive(Clone, Debug)]
pub struct Step {
    change: Change,
    before: Option<String>,
}

impl Step {
    /// The change as the log and the reports tell it.
    pub fn changed(&self) -> Changed {
        Changed {
            key: self.change.key.clone(),
            before: self.before.clone(),
            after: self.change.text.clone(),
        }
    }
}

/// The keys that are not yet as wanted. A key with an invalid text is never as wanted.
pub fn plan(snapshot: &Snapshot, wanted: &[Wanted]) -> Vec<Step> {
    wanted
        .iter()
        .filter_map(|one| step(snapshot, one))
        .collect()
}

fn step(snapshot: &Snapshot, wanted: &Wanted) -> Option<Step> {
    let key = &wanted.key;
    let stored = snapshot.get(key);
    let invalid = snapshot.get_invalid(key);
    let is_as_wanted = match (stored, invalid) {
        (Some(stored), _) => wanted.value == Some(stored.value),
        (None, Some(_)) => false,
        (None, None) => wanted.value.is_none(),
    };
    if is_as_wanted {
        return None;
    }
    let version = stored.map(|s| s.version).or(invalid.map(|i| i.version));
    let before = stored
        .map(|s| s.value.to_string())
        .or_else(|| invalid.map(|i| i.text.trim().to_owned()));
    Some(Step {
        change: Change {
            key: key.clone(),
            path: snapshot.path_of(key),
            expected: version.map_or(Expected::Absent, Expected::Version),
            text: wanted.value.map(|value| value.to_string()),
        },
        before,
    })
}

/// Who writes and why.
#[derive(Clone, Debug)]
pub struct Author {
    /// Who, where, with which command.
    pub identity: Identity,
    /// `--reason`.
    pub reason: Option<String>,
    /// `--ticket`.
    pub ticket: Option<String>,
}

impl Author {
    fn entry(&self, changes: Vec<Changed>, now: Timestamp) -> LogEntry {
        // Milliseconds are enough for people, and the id has no more.
        let now = now.round(Unit::Millisecond).unwrap_or(now);
        LogEntry {
            id: LogId::new(now, fastrand::u64(..)),
            at: now,
            by: self.identity.by.clone(),
            host: self.identity.host.clone(),
            command: self.identity.command.clone(),
            reason: self.reason.clone(),
            ticket: self.ticket.clone(),
            changes,
        }
    }
}

/// What was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Every snapshot with at least this index has seen all of it; `None` while nothing is written.
    pub index: Option<u64>,
    /// The keys, in the order of the command.
    pub changed: Vec<Changed>,
    /// The log entries, one for each transaction.
    pub log_ids: Vec<LogId>,
}

/// A write that stopped between two transactions, or before the first.
#[derive(Debug)]
pub struct Interrupted {
    /// What was written before.
    pub written: Written,
    /// The keys that were not written, or may not have been.
    pub missing: Vec<Key>,
    /// Why.
    pub error: CommitError,
}

/// Writes the steps, as many in one transaction as the store takes, each with its own log entry.
pub async fn commit(
    store: &impl Store,
    steps: &[Step],
    author: &Author,
) -> Result<Written, Interrupted> {
    let mut written = Written::default();
    let size = store.keys_per_transaction().max(1);
    for (done, chunk) in steps.chunks(size).enumerate() {
        let changed: Vec<Changed> = chunk.iter().map(Step::changed).collect();
        let entry = author.entry(changed.clone(), Timestamp::now());
        let transaction = Transaction {
            changes: chunk.iter().map(|step| step.change.clone()).collect(),
            log: Some(entry.clone()),
        };
        match store.commit(&transaction).await {
            Ok(Committed { index, .. }) => {
                written.index = written.index.max(Some(index));
                written.changed.extend(changed);
                written.log_ids.push(entry.id);
            }
            Err(error) => {
                let missing = steps.iter().skip(done * size);
                return Err(Interrupted {
                    missing: missing.map(|step| step.change.key.clone()).collect(),
                    written,
                    error,
                });
            }
        }
    }
    Ok(written)
}

/// Keeps the log bounded.
pub async fn trim_log(store: &impl Store) -> Result<usize, haplane_store::StoreError> {
    store.trim_log(LOG_KEPT).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryStore;
    use haplane_core::snapshot::Pair;

    fn snapshot(pairs: &[(&str, &str)]) -> Snapshot {
        let pair = |(n, (path, text)): (usize, &(&str, &str))| Pair {
            path: (*path).to_owned(),
            value: text.as_bytes().to_vec(),
            version: n as u64 + 10,
            log_id: None,
        };
        Snapshot::new(1, pairs.iter().enumerate().map(pair))
    }

    fn wanted(key: &str, value: Option<&str>) -> Wanted {
        Wanted {
            key: key.parse().unwrap(),
            value: value.map(|text| text.parse().unwrap()),
        }
    }

    #[test]
    fn only_what_differs_is_written_and_against_what_was_read() {
        let snapshot = snapshot(&[
            ("same", "DRAIN\n"),
            ("other", "drain"),
            ("bad", "down"),
            ("x.js", "50"),
        ]);
        let steps = plan(
            &snapshot,
            &[
                wanted("same", Some("drain")),
                wanted("other", Some("50%")),
                wanted("bad", Some("drain")),
                wanted("x.js", None),
                wanted("new", Some("drain")),
                wanted("absent", None),
            ],
        );
        let told: Vec<_> = steps
            .iter()
            .map(|s| {
                (
                    s.change.path.as_str(),
                    s.change.expected,
                    s.before.as_deref(),
                    s.change.text.as_deref(),
                )
            })
            .collect();
        assert_eq!(
            told,
            [
                ("other", Expected::Version(11), Some("drain"), Some("50%")),
                ("bad", Expected::Version(12), Some("down"), Some("drain")),
                ("x.js", Expected::Version(13), Some("50"), None),
                ("new", Expected::Absent, None, Some("drain")),
            ]
        );
    }

    #[tokio::test]
    async fn a_write_of_many_keys_is_several_whole_transactions_and_says_where_it_stopped() {
        let wanted: Vec<Wanted> = (0..5)
            .map(|n| wanted(&format!("k{n}"), Some("drain")))
            .collect();
        let steps = plan(&Snapshot::default(), &wanted);
        let author = Author {
            identity: Identity {
                by: "alice".into(),
                host: "h".into(),
                command: "haplane set".into(),
                words: Vec::new(),
            },
            reason: Some("because".into()),
            ticket: None,
        };
        let whole = MemoryStore::new(2, None);
        let written = commit(&whole, &steps, &author).await.unwrap();
        assert_eq!(
            (written.index, written.changed.len(), written.log_ids.len()),
            (Some(3), 5, 3)
        );
        assert_eq!(whole.log(10).await.unwrap().len(), 3);

        let late = MemoryStore::new(2, Some(1));
        let interrupted = commit(&late, &steps, &author).await.unwrap_err();
        let names = |keys: &[Key]| {
            keys.iter()
                .map(Key::to_string)
                .collect::<Vec<_>>()
                .join(" ")
        };
        let changed: Vec<Key> = interrupted
            .written
            .changed
            .iter()
            .map(|c| c.key.clone())
            .collect();
        assert_eq!(names(&changed), "k0 k1");
        assert_eq!(names(&interrupted.missing), "k2 k3 k4");
        assert!(matches!(interrupted.error, CommitError::Conflict { .. }));
        assert_eq!(
            late.log(10).await.unwrap().len(),
            1,
            "only what was written is logged"
        );
    }
}
