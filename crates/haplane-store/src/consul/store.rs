//! The store on Consul's KV.

use std::collections::BTreeSet;
use std::time::Duration;

use haplane_core::guard::{Extent, Mode, Reading};
use haplane_core::key::Key;
use haplane_core::log::{LogEntry, LogId};
use haplane_core::marker::{self, Marker};
use haplane_core::snapshot::{Pair, Snapshot};
use jiff::Timestamp;
use tokio::time::Instant;

use crate::consul::client::{Client, Failure, Freshness};
use crate::consul::kv::{Blocking, KvPair, ReadHow, may_read, may_write};
use crate::consul::settings::{Consistency, ConsulSettings, Prefix};
use crate::consul::txn::{MAX_OPS, Op, TxnError};
use crate::error::{CommitError, StoreError, StoreErrorKind};
use crate::store::{Change, Committed, Expected, Named, Store, Transaction};

/// The name of a log entry that there never is: its time is the beginning of all time.
const NO_ENTRY: &str = "0000000000000000";

/// A transaction also carries the log entry, and leaves room for one operation more.
const MAX_KEYS: usize = MAX_OPS - 2;

/// With `stale` reads: a server that heard of its leader longer ago than this speaks of the past.
const MAX_STALENESS: Duration = Duration::from_secs(5);

/// How long a write whose answer was lost is looked for: Consul itself may try for 7 s to bring it to
/// a leader (facts 8.3).
const LOOK_FOR: Duration = Duration::from_secs(8);
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How often a marker that somebody else makes at the same time is looked at again.
const MARKER_ATTEMPTS: usize = 3;

/// Desired state in Consul's KV store.
pub struct ConsulStore {
    /// Parked in a blocking query most of the time.
    watch: Client,
    /// Everything else.
    client: Client,
    state: Prefix,
    log: Prefix,
}

impl ConsulStore {
    /// A store that has no connection yet.
    pub fn new(settings: ConsulSettings, state: Prefix, log: Prefix) -> Result<Self, StoreError> {
        if state.overlaps(&log) {
            let what = format!("state_prefix {state} and log_prefix {log} lie within each other");
            return Err(StoreError::new(StoreErrorKind::Config, what));
        }
        let client = Client::new(settings);
        Ok(Self {
            watch: client.sibling(),
            client,
            state,
            log,
        })
    }

    /// The client of this store, for services; its connection is not the one that is parked.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The state prefix.
    pub fn state_prefix(&self) -> &Prefix {
        &self.state
    }

    /// Reads token and TLS files again, and makes the connections anew.
    pub fn reload(&self) {
        self.client.reload();
    }

    fn how(&self, mode: Mode, wait: Duration, freshness: Freshness) -> ReadHow {
        match (mode, freshness) {
            // An index is only good for the Consul that gave it. Restarted empty, it would let us
            // sleep until its own index has come that far (facts 8.1, 12.9).
            (Mode::Consistent, _) | (Mode::Blocking(_), Freshness::New) => ReadHow::CONSISTENT,
            (Mode::Blocking(index), Freshness::Reused) => ReadHow {
                consistency: self.client.settings().consistency,
                blocking: Some(Blocking { index, wait }),
            },
        }
    }

    fn pair(&self, pair: KvPair) -> Option<Pair> {
        Some(Pair {
            path: self.state.strip(&pair.key)?.to_owned(),
            value: pair.value,
            version: pair.modify_index,
            log_id: LogId::from_flags(pair.flags),
        })
    }
}

impl Store for ConsulStore {
    async fn read(&self, mode: Mode, wait: Duration) -> Result<Reading, StoreError> {
        if mode == Mode::Consistent {
            // Whatever made the last read doubtful, another token may cure it.
            self.watch.reread_token().await?;
        }
        let listing = self
            .watch
            .kv_list(&self.state, |freshness| self.how(mode, wait, freshness))
            .await?;
        let (meta, consistency) = (listing.meta, listing.how.consistency);
        let is_old = consistency == Consistency::Stale && meta.last_contact > MAX_STALENESS;
        let pairs = listing.pairs.into_iter().filter_map(|pair| self.pair(pair));
        Ok(Reading {
            snapshot: Snapshot::new(meta.index, pairs),
            consistent: consistency == Consistency::Consistent,
            has_leader: meta.known_leader && !is_old,
            extent: meta.extent,
            index_covers_content: true,
        })
    }

    async fn read_path(&self, path: &str) -> Result<Option<Pair>, StoreError> {
        let pair = self.client.kv_get(&self.state.join(path)).await?;
        Ok(pair.and_then(|pair| self.pair(pair)))
    }

    async fn read_names(&self, paths: &[String]) -> Result<Vec<Named>, StoreError> {
        let keys: Vec<String> = paths.iter().map(|path| self.state.join(path)).collect();
        self.client.kv_named(&keys).await
    }

    fn hides_what_it_denies(&self) -> bool {
        true
    }

    fn rights(&self) -> u64 {
        self.client.rights()
    }

    async fn commit(&self, transaction: &Transaction) -> Result<Committed, CommitError> {
        let log = self.log_op(transaction)?;
        if !transaction.is_init() {
            let writing = Writing::new(self, transaction, None, log)?;
            return writing.send().await.map_err(|refused| self.told(refused));
        }
        for _ in 0..MARKER_ATTEMPTS {
            let marker = self.marker_op().await?;
            let writing = Writing::new(self, transaction, marker, log.clone())?;
            match writing.send().await {
                Err(Refused::MarkerCame) => {}
                done => return done.map_err(|refused| self.told(refused)),
            }
        }
        Err(self.told(Refused::MarkerCame))
    }

    async fn log(&self, limit: usize) -> Result<Vec<LogEntry>, StoreError> {
        let mut ids = self.log_ids().await?;
        if ids.is_empty() {
            self.may_read_log().await?;
        }
        ids.reverse();
        ids.truncate(limit);
        // One that was trimmed meanwhile is no entry any more.
        self.log_entries(&ids).await
    }

    async fn log_entries(&self, ids: &[LogId]) -> Result<Vec<LogEntry>, StoreError> {
        let keys: Vec<String> = ids.iter().map(|id| self.log_key(*id)).collect();
        let pairs = self
            .client
            .kv_get_several(&keys, &may_read(&self.log))
            .await?;
        pairs.iter().map(entry_of).collect()
    }

    async fn log_entry(&self, id: LogId) -> Result<Option<LogEntry>, StoreError> {
        let (key, permission) = (self.log_key(id), may_read(&self.log));
        let pair = self.client.kv_get_with(&key, &permission).await?;
        pair.as_ref().map(entry_of).transpose()
    }

    async fn trim_log(&self, keep: usize) -> Result<usize, StoreError> {
        let ids = self.log_ids().await?;
        let beyond = ids.len().saturating_sub(keep);
        if beyond == 0 {
            return Ok(0);
        }
        let listing = self
            .client
            .kv_list(&self.state, |_| ReadHow::CONSISTENT)
            .await?;
        // What the token may not read looks like "not there": then nobody knows which entries are in use.
        if listing.meta.extent == Extent::Filtered || listing.pairs.is_empty() {
            return Ok(0);
        }
        let in_use: BTreeSet<u64> = listing.pairs.iter().map(|pair| pair.flags).collect();
        let doomed: Vec<Op> = ids
            .into_iter()
            .take(beyond)
            .filter(|id| !in_use.contains(&id.as_u64()))
            .map(|id| Op::Delete {
                key: self.log_key(id),
            })
            .collect();
        self.delete_from_log(&doomed).await?;
        Ok(doomed.len())
    }

    async fn forget_log_entry(&self, id: LogId) -> Result<(), StoreError> {
        let key = self.log_key(id);
        self.delete_from_log(&[Op::Delete { key }]).await
    }

    fn keys_per_transaction(&self) -> usize {
        MAX_KEYS
    }
}

/// What a log entry holds.
fn entry_of(pair: &KvPair) -> Result<LogEntry, StoreError> {
    serde_json::from_slice(&pair.value).map_err(|source| {
        let what = format!("the log entry {} is not one that haplane wrote", pair.key);
        StoreError::new(StoreErrorKind::Undecodable, what).because(source)
    })
}

impl ConsulStore {
    async fn delete_from_log(&self, doomed: &[Op]) -> Result<(), StoreError> {
        let doing = format!("trimming {}", self.log);
        for ops in doomed.chunks(MAX_OPS) {
            match self.client.txn(ops, &doing, &may_write(&self.log)).await {
                Ok(_) => {}
                Err(TxnError::Failed(failure)) => return Err(failure.error),
                Err(TxnError::Stale(_)) => {
                    let what = format!("Consul did not delete what it was told to, {doing}");
                    return Err(StoreError::new(StoreErrorKind::Status, what));
                }
            }
        }
        Ok(())
    }

    fn told(&self, refused: Refused) -> CommitError {
        match refused {
            Refused::Commit(error) => error,
            Refused::MarkerCame => {
                let what = format!(
                    "{}{} comes and goes; nothing was written: who else deletes it?",
                    self.state,
                    marker::PATH
                );
                StoreError::new(StoreErrorKind::Status, what).into()
            }
        }
    }

    fn log_key(&self, id: LogId) -> String {
        self.log.join(&id.to_string())
    }

    /// A log without entries and one that the token may not see look the same in a list. By a name of
    /// its own, whatever is there, Consul tells them apart (facts 8.2).
    async fn may_read_log(&self) -> Result<(), StoreError> {
        let (key, permission) = (self.log.join(NO_ENTRY), may_read(&self.log));
        self.client.kv_get_with(&key, &permission).await.map(drop)
    }

    async fn log_ids(&self) -> Result<Vec<LogId>, StoreError> {
        let names = self.client.kv_names(&self.log).await?;
        let ids = names
            .iter()
            .filter_map(|name| self.log.strip(name)?.parse().ok());
        let mut ids: Vec<LogId> = ids.collect();
        ids.sort_unstable();
        Ok(ids)
    }

    /// The operation that makes the marker, if it is truly absent: asked for by its own name, Consul
    /// says whether we may not see it (facts 8.2).
    async fn marker_op(&self) -> Result<Option<Op>, StoreError> {
        let key = self.state.join(marker::PATH);
        match self.client.kv_get(&key).await {
            Ok(Some(_)) => Ok(None),
            Ok(None) => Ok(Some(Op::Cas {
                key,
                value: Marker::new(fastrand::u64(..)).text(Timestamp::now()),
                flags: 0,
                index: 0,
            })),
            Err(error) if error.kind == StoreErrorKind::Denied => {
                let what = format!(
                    "{}; to write, the token needs {}",
                    error.what,
                    may_write(&self.state)
                );
                Err(StoreError { what, ..error })
            }
            Err(error) => Err(error),
        }
    }

    fn log_op(&self, transaction: &Transaction) -> Result<Option<Op>, StoreError> {
        let Some(entry) = &transaction.log else {
            return Ok(None);
        };
        let value = serde_json::to_string(entry).map_err(|source| {
            let what = "the log entry cannot be written as JSON";
            StoreError::new(StoreErrorKind::Config, what).because(source)
        })?;
        Ok(Some(Op::Cas {
            key: self.log_key(entry.id),
            value,
            flags: 0,
            index: 0,
        }))
    }

    fn change_op(&self, change: &Change, flags: u64) -> Op {
        let key = self.state.join(&change.path);
        match (&change.text, change.expected) {
            (Some(text), Expected::Version(index)) => Op::Cas {
                key,
                value: text.clone(),
                flags,
                index,
            },
            (Some(text), Expected::Absent) => Op::Cas {
                key,
                value: text.clone(),
                flags,
                index: 0,
            },
            (None, Expected::Version(index)) => Op::DeleteCas { key, index },
            (None, Expected::Absent) => Op::CheckAbsent { key },
        }
    }
}

/// One attempt to carry out a transaction.
struct Writing<'a> {
    store: &'a ConsulStore,
    changes: &'a [Change],
    ops: Vec<Op>,
    makes_marker: bool,
    /// What proves that it happened, should the answer be lost: a key that only this attempt makes,
    /// and its text.
    proof: Option<(String, String)>,
}

enum Refused {
    /// Somebody else made the marker meanwhile.
    MarkerCame,
    Commit(CommitError),
}

impl<'a> Writing<'a> {
    fn new(
        store: &'a ConsulStore,
        transaction: &'a Transaction,
        marker: Option<Op>,
        log: Option<Op>,
    ) -> Result<Self, CommitError> {
        let changes = &transaction.changes;
        if changes.len() > MAX_KEYS {
            let what = format!(
                "one transaction of Consul carries {MAX_KEYS} keys, not {}",
                changes.len()
            );
            return Err(CommitError::Unholdable(what));
        }
        let flags = transaction.log.as_ref().map_or(0, |log| log.id.as_u64());
        let makes_marker = marker.is_some();
        let unique = log.as_ref().or(marker.as_ref());
        let proof = unique.and_then(|op| match op {
            Op::Cas { key, value, .. } => Some((key.clone(), value.clone())),
            _ => None,
        });
        let ops = marker
            .into_iter()
            .chain(changes.iter().map(|change| store.change_op(change, flags)))
            .chain(log)
            .collect();
        Ok(Self {
            store,
            changes,
            ops,
            makes_marker,
            proof,
        })
    }

    async fn send(&self) -> Result<Committed, Refused> {
        if self.ops.is_empty() {
            return self.committed(None).await.map_err(Refused::store);
        }
        let state = &self.store.state;
        let doing = format!("writing {state}");
        let permission = format!(
            "{} and the same for \"{}\"",
            may_write(state),
            self.store.log
        );
        match self.store.client.txn(&self.ops, &doing, &permission).await {
            Ok(written) => self.committed(written).await.map_err(Refused::store),
            Err(TxnError::Stale(places)) => Err(self.stale(&places)),
            Err(TxnError::Failed(failure)) => self.look_for(failure).await,
        }
    }

    fn stale(&self, places: &[usize]) -> Refused {
        let first_change = usize::from(self.makes_marker);
        let keys: Vec<Key> = places
            .iter()
            .filter_map(|place| self.changes.get(place.checked_sub(first_change)?))
            .map(|change| change.key.clone())
            .collect();
        if !keys.is_empty() {
            return Refused::Commit(CommitError::Conflict { keys });
        }
        if self.makes_marker && places.contains(&0) {
            return Refused::MarkerCame;
        }
        let what = format!(
            "{} has an entry of the same id already; nothing was written: run the command again",
            self.store.log
        );
        Refused::store(StoreError::new(StoreErrorKind::Status, what))
    }

    /// The answer was lost: whether the transaction happened is for the store to say.
    async fn look_for(&self, failure: Failure) -> Result<Committed, Refused> {
        let Failure { error, sent } = failure;
        let Some((key, text)) = self.proof.as_ref().filter(|_| sent) else {
            return Err(Refused::store(error));
        };
        let until = Instant::now() + LOOK_FOR;
        let mut last_look = Ok(());
        while Instant::now() < until {
            match self.store.client.kv_get(key).await {
                Ok(Some(pair)) if pair.value == text.as_bytes() => {
                    let written = Some(pair.modify_index);
                    return self.committed(written).await.map_err(Refused::store);
                }
                Ok(_) => last_look = Ok(()),
                Err(error) => last_look = Err(error),
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let outcome = match last_look {
            Ok(()) => format!("looked for during {LOOK_FOR:?}, the write is not there"),
            Err(_) => "whether the write happened is unknown".to_owned(),
        };
        let what = format!(
            "{}; {outcome}: look with `haplane show`; to run the command again is safe",
            error.what
        );
        Err(Refused::store(StoreError { what, ..error }))
    }

    /// The index from which on every snapshot has seen this. All that a transaction changes gets one
    /// index, but what it leaves as it was keeps an older one, and the index of the state prefix
    /// moves only for what changed below it.
    async fn committed(&self, newest: Option<u64>) -> Result<Committed, StoreError> {
        let sets = self.changes.iter().any(|change| change.text.is_some());
        let index = match newest {
            // A key that is set changes at least its flags, so that the prefix gets this index.
            Some(index) if sets || self.makes_marker => index,
            // What was to be deleted may have been gone before.
            _ => self.read_index().await?,
        };
        Ok(Committed {
            index,
            made_marker: self.makes_marker,
        })
    }

    async fn read_index(&self) -> Result<u64, StoreError> {
        let store = self.store;
        let listing = store
            .client
            .kv_list(&store.state, |_| ReadHow::CONSISTENT)
            .await?;
        Ok(listing.meta.index)
    }
}

impl Refused {
    fn store(error: StoreError) -> Self {
        Self::Commit(error.into())
    }
}
