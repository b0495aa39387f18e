//! The JSON of `/v1/…`. Fields may be added, never renamed: other versions of haplane read them.

use std::collections::BTreeMap;
use std::time::Duration;

use haplane_core::Snapshot;
use jiff::Timestamp;
use serde::Serialize;
use tokio::time::Instant;

use super::Shown;
use crate::rows::RowRecord;
use crate::standing::Standing;

/// `/v1/node`.
#[derive(Debug, Serialize)]
pub(super) struct Node {
    node: String,
    version: &'static str,
    started_at: Timestamp,
    store: Store,
    /// Filled by the observer.
    haproxy: Vec<Haproxy>,
    counts: Counts,
}

#[derive(Debug, Serialize)]
struct Store {
    kind: &'static str,
    address: String,
    /// The snapshot in force; null before the first one.
    index: Option<u64>,
    /// The last good contact.
    synced_at: Option<Timestamp>,
    age_ms: Option<u64>,
    guard: Option<Guard>,
    /// The last failure, while the store cannot be read.
    error: Option<String>,
}

#[derive(Debug, Serialize)]
struct Guard {
    since: Timestamp,
    reason: &'static str,
    detail: String,
}

/// One HAProxy beside this agent.
#[derive(Debug, Serialize)]
struct Haproxy {}

#[derive(Debug, Serialize)]
struct Counts {
    keys: usize,
    invalid: usize,
    rows: usize,
}

impl Node {
    pub(super) fn of(shown: &Shown) -> Self {
        let view = shown.standing.view();
        let snapshot = shown.standing.snapshot();
        let snapshot = snapshot.as_deref();
        Self {
            node: shown.node.clone(),
            version: shown.version,
            started_at: shown.started_at,
            store: Store {
                kind: shown.store_kind,
                address: shown.store_address.clone(),
                index: snapshot.map(|snapshot| snapshot.index),
                synced_at: view.contact.map(|contact| contact.at),
                age_ms: view
                    .contact
                    .map(|contact| millis(contact.instant.elapsed())),
                guard: view.guard.map(|guarded| Guard {
                    since: guarded.since.at,
                    reason: guarded.reason.as_str(),
                    detail: guarded.detail,
                }),
                error: view.failure.map(|failing| failing.what),
            },
            haproxy: Vec::new(),
            counts: Counts {
                keys: snapshot.map_or(0, |snapshot| snapshot.keys().len()),
                invalid: snapshot.map_or(0, |snapshot| snapshot.invalid().len()),
                rows: shown.rows().len(),
            },
        }
    }
}

/// `/v1/state`.
#[derive(Debug, Serialize)]
pub(super) struct State {
    index: Option<u64>,
    synced_at: Option<Timestamp>,
    keys: BTreeMap<String, String>,
    invalid: BTreeMap<String, String>,
}

impl State {
    pub(super) fn of(standing: &Standing) -> Self {
        let snapshot = standing.snapshot();
        let snapshot = snapshot.as_deref();
        Self {
            index: snapshot.map(|snapshot| snapshot.index),
            synced_at: standing.view().contact.map(|contact| contact.at),
            keys: snapshot
                .into_iter()
                .flat_map(Snapshot::keys)
                .map(|(key, stored)| (key.to_string(), stored.value.to_string()))
                .collect(),
            invalid: snapshot
                .into_iter()
                .flat_map(Snapshot::invalid)
                .map(|(name, invalid)| (name.to_owned(), invalid.text.clone()))
                .collect(),
        }
    }
}

/// One row of `/v1/rows`.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    row: String,
    keys: Vec<String>,
    answer: String,
    index: u64,
    decided_by: Option<String>,
    last_asked: Timestamp,
    asked_ms_ago: u64,
    asked_by: String,
    asks: u64,
    answered_since: Timestamp,
    /// What HAProxy shows, when there is a socket to ask.
    observed: Option<Observed>,
    verdict: &'static str,
}

#[derive(Debug, Serialize)]
struct Observed {}

impl Row {
    pub(super) fn of(record: &RowRecord, now: Instant) -> Self {
        Self {
            row: record.row.to_string(),
            keys: record.keys.iter().map(ToString::to_string).collect(),
            answer: record.answer.to_string(),
            index: record.index,
            decided_by: record.decided_by.as_ref().map(ToString::to_string),
            last_asked: record.last_asked,
            asked_ms_ago: millis(record.silence(now)),
            asked_by: record.asked_by.to_string(),
            asks: record.asks,
            answered_since: record.answered_since,
            observed: None,
            verdict: if record.is_silent(now) {
                "silent"
            } else {
                "unobserved"
            },
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
