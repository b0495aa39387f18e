//! What a beat writes: `drain`, `ready` over it, and nothing again. Should this process be killed in between, each value ends
//! by itself.
//!
//! Its log entry lives as long as its value, so that whoever looks meanwhile sees whose it is: one a minute would push
//! everybody else's out of the log.

use std::time::Duration;

use haplane_core::desired::Desired;
use haplane_core::log::LogId;
use haplane_core::{Snapshot, Value};
use haplane_store::{Change, Expected, Store, Transaction};
use jiff::{Timestamp, Unit};

use super::beat::Heart;
use crate::failure::Failure;
use crate::identity::Identity;
use crate::write::{self, Author, Wanted};

/// Who writes, as the log tells it.
const BY: &str = "heartbeat";
/// Why, as the log tells it.
const REASON: &str = "a test of the whole way; it brings the row back by itself";
/// Longer than any beat takes beside its waiting.
const MARGIN: Duration = Duration::from_mins(1);

/// A value of a beat.
pub(super) struct Written {
    /// Every snapshot with at least this index has seen it.
    pub(super) index: u64,
    /// The log entry that says whose it is.
    entry: Option<LogId>,
    /// When it ends by itself.
    pub(super) until: Timestamp,
}

/// The way back, written.
pub(super) struct Back {
    /// Every snapshot with at least this index has seen it.
    pub(super) index: u64,
    /// The value; none where somebody else had written over the beat's.
    pub(super) ours: Option<Written>,
}

impl Heart<'_> {
    /// The way there.
    pub(super) async fn drain(&self) -> Result<Written, Failure> {
        let before = self.session.read().await?;
        let left = self.left_behind(&before).await?;
        let drained = self.write(&before, Desired::DRAIN).await?;
        self.forget(left).await;
        Ok(drained)
    }

    /// The way back. An agent may keep a row without a value as it was, so it is told: `ready`. What somebody else wrote
    /// over the value of this beat is theirs, and gone is gone.
    pub(super) async fn ready(&self, drained: &Written) -> Result<Back, Failure> {
        let now = self.session.read().await?;
        if !self.is_ours(&now, drained) {
            return Ok(Back {
                index: now.index,
                ours: None,
            });
        }
        let ready = self.write(&now, Desired::READY).await?;
        self.forget(drained.entry).await;
        Ok(Back {
            index: ready.index,
            ours: Some(ready),
        })
    }

    /// Deletes a value that this beat wrote.
    pub(super) async fn delete(&self, written: &Written) -> Result<(), Failure> {
        let now = self.session.read().await?;
        let stored = now.get(&self.key);
        let Some(stored) = stored.filter(|_| self.is_ours(&now, written)) else {
            return Ok(());
        };
        let change = Change {
            key: self.key.clone(),
            path: now.path_of(&self.key),
            expected: Expected::Version(stored.version),
            text: None,
        };
        let transaction = Transaction {
            changes: vec![change],
            log: None,
        };
        self.session.store.commit(&transaction).await?;
        self.forget(written.entry).await;
        Ok(())
    }

    fn is_ours(&self, now: &Snapshot, written: &Written) -> bool {
        let entry = now.get(&self.key).and_then(|stored| stored.log_id);
        entry.is_some() && entry == written.entry
    }

    async fn write(&self, before: &Snapshot, desired: Desired) -> Result<Written, Failure> {
        let until = self.end();
        let wanted = Wanted {
            key: self.key.clone(),
            value: Some(Value {
                desired,
                until: Some(until),
            }),
        };
        let author = Author {
            identity: Identity {
                by: BY.to_owned(),
                ..self.session.identity.clone()
            },
            reason: Some(REASON.to_owned()),
            ticket: None,
        };
        let steps = write::plan(before, &[wanted]);
        let written = write::commit(&self.session.store, &steps, &author)
            .await
            .map_err(|interrupted| Failure::from(interrupted.error))?;
        Ok(Written {
            index: written.index.unwrap_or(before.index),
            entry: written.log_ids.first().copied(),
            until,
        })
    }

    /// Whatever becomes of us, nobody's row stays out for longer.
    pub(super) fn end(&self) -> Timestamp {
        let end = Timestamp::now()
            .checked_add(self.timeout * 2 + MARGIN)
            .unwrap_or(Timestamp::MAX);
        end.round(Unit::Second).unwrap_or(end)
    }

    /// The log entry of a beat that was killed, or not proven. A value of anybody else is theirs.
    async fn left_behind(&self, before: &Snapshot) -> Result<Option<LogId>, Failure> {
        let key = &self.key;
        let (text, entry) = match (before.get(key), before.get_invalid(key)) {
            (Some(stored), _) if !stored.value.holds_at(Timestamp::now()) => {
                return Ok(stored.log_id);
            }
            (Some(stored), _) => (stored.value.to_string(), stored.log_id),
            (None, Some(invalid)) => (invalid.text.trim().to_owned(), invalid.log_id),
            (None, None) => return Ok(None),
        };
        let writer = match entry {
            Some(id) => self
                .session
                .store
                .log_entry(id)
                .await?
                .map(|entry| entry.by),
            None => None,
        };
        if writer.as_deref() == Some(BY) {
            return Ok(entry);
        }
        let writer = writer.unwrap_or_else(|| "hand".to_owned());
        Err(Failure::refused(format!(
            "{key} is {text}, written by {writer}: the heartbeat needs a row of its own; \
             `haplane clear {key}` frees it"
        )))
    }

    /// A log entry that stays is trimmed one day, as any other.
    async fn forget(&self, entry: Option<LogId>) {
        if let Some(id) = entry
            && let Err(error) = self.session.store.forget_log_entry(id).await
        {
            let output = &self.session.output;
            output.warn(&format!(
                "the heartbeat's log entry {id} stays: {}",
                error.story()
            ));
        }
    }
}
