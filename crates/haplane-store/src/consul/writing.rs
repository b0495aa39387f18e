//! One attempt to carry out a transaction, and finding out what became of it.

use std::time::Duration;

use haplane_core::key::Key;
use tokio::time::Instant;

use crate::consul::client::Failure;
use crate::consul::kv::{ReadHow, may_write};
use crate::consul::settings::Prefix;
use crate::consul::store::ConsulStore;
use crate::consul::txn::{MAX_OPS, Op, TxnError};
use crate::error::{CommitError, StoreError, StoreErrorKind};
use crate::store::{Change, Committed, Expected, Transaction};

/// A transaction also carries the log entry, and leaves room for one operation more.
pub(super) const MAX_KEYS: usize = MAX_OPS - 2;

/// How long a write whose answer was lost is looked for: Consul itself may try for 7 s to bring it to
/// a leader (facts 8.3).
const LOOK_FOR: Duration = Duration::from_secs(8);
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// One attempt to carry out a transaction.
pub(super) struct Writing<'a> {
    store: &'a ConsulStore,
    changes: &'a [Change],
    ops: Vec<Op>,
    makes_marker: bool,
    /// What proves that it happened, should the answer be lost: a key that only this attempt makes,
    /// and its text.
    proof: Option<(String, String)>,
}

pub(super) enum Refused {
    /// Somebody else made the marker meanwhile.
    MarkerCame,
    Commit(CommitError),
}

impl<'a> Writing<'a> {
    pub(super) fn new(
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
            .chain(
                changes
                    .iter()
                    .map(|change| change_op(&store.state, change, flags)),
            )
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

    pub(super) async fn send(&self) -> Result<Committed, Refused> {
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

fn change_op(state: &Prefix, change: &Change, flags: u64) -> Op {
    let key = state.join(&change.path);
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
