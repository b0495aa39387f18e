//! A store that says what it is told to, in simulated time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use haplane_core::guard::{Extent, Mode, Reading};
use haplane_core::log::{LogEntry, LogId};
use haplane_core::snapshot::{Pair, Snapshot};
use haplane_store::{CommitError, Committed, Store, StoreError, StoreErrorKind, Transaction};
use tokio::time::{Instant, sleep};

/// One answer to a read.
#[derive(Clone)]
pub(crate) enum Say {
    /// This content at this index, at once.
    These(u64, &'static [(&'static str, &'static str)]),
    /// The same, not vouched for even if that was asked.
    Unvouched(u64, &'static [(&'static str, &'static str)]),
    /// Nothing new until the wait is over; then the same as before.
    Quiet,
    /// An error, after a while.
    Fail(StoreErrorKind, Duration),
    /// No end.
    Hang,
}

#[derive(Clone, Default)]
pub(crate) struct Scripted(Arc<Mutex<Script>>);

#[derive(Default)]
struct Script {
    says: VecDeque<Say>,
    /// What it says when the script is at its end.
    then: Option<Say>,
    last: Option<Reading>,
    by_name: BTreeMap<String, Result<Option<String>, StoreErrorKind>>,
    reads: Vec<(Instant, Mode)>,
}

impl Scripted {
    pub(crate) fn say(&self, says: impl IntoIterator<Item = Say>) {
        self.0.lock().unwrap().says.extend(says);
    }

    /// From the end of the script on.
    pub(crate) fn then(&self, say: Say) {
        self.0.lock().unwrap().then = Some(say);
    }

    /// What a path is when it is asked for by name.
    pub(crate) fn by_name(&self, path: &str, is: Result<Option<&str>, StoreErrorKind>) {
        let is = is.map(|text| text.map(str::to_owned));
        self.0.lock().unwrap().by_name.insert(path.to_owned(), is);
    }

    pub(crate) fn reads(&self) -> Vec<(Instant, Mode)> {
        self.0.lock().unwrap().reads.clone()
    }

    fn next(&self, mode: Mode) -> Say {
        let mut script = self.0.lock().unwrap();
        script.reads.push((Instant::now(), mode));
        let next = script.says.pop_front();
        next.or_else(|| script.then.clone()).unwrap_or(Say::Hang)
    }
}

fn reading(index: u64, pairs: &[(&str, &str)], consistent: bool) -> Reading {
    let pairs = pairs.iter().map(|(path, text)| Pair {
        path: (*path).to_owned(),
        value: text.as_bytes().to_vec(),
        version: 1,
        log_id: None,
    });
    Reading {
        snapshot: Snapshot::new(index, pairs),
        consistent,
        has_leader: true,
        extent: Extent::Whole,
        index_covers_content: true,
    }
}

impl Store for Scripted {
    async fn read(&self, mode: Mode, wait: Duration) -> Result<Reading, StoreError> {
        let consistent = mode == Mode::Consistent;
        let reading = match self.next(mode) {
            Say::These(index, pairs) => reading(index, pairs, consistent),
            Say::Unvouched(index, pairs) => reading(index, pairs, false),
            Say::Quiet => {
                if !consistent {
                    sleep(wait).await;
                }
                let last = self.0.lock().unwrap().last.clone();
                Reading {
                    consistent,
                    ..last.expect("something was said before")
                }
            }
            Say::Fail(kind, after) => {
                sleep(after).await;
                return Err(StoreError::new(kind, "as it was told to"));
            }
            Say::Hang => std::future::pending().await,
        };
        self.0.lock().unwrap().last = Some(reading.clone());
        Ok(reading)
    }

    async fn read_path(&self, path: &str) -> Result<Option<Pair>, StoreError> {
        let is = self.0.lock().unwrap().by_name.get(path).cloned();
        match is.unwrap_or(Ok(None)) {
            Err(kind) => Err(StoreError::new(kind, "as it was told to")),
            Ok(text) => Ok(text.map(|text| Pair {
                path: path.to_owned(),
                value: text.into_bytes(),
                version: 1,
                log_id: None,
            })),
        }
    }

    async fn commit(&self, _: &Transaction) -> Result<Committed, CommitError> {
        unreachable!("a watch does not write")
    }

    async fn log(&self, _: usize) -> Result<Vec<LogEntry>, StoreError> {
        unreachable!("a watch does not read the log")
    }

    async fn log_entry(&self, _: LogId) -> Result<Option<LogEntry>, StoreError> {
        unreachable!("a watch does not read the log")
    }

    async fn trim_log(&self, _: usize) -> Result<usize, StoreError> {
        unreachable!("a watch does not trim the log")
    }

    async fn forget_log_entry(&self, _: LogId) -> Result<(), StoreError> {
        unreachable!("a watch does not trim the log")
    }

    fn keys_per_transaction(&self) -> usize {
        1
    }
}
