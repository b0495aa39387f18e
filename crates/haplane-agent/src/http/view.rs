//! The JSON of `/v1/…`. Fields may be added, never renamed: other versions of haplane read them.

use std::collections::BTreeMap;
use std::time::Duration;

use haplane_core::Snapshot;
use haplane_core::guard::Refusal;
use haplane_store::watch::Guarded;
use jiff::Timestamp;
use serde::Serialize;
use tokio::time::Instant;

use super::Shown;
use crate::observer::board;
use crate::observer::old_workers::OldWorkers;
use crate::observer::survey::{self, Surveyed};
use crate::readable::Unreadable;
use crate::standing::Standing;

/// `/v1/node`.
#[derive(Debug, Serialize)]
pub(super) struct Node {
    node: String,
    version: &'static str,
    started_at: Timestamp,
    /// This host's clock, which judges every `until=`.
    now: Timestamp,
    store: Store,
    haproxy: Vec<Haproxy>,
    /// Null without a master's socket.
    haproxy_master: Option<Master>,
    counts: Counts,
    /// Another agent that registers by this node's name, while there is one.
    rival: Option<String>,
}

#[derive(Debug, Serialize)]
struct Store {
    kind: &'static str,
    address: String,
    prefix: String,
    /// The marker of the snapshot in force, empty where there is none: which store this is, whatever its address.
    marker: Option<String>,
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

impl Guard {
    /// What is refused now: the whole list, or else single keys that are denied, not known, or not believed to be
    /// gone.
    fn of(guarded: Option<Guarded>, is_failing: bool, shown: &Shown) -> Option<Self> {
        let guarded = guarded.map(|guarded| Self {
            since: guarded.since.at,
            reason: guarded.reason.as_str(),
            detail: guarded.detail,
        });
        let denied = || {
            let denial = shown.readable.denial()?;
            // A store that cannot be read at all says so in `error`.
            let is_told = denial.why == Unreadable::Unknown && is_failing;
            (!is_told).then(|| Self {
                since: denial.since,
                reason: denial.why.refusal().as_str(),
                detail: denial.to_string(),
            })
        };
        let held = || {
            let held = shown.store.held()?;
            Some(Self {
                since: held.since,
                reason: Refusal::Refilling.as_str(),
                detail: format!("the last value counts for now: {}", held.what),
            })
        };
        guarded.or_else(denied).or_else(held)
    }
}

/// One HAProxy beside this agent, as it was at the last good look.
#[derive(Debug, Serialize)]
struct Haproxy {
    socket: String,
    pid: Option<u32>,
    version: Option<String>,
    uptime_s: Option<u64>,
    /// When it was looked at.
    looked_at: Option<Timestamp>,
    /// How many servers it has.
    rows: Option<usize>,
    /// Why it cannot be looked at now.
    error: Option<String>,
    /// The same in one word.
    error_kind: Option<&'static str>,
    error_since: Option<Timestamp>,
    /// Why rows could not be set through this socket.
    push_error: Option<String>,
}

impl Haproxy {
    fn of(haproxy: &board::Haproxy) -> Self {
        let sighting = haproxy.sighting.as_deref();
        let trouble = haproxy.trouble.as_ref();
        let now = Instant::now();
        Self {
            socket: haproxy.socket.display().to_string(),
            pid: sighting.map(|one| one.process.pid),
            version: sighting.map(|one| one.process.version.clone()),
            uptime_s: sighting.map(|one| one.process.age(now).as_secs()),
            looked_at: sighting.map(|one| one.at),
            rows: sighting.map(|one| one.rows.len()),
            error: trouble.map(|trouble| trouble.what.clone()),
            error_kind: trouble.map(|trouble| trouble.kind),
            error_since: trouble.map(|trouble| trouble.since),
            push_error: haproxy.push_trouble.clone(),
        }
    }
}

/// The workers that finish after a reload, as the master of HAProxy knows them.
#[derive(Debug, Serialize)]
struct Master {
    socket: String,
    looked_at: Timestamp,
    error: Option<String>,
    old_workers: Vec<OldWorker>,
}

#[derive(Debug, Serialize)]
struct OldWorker {
    pid: u32,
    /// Null when it does not tell.
    sessions: Option<u64>,
}

impl Master {
    fn of(old: &OldWorkers) -> Self {
        let worker = |&(pid, sessions): &(u32, Option<u64>)| OldWorker { pid, sessions };
        Self {
            socket: old.socket.display().to_string(),
            looked_at: old.at,
            error: old.trouble.clone(),
            old_workers: old.workers.iter().map(worker).collect(),
        }
    }
}

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
            now: Timestamp::now(),
            store: Store {
                kind: shown.store_kind,
                address: shown.store_address.clone(),
                prefix: shown.state_prefix.clone(),
                marker: snapshot.map(|snapshot| {
                    let marker = snapshot.marker.as_ref();
                    marker.map(ToString::to_string).unwrap_or_default()
                }),
                index: snapshot.map(|snapshot| snapshot.index),
                synced_at: view.contact.map(|contact| contact.at),
                age_ms: view
                    .contact
                    .map(|contact| millis(contact.instant.elapsed())),
                guard: Guard::of(view.guard, view.failure.is_some(), shown),
                error: view.failure.map(|failing| failing.what),
            },
            haproxy: shown.board.haproxies().iter().map(Haproxy::of).collect(),
            haproxy_master: shown.board.old_workers().as_deref().map(Master::of),
            counts: Counts {
                keys: snapshot.map_or(0, |snapshot| snapshot.keys().len()),
                invalid: snapshot.map_or(0, |snapshot| snapshot.invalid().len()),
                rows: shown.rows().len(),
            },
            rival: shown.rival.get(),
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

/// One row of `/v1/rows`. A row that HAProxy has and that never asked has no keys and no answer.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    row: String,
    keys: Vec<String>,
    answer: Option<String>,
    index: Option<u64>,
    decided_by: Option<String>,
    last_asked: Option<Timestamp>,
    asked_ms_ago: Option<u64>,
    asked_by: Option<String>,
    asks: u64,
    answered_since: Option<Timestamp>,
    /// What HAProxy shows; of several HAProxy the one with the worst verdict, but the sessions of all.
    observed: Option<Observed>,
    verdict: &'static str,
    /// What explains the verdict, if anything needs to.
    why: Option<String>,
    /// Whether HAProxy has an agent check for it; null when no HAProxy shows it.
    enrolled: Option<bool>,
    /// Sessions in workers that finish after a reload; null when nobody counts them.
    old_sessions: Option<u64>,
    /// Every HAProxy that shows it, when there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    observed_by: Vec<ObservedBy>,
}

#[derive(Debug, Serialize)]
struct Observed {
    at: Timestamp,
    pid: u32,
    admin: &'static str,
    /// The weight in force, before the ramp of `slowstart`.
    weight: u16,
    configured_weight: u16,
    status: String,
    /// What HAProxy's checks say: up, down or stopping.
    operational: &'static str,
    agent_status: Option<String>,
    agent_enabled: bool,
    /// Null until they were counted after the admin state last changed.
    sessions: Option<u64>,
    /// How far `slowstart` has come, in percent, while it runs.
    throttle: Option<u32>,
    /// Whether HAProxy uses it only when no other server is up; null until its numbers were read.
    backup: Option<bool>,
}

#[derive(Debug, Serialize)]
struct ObservedBy {
    socket: String,
    verdict: &'static str,
    why: Option<String>,
    #[serde(flatten)]
    observed: Observed,
}

impl Row {
    pub(super) fn of(surveyed: Surveyed) -> Self {
        let Surveyed {
            row,
            record,
            judgement,
            observed,
            enrolled,
            old_sessions,
        } = surveyed;
        let record = record.as_ref();
        let text = ToString::to_string;
        let sessions = observed.iter().map(|one| one.sessions).sum();
        let first = observed.first().map(|first| Observed {
            sessions,
            ..Observed::of(first)
        });
        let observed_by = if observed.len() > 1 {
            observed.into_iter().map(ObservedBy::of).collect()
        } else {
            Vec::new()
        };
        Self {
            row: row.to_string(),
            keys: record.map_or_else(Vec::new, |one| one.keys().iter().map(text).collect()),
            answer: record.map(|one| one.answer.to_string()),
            index: record.map(|one| one.index),
            decided_by: record.and_then(|one| one.decided_by.as_ref().map(text)),
            last_asked: record.map(|one| one.last_asked),
            asked_ms_ago: record.map(|one| millis(one.asked.elapsed())),
            asked_by: record.map(|one| one.asked_by.to_string()),
            asks: record.map_or(0, |one| one.asks),
            answered_since: record.map(|one| one.answered_since),
            observed: first,
            verdict: judgement.verdict.as_str(),
            why: judgement.why(),
            enrolled,
            old_sessions,
            observed_by,
        }
    }
}

impl Observed {
    fn of(observed: &survey::Observed) -> Self {
        let survey::Observed {
            at,
            pid,
            seen,
            stat,
            sessions,
            ..
        } = observed;
        let stat = stat.as_ref();
        let own = seen.status();
        // HAProxy's own status says more, but it is read more rarely, so it counts only while it begins
        // with the state that was seen last.
        let told = stat.map(|stat| &*stat.status);
        let status = told.filter(|status| status.starts_with(own)).unwrap_or(own);
        Self {
            at: *at,
            pid: *pid,
            admin: seen.admin_state().as_str(),
            weight: seen.weight,
            configured_weight: seen.configured_weight,
            status: status.to_owned(),
            operational: seen.operational_word(),
            agent_status: stat.and_then(|stat| stat.agent.as_deref().map(str::to_owned)),
            agent_enabled: seen.agent.is_enabled(),
            sessions: *sessions,
            throttle: stat.and_then(|stat| stat.throttle),
            backup: stat.map(|stat| stat.is_backup),
        }
    }
}

impl ObservedBy {
    fn of(observed: survey::Observed) -> Self {
        Self {
            observed: Observed::of(&observed),
            verdict: observed.judgement.verdict.as_str(),
            why: observed.judgement.why(),
            socket: observed.socket,
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
