//! Seeds: which rows a server-state file must name so that a new process starts as desired.
//!
//! Only rows that are to be out of rotation, or at another weight, are named: everything else starts as the configuration
//! says, and the agent is asked soon after. The port of each row is the configuration's, because HAProxy takes it from
//! the file whatever the configuration says (facts 6.2).

use std::collections::{BTreeSet, HashMap};

use haplane_haproxy::agent_check::Answer;
use haplane_haproxy::cfg::{Activity, Config, MAX_WEIGHT, Row, StateSource};
use haplane_haproxy::forecast::{StateFiles, forecast};
use haplane_haproxy::server_state::{AdminBits, Fate, SeedRow, ServerRow, StateFile, write_seed};
use haplane_haproxy::{AdminState, RowKey};
use jiff::Timestamp;

use crate::ask::Ask;
use crate::key::Key;
use crate::resolve::{self, Policy, resolve};
use crate::snapshot::Snapshot;

/// Where the states of a seed come from.
#[derive(Clone, Copy, Debug)]
pub enum States<'a> {
    /// What is desired: each row is answered as the agent would answer it.
    Desired {
        /// The desired state.
        snapshot: &'a Snapshot,
        /// The time at which values hold.
        now: Timestamp,
        /// The agent's choices.
        policy: Policy,
    },
    /// What the running process has: the next best, when nobody can say what is desired.
    Running(&'a [ServerRow]),
}

/// A seed, before it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seed {
    /// The rows to name.
    pub rows: Vec<SeedRow>,
    /// Rows that should be named and cannot be, each with its reason.
    pub skipped: Vec<(RowKey, &'static str)>,
}

/// A seed that HAProxy would read differently than it is meant: a fault of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a new process would not start as the seed says: {0}")]
pub struct SeedError(String);

/// Decides which rows to name.
pub fn seed(config: &Config, states: States<'_>) -> Seed {
    let mut seed = Seed::default();
    let running: HashMap<&RowKey, &ServerRow> = match states {
        States::Running(rows) => rows.iter().map(|row| (&row.row, row)).collect(),
        States::Desired { .. } => HashMap::new(),
    };
    for row in config.rows() {
        let Some(key) = row.key() else { continue };
        let state = match states {
            States::Desired {
                snapshot,
                now,
                policy,
            } => desired(row, snapshot, now, policy),
            States::Running(_) => running.get(&key).and_then(|shown| as_it_runs(row, shown)),
        };
        let Some((state, weight)) = state else {
            continue;
        };
        // A server that is `disabled` starts in maintenance, which is as far out of rotation as it can be.
        if row.server.settings.disabled.value || row.server.settings.track.is_some() {
            continue;
        }
        match named(row, key.clone(), state, weight) {
            Ok(named) => seed.rows.push(named),
            Err(reason) => seed.skipped.push((key, reason)),
        }
    }
    seed
}

fn named(
    row: Row<'_>,
    key: RowKey,
    state: AdminState,
    weight: u16,
) -> Result<SeedRow, &'static str> {
    if row.server.activity != Activity::Active {
        return Err("it stands in a branch of .if that cannot be decided here");
    }
    let port = u16::try_from(row.server.port.shown())
        .map_err(|_| "its port is shifted below the client's")?;
    Ok(SeedRow {
        row: key,
        state,
        port,
        configured_weight: row.server.settings.weight.value,
        weight,
    })
}

/// The keys whose absence this seed rests on: because the snapshot does not have them, rows stay in rotation. A store
/// that hides what it denies has to be asked for each by its own name.
pub fn absences(
    config: &Config,
    snapshot: &Snapshot,
    now: Timestamp,
    policy: Policy,
) -> BTreeSet<Key> {
    let asks = config.rows().filter_map(|row| words(row));
    asks.flat_map(|ask| resolve::absences(&ask, snapshot, &resolve(&ask, snapshot, now, policy)))
        .collect()
}

/// What HAProxy will ask for the row, if it is enrolled.
fn words(row: Row<'_>) -> Option<Ask> {
    let agent = &row.server.settings.agent;
    let send = agent.send.as_ref().filter(|_| agent.enabled.value)?;
    let line = send.value.split_inclusive('\n').next()?;
    Ask::parse(line.as_bytes()).ok()
}

/// What the agent would answer the row, where that differs from how it starts anyway.
fn desired(
    row: Row<'_>,
    snapshot: &Snapshot,
    now: Timestamp,
    policy: Policy,
) -> Option<(AdminState, u16)> {
    let ask = words(row)?;
    let configured = row.server.settings.weight.value;
    match resolve(&ask, snapshot, now, policy).answer {
        Answer::Drain => Some((AdminState::Drain, configured)),
        Answer::Maint => Some((AdminState::Maint, configured)),
        Answer::Ready {
            weight: Some(percent),
            ..
        } => {
            let weight = weight_at(configured, percent.get());
            (weight != configured).then_some((AdminState::Ready, weight))
        }
        Answer::Ready { weight: None, .. } | Answer::Keep => None,
    }
}

/// HAProxy's own arithmetic: truncated, and 256 at most (facts 2.2 g).
fn weight_at(configured: u16, percent: u16) -> u16 {
    let weight = u32::from(configured) * u32::from(percent) / 100;
    u16::try_from(weight).unwrap_or(MAX_WEIGHT).min(MAX_WEIGHT)
}

/// What the process has now, as far as it was set at run time.
fn as_it_runs(row: Row<'_>, shown: &ServerRow) -> Option<(AdminState, u16)> {
    let configured = row.server.settings.weight.value;
    // A weight is kept only while the configured weight is still the one that it was set from.
    let weight = if shown.iweight == configured {
        shown.uweight
    } else {
        configured
    };
    let state = if shown.admin.contains(AdminBits::FMAINT) {
        AdminState::Maint
    } else if shown.admin.contains(AdminBits::FDRAIN) {
        AdminState::Drain
    } else {
        AdminState::Ready
    };
    (state != AdminState::Ready || weight != configured).then_some((state, weight))
}

/// The text of a seed, read back as a starting HAProxy would: every row that is named must start as named, with the
/// port and address of the configuration, and no other row may change.
///
/// # Errors
///
/// When it would not. The text is then not to be used.
pub fn write(config: &Config, seed: &Seed, note: &str) -> Result<String, SeedError> {
    let text = write_seed(&seed.rows, note);
    let file = StateFile::read(text.as_bytes());
    if file.fate() != &Fate::Loaded {
        return Err(SeedError(format!("{:?}", file.fate())));
    }
    let named: HashMap<&RowKey, &SeedRow> = seed.rows.iter().map(|row| (&row.row, row)).collect();
    let local = config
        .backends()
        .iter()
        .filter(|one| one.settings.state_source.value == StateSource::Local);
    let local = local
        .map(|backend| (backend.name.clone(), file.clone()))
        .collect();
    let files = StateFiles {
        global: Some(file),
        local,
    };
    let without = forecast(config, &StateFiles::default());
    for (with, without) in forecast(config, &files).into_iter().zip(without) {
        let loaded = with.file_line.is_some();
        let as_meant = match named.get(&with.row).filter(|_| loaded) {
            None => with == without,
            Some(row) => {
                let state = if with.admin.value.is_maint() {
                    AdminState::Maint
                } else if with.admin.value.is_drain() {
                    AdminState::Drain
                } else {
                    AdminState::Ready
                };
                let kept = with.port.value == without.port.value
                    && with.address.value == without.address.value
                    && with.check_port.value == without.check_port.value
                    && with.agent_port.value == without.agent_port.value
                    && with.agent_address.value == without.agent_address.value;
                state == row.state && with.weight.value == row.weight && kept
            }
        };
        if !as_meant {
            return Err(SeedError(with.row.to_string()));
        }
    }
    Ok(text)
}

/// Whether any backend would read a seed at all.
pub fn is_loaded_by(config: &Config) -> bool {
    config
        .backends()
        .iter()
        .any(|backend| backend.settings.state_source.value != StateSource::None)
}
