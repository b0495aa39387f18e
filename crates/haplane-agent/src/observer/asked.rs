//! The rows that ask, each with what it would be answered now.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use haplane_core::Snapshot;
use haplane_core::ask::Ask;
use haplane_core::resolve::{Policy, resolve};
use haplane_core::verdict::{SILENT_AFTER, Said};
use haplane_haproxy::agent_check::Answer;
use jiff::Timestamp;
use tokio::time::Instant;

use crate::rows::{RowRecord, Rows};

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
    /// One record, due this.
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
        now.saturating_duration_since(self.asked) > self.interval * SILENT_AFTER
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

/// What a record needs to be resolved, without holding the lock that the responder needs.
struct Line {
    row: Arc<str>,
    ask: Arc<Ask>,
    asked: AskedRow,
}

/// All rows that asked, by name.
pub fn asked_rows(
    rows: &Mutex<Rows>,
    snapshot: &Snapshot,
    policy: Policy,
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
        let due = resolve(&line.ask, snapshot, at, policy).answer;
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
