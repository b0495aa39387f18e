//! The rows that ask, each with what it would be answered now.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use haplane_core::ask::Ask;
use haplane_core::resolve::{Policy, absences, resolve};
use haplane_core::verdict::{SILENT_AFTER, Said};
use haplane_haproxy::agent_check::Answer;
use jiff::Timestamp;
use tokio::time::Instant;

use crate::readable::Readable;
use crate::rows::{RowRecord, Rows};
use crate::served::Served;

/// One row by the line that it asked by last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskedRow {
    /// What it was answered last.
    pub answer: Answer,
    /// What it would be answered now.
    pub due: Answer,
    /// When it asked last.
    pub asked: Instant,
    /// When it got this answer first, without another one since.
    pub answered: Instant,
    /// Its own interval.
    pub interval: Duration,
    /// Whether it asks by another line too, which is due another answer.
    pub is_ambiguous: bool,
}

impl AskedRow {
    /// A record, with the answer that it is due now.
    pub fn new(record: &RowRecord, due: Answer) -> Self {
        Self {
            answer: record.answer,
            due,
            asked: record.asked,
            answered: record.answered,
            interval: record.interval(),
            is_ambiguous: false,
        }
    }

    /// How recent the store's word that keys are absent has to be for this answer: any will do for the
    /// answer that the row has already; another one needs a word from after the change.
    pub fn proof_since(&self, answer: Answer, served: &Served) -> Option<Instant> {
        (answer != self.answer).then(|| self.asked.max(served.since))
    }

    /// As a verdict needs it.
    pub fn said(&self, now: Instant) -> Said {
        Said {
            answer: self.answer,
            due: self.due,
            asked_ago: now.saturating_duration_since(self.asked),
            answered_ago: now.saturating_duration_since(self.answered),
            interval: self.interval,
        }
    }

    /// Whether it has stopped asking.
    pub fn is_silent(&self, now: Instant) -> bool {
        now > self.silent_since()
    }

    /// When it counts as having stopped asking, unless it asks before then.
    pub fn silent_since(&self) -> Instant {
        self.asked + self.interval * SILENT_AFTER
    }

    /// This row, which asks by `other` too.
    fn and(self, other: Self, now: Instant) -> Self {
        let (older, newer) = if self.asked < other.asked {
            (self, other)
        } else {
            (other, self)
        };
        let differs = !older.is_silent(now) && older.due != newer.due;
        Self {
            is_ambiguous: older.is_ambiguous || newer.is_ambiguous || differs,
            ..newer
        }
    }
}

/// A copy of what resolving a record needs, so that the lock, which the responder needs too, is not
/// held meanwhile.
struct Line {
    row: Arc<str>,
    ask: Arc<Ask>,
    asked: AskedRow,
}

/// All rows that asked, by name. A row is due what it was answered last for as long as a new answer
/// would rest on keys that may only be hidden.
pub fn asked_rows(
    rows: &Mutex<Rows>,
    served: &Served,
    policy: Policy,
    readable: &Readable,
    now: Instant,
) -> HashMap<Arc<str>, AskedRow> {
    let lines: Vec<Line> = rows
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .iter()
        .map(|record| Line {
            row: Arc::clone(&record.row),
            ask: Arc::clone(&record.ask),
            asked: AskedRow::new(record, record.answer),
        })
        .collect();
    let at = Timestamp::now();
    let mut by_row = HashMap::with_capacity(lines.len());
    for line in lines {
        let decision = resolve(&line.ask, &served.snapshot, at, policy);
        let absent = absences(&line.ask, &served.snapshot, &decision);
        let since = line.asked.proof_since(decision.answer, served);
        let due = if readable.believes(&absent, since) {
            decision.answer
        } else {
            line.asked.answer
        };
        let asked = AskedRow { due, ..line.asked };
        match by_row.entry(line.row) {
            Entry::Vacant(place) => {
                place.insert(asked);
            }
            Entry::Occupied(mut place) => {
                let both = place.get().and(asked, now);
                place.insert(both);
            }
        }
    }
    by_row
}

#[cfg(test)]
mod tests {
    use haplane_core::snapshot::{Pair, Snapshot};
    use haplane_store::View;
    use std::net::Ipv4Addr;
    use tokio::sync::watch;

    use super::*;
    use crate::rows::Asked;

    #[test]
    fn a_row_is_not_due_what_may_rest_on_a_hidden_key() {
        let now = Instant::now();
        let drained = Pair {
            path: "canary".to_owned(),
            value: b"drain".to_vec(),
            version: 1,
            log_id: None,
        };
        let served = Served {
            snapshot: Arc::new(Snapshot::new(1, [drained])),
            since: now,
        };
        let policy = Policy::default();
        let line = b"web/b canary";
        let ask = Ask::parse(line).unwrap();
        let decision = resolve(&ask, &served.snapshot, Timestamp::UNIX_EPOCH, policy);
        let rows = Mutex::new(Rows::default());
        let asked = Asked {
            line,
            ask: &ask,
            by: Ipv4Addr::LOCALHOST.into(),
            at: Timestamp::UNIX_EPOCH,
            decision: &decision,
            served: &served,
        };
        rows.lock().unwrap().remember(&asked, now);

        // The group is cleared; nothing is known of the row's own key.
        let cleared = Served {
            snapshot: Arc::new(Snapshot::new(2, [])),
            since: now,
        };
        let (_, views) = watch::channel(View::default());
        let due = |hides| {
            let readable = Readable::new(hides, views.clone());
            asked_rows(&rows, &cleared, policy, &readable, now)["web/b"].due
        };
        assert_eq!(due(true), Answer::Drain);
        assert_eq!(due(false), Answer::READY);
    }
}
