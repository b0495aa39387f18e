//! The store on Consul's KV.

use std::collections::BTreeSet;
use std::time::Duration;

use haplane_core::guard::{Extent, Mode, Reading};
use haplane_core::log::{LogEntry, LogId};
use haplane_core::marker::{self, Marker};
use haplane_core::snapshot::{Pair, Snapshot};
use jiff::Timestamp;

use crate::consul::client::{Client, Freshness};
use crate::consul::kv::{Blocking, KvPair, ReadHow, may_read, may_write};
use crate::consul::settings::{Consistency, ConsulSettings, Prefix};
use crate::consul::txn::{MAX_OPS, Op, TxnError};
use crate::consul::writing::{MAX_KEYS, Refused, Writing};
use crate::error::{CommitError, StoreError, StoreErrorKind};
use crate::store::{Committed, Named, Store, Transaction};

/// The name of a log entry that there never is: its time is the beginning of all time.
const NO_ENTRY: &str = "0000000000000000";

/// With `stale` reads: a server that heard of its leader longer ago than this speaks of the past.
const MAX_STALENESS: Duration = Duration::from_secs(5);

/// How often a marker that somebody else makes at the same time is looked at again.
const MARKER_ATTEMPTS: usize = 3;

/// Desired state in Consul's KV store.
pub struct ConsulStore {
    /// Parked in a blocking query most of the time.
    watch: Client,
    /// Everything else.
    pub(super) client: Client,
    pub(super) state: Prefix,
    pub(super) log: Prefix,
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
}
