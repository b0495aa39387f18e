//! One look at one HAProxy: whole and understood, or an error that says what is wrong.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use haplane_core::verdict::{Seen, Stat};
use haplane_haproxy::server_state::{self, StateError};
use haplane_haproxy::show_info::{self, InfoError, ProcessInfo};
use haplane_haproxy::stat_csv::{self, StatError, StatKind};
use haplane_runtime::{Limits, Socket, SocketError};
use jiff::Timestamp;
use tokio::time::Instant;

use super::process::Process;
use crate::rows::MAX_ROWS;

/// The bounds of one question. 50,000 rows of `show stat` are some 50 MB.
pub const LIMITS: Limits = Limits {
    within: Duration::from_secs(2),
    bytes: 64 << 20,
};

/// Why there is nothing to see.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    /// No answer.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// Something else than HAProxy answers, or another HAProxy than we know.
    #[error("{socket} does not answer as HAProxy does: {what}")]
    Garbage {
        /// The socket.
        socket: String,
        /// What is not understood.
        what: String,
    },
    /// More rows than are kept.
    #[error("{socket} shows {rows} rows, more than {MAX_ROWS}")]
    TooManyRows {
        /// The socket.
        socket: String,
        /// How many.
        rows: usize,
    },
}

impl LookError {
    /// One word for it.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Socket(error) => error.kind(),
            Self::Garbage { .. } => "garbage",
            Self::TooManyRows { .. } => "too-many-rows",
        }
    }

    fn garbage(socket: &Socket, what: &dyn std::fmt::Display) -> Self {
        Self::Garbage {
            socket: socket.path().display().to_string(),
            what: what.to_string(),
        }
    }
}

/// What one process showed at one moment.
#[derive(Debug)]
pub struct Look {
    /// Which process.
    pub process: Process,
    /// All its servers.
    pub rows: HashMap<Arc<str>, Seen>,
    /// When the question was sent.
    pub started: Instant,
    /// The same moment for people.
    pub at: Timestamp,
    /// When the answer was there.
    pub ended: Instant,
}

/// Asks for the process and its servers in one go, so that both are of the same process.
pub async fn look(socket: &Socket) -> Result<Look, LookError> {
    let (started, at) = (Instant::now(), Timestamp::now());
    let answer = socket.ask("show info;show servers state").await?;
    let ended = Instant::now();
    let garbage = |what: &dyn std::fmt::Display| LookError::garbage(socket, what);
    let (info, state) = answer
        .split_once("\n\n")
        .ok_or_else(|| garbage(&InfoError::CutShort))?;
    let info = show_info::read(&format!("{info}\n\n")).map_err(|error| garbage(&error))?;
    let rows = server_state::read_answer(state).map_err(|error: StateError| garbage(&error))?;
    if rows.len() > MAX_ROWS {
        return Err(LookError::TooManyRows {
            socket: socket.path().display().to_string(),
            rows: rows.len(),
        });
    }
    Ok(Look {
        process: Process::new(info, started),
        rows: rows
            .iter()
            .map(|row| (row.row.to_string().into(), Seen::from(row)))
            .collect(),
        started,
        at,
        ended,
    })
}

/// Asks only which process answers.
pub async fn pulse(socket: &Socket) -> Result<Process, LookError> {
    let started = Instant::now();
    let answer = socket.ask("show info").await?;
    let info: Result<ProcessInfo, InfoError> = show_info::read(&answer);
    let info = info.map_err(|error| LookError::garbage(socket, &error))?;
    Ok(Process::new(info, started))
}

/// Numbers of all servers.
pub type Stats = HashMap<Arc<str>, Stat>;

/// Asks for the numbers of all servers, and of nothing else.
pub async fn stats(socket: &Socket) -> Result<Stats, LookError> {
    let answer = socket.ask("show stat -1 4 -1").await?;
    let rows =
        stat_csv::read(&answer).map_err(|error: StatError| LookError::garbage(socket, &error))?;
    let servers = rows.into_iter().filter(|row| row.kind == StatKind::Server);
    Ok(servers
        .filter_map(|row| Some((row.row.as_ref()?.to_string().into(), row.into())))
        .collect())
}
