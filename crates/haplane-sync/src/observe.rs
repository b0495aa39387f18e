//! What one HAProxy process says of its slots.

use std::collections::{BTreeMap, BTreeSet};

use haplane_core::slots::{
    Agent, DownBy, Endpoint, Health, Memory, Observed, ObservedSlot, ProcessId, Stage,
};
use haplane_haproxy::server_state::{self, OpState, ServerRow, StateError};
use haplane_haproxy::show_info::{self, InfoError};
use haplane_haproxy::stat_csv::{self, StatError, StatRow};
use haplane_haproxy::{AdminState, BackendName, RowKey};
use haplane_runtime::{Socket, SocketError};

use crate::settings::PoolSettings;

/// Why nothing is known of a process now.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObserveError {
    /// No answer.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The answer has not the three parts that were asked for.
    #[error("HAProxy answered with {found} parts instead of {expected}: {text}")]
    Parts {
        /// How many there are.
        found: usize,
        /// How many were asked for.
        expected: usize,
        /// The beginning of the answer.
        text: String,
    },
    /// A reload is under way.
    #[error("process {pid} is on its way out; the next one will be looked at")]
    Stopping {
        /// The old process.
        pid: u32,
    },
    /// The configuration names a backend that this process does not have.
    #[error("HAProxy has no backend named {backend}: is it in this process's haproxy.cfg?")]
    NoBackend {
        /// The backend.
        backend: BackendName,
    },
    /// `show info` is not understood.
    #[error(transparent)]
    Info(#[from] InfoError),
    /// `show servers state` is not understood.
    #[error(transparent)]
    State(#[from] StateError),
    /// `show stat` is not understood.
    #[error(transparent)]
    Stat(#[from] StatError),
}

/// One backend as a process reports it.
#[derive(Clone, Debug)]
pub struct ObservedBackend {
    /// The process.
    pub process: ProcessId,
    /// HAProxy's version.
    pub version: String,
    rows: Vec<ServerRow>,
    stats: Vec<StatRow>,
}

/// Whether sessions are asked for: `show stat` costs ten times what `show servers state` costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sessions {
    /// Some slot is leaving, or not known yet.
    Count,
    /// Nobody leaves.
    Skip,
}

impl Sessions {
    /// Sessions matter for slots that are on their way out, or of which nothing is remembered.
    pub fn needed(memory: &Memory) -> Self {
        let mut stages = memory.slots().map(|(_, slot)| slot.stage).peekable();
        let leaving = |stage| matches!(stage, Stage::Unknown | Stage::Draining | Stage::Idle);
        if stages.peek().is_none() || stages.any(leaving) {
            Self::Count
        } else {
            Self::Skip
        }
    }
}

/// Reads one backend in one connection, so that all of it comes from one process.
pub async fn observe(
    socket: &Socket,
    backend: &BackendName,
    sessions: Sessions,
) -> Result<ObservedBackend, ObserveError> {
    let mut questions = vec![
        "show info".to_owned(),
        format!("show servers state {backend}"),
    ];
    if sessions == Sessions::Count {
        questions.push(format!("show stat {backend} 4 -1"));
    }
    let text = socket.ask_all(&questions).await?;
    let parts = split(&text, questions.len())?;
    let mut parts = parts.into_iter();
    let info = show_info::read(parts.next().unwrap_or_default())?;
    if info.stopping {
        return Err(ObserveError::Stopping { pid: info.pid });
    }
    let state = parts.next().unwrap_or_default();
    if state.starts_with("Can't find backend") {
        return Err(ObserveError::NoBackend {
            backend: backend.clone(),
        });
    }
    let rows = server_state::read_answer(state)?;
    let stats = parts
        .next()
        .map(stat_csv::read)
        .transpose()?
        .unwrap_or_default();
    Ok(ObservedBackend {
        process: ProcessId {
            pid: info.pid,
            started_at: info.started_at.unwrap_or_default(),
        },
        version: info.version,
        rows,
        stats,
    })
}

/// Every answer ends with an empty line, and none holds one.
fn split(text: &str, expected: usize) -> Result<Vec<&str>, ObserveError> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(end) = rest.find("\n\n") {
        let (part, after) = rest.split_at(end + 2);
        parts.push(part);
        rest = after;
    }
    if parts.len() == expected && rest.trim().is_empty() {
        return Ok(parts);
    }
    let text = text
        .lines()
        .find(|line| !line.is_empty())
        .unwrap_or_default();
    Err(ObserveError::Parts {
        found: parts.len(),
        expected,
        text: text.chars().take(120).collect(),
    })
}

impl ObservedBackend {
    /// The slots of one pool.
    pub fn of(&self, pool: &PoolSettings) -> Observed {
        let stats: BTreeMap<&RowKey, &StatRow> = self
            .stats
            .iter()
            .filter_map(|stat| Some((stat.row.as_ref()?, stat)))
            .collect();
        let ours = |row: &&ServerRow| {
            row.row.backend == pool.policy.backend
                && pool
                    .policy
                    .mode
                    .claims(&pool.prefix, row.row.server.as_str())
        };
        let slot = |row: &ServerRow| observed_slot(row, stats.get(&row.row).copied());
        Observed {
            process: self.process,
            slots: self.rows.iter().filter(ours).map(slot).collect(),
        }
    }
}

impl ObservedBackend {
    /// Whether some server is down that asks an agent: only where sessions are counted it is seen which of its checks
    /// holds it down.
    pub fn has_doubts(&self) -> bool {
        self.rows.iter().any(|row| {
            row.agent.is_enabled() && !row.admin.is_maint() && row.op_state == OpState::Stopped
        })
    }
}

fn observed_slot(row: &ServerRow, stat: Option<&StatRow>) -> ObservedSlot {
    let port = u16::try_from(row.port).unwrap_or_default();
    let admin = if row.admin.is_maint() {
        AdminState::Maint
    } else if row.admin.is_drain() {
        AdminState::Drain
    } else {
        AdminState::Ready
    };
    let agent = match (row.agent.is_configured(), row.agent.is_enabled()) {
        (false, _) => Agent::Absent,
        (true, true) => Agent::On,
        (true, false) => Agent::Off,
    };
    let health = match (row.check.is_configured(), row.check.is_enabled()) {
        (false, _) => Health::Unchecked,
        (true, false) => Health::Off,
        (true, true) if row.op_state == OpState::Stopped => Health::Down,
        (true, true) => Health::Up,
    };
    ObservedSlot {
        server: row.row.server.clone(),
        endpoint: row
            .address
            .and_then(|address| Endpoint::new(address, port).ok()),
        admin,
        sessions: stat.map_or(0, |stat| {
            stat.sessions.unwrap_or_default() + stat.queued.unwrap_or_default()
        }),
        agent,
        asking: row.agent.is_in_progress(),
        agent_down: stat.and_then(agent_down),
        health,
        checking: row.check.is_in_progress(),
        weight: row.uweight,
        configured_weight: row.iweight,
        check_port: row.check_port,
    }
}

/// `down`, `stopped` or `fail` leave a word that nothing else leaves.
fn agent_down(stat: &StatRow) -> Option<DownBy> {
    let answered = |stat: &StatRow| {
        stat.agent
            .as_ref()
            .is_some_and(|agent| agent.word == "L7STS")
    };
    match stat.agent_health {
        Some(0) if answered(stat) => Some(DownBy::Answer),
        Some(0) => Some(DownBy::Command),
        _ => None,
    }
}

/// How many instances a pool serves now: slots in rotation with an address of their own.
pub fn served(observed: &Observed) -> usize {
    observed
        .slots
        .iter()
        .filter(|slot| slot.in_rotation())
        .filter_map(|slot| slot.endpoint)
        .collect::<BTreeSet<_>>()
        .len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts() {
        assert_eq!(split("a\n\nb\nc\n\n", 2).unwrap(), ["a\n\n", "b\nc\n\n"]);
        assert!(split("a\n\nb\n", 2).is_err());
        assert!(split("a\n\nb\n\nc\n\n", 2).is_err());
    }
}
