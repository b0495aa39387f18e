//! What workers that finish after a reload still hold, row by row, through the master's socket.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use haplane_runtime::{Limits, Master, ProcessKind, Socket};
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::board::Board;
use super::look;

/// How often the master is asked while there is no old worker and nobody saw a reload.
const CALM: Duration = Duration::from_secs(10);
/// And while there is one, or while the master does not answer.
const BUSY: Duration = Duration::from_secs(2);
/// From the first answer of a new worker until the master has sorted its list.
const SETTLED: Duration = Duration::from_millis(500);
/// A box that reloads every second may have many; more than this are not counted.
const MOST: usize = 32;
/// Behind the master one worker that hangs must not take the time of all others.
const LIMITS: Limits = Limits {
    within: Duration::from_secs(1),
    ..look::LIMITS
};

/// One look at all old workers.
#[derive(Debug)]
pub struct OldWorkers {
    /// The master's socket.
    pub socket: PathBuf,
    /// When.
    pub at: Timestamp,
    /// Why they cannot be counted.
    pub trouble: Option<String>,
    /// Every old worker: its number, and its sessions if it told them.
    pub workers: Vec<(u32, Option<u64>)>,
    by_row: HashMap<Arc<str>, u64>,
}

impl OldWorkers {
    /// The sessions that old workers hold on this row; `None` when that is not known.
    pub fn sessions(&self, row: &str) -> Option<u64> {
        let all_told = self.workers.iter().all(|(_, sessions)| sessions.is_some());
        (self.trouble.is_none() && all_told)
            .then(|| self.by_row.get(row).copied().unwrap_or_default())
    }
}

/// Counts again and again until stopped.
pub async fn watch(master: PathBuf, board: Arc<Board>, stop: CancellationToken) {
    let count_always = async {
        loop {
            let old = count(&master).await;
            let is_calm = old.workers.is_empty() && old.trouble.is_none();
            let pause = if is_calm { CALM } else { BUSY };
            tell(board.old_workers().as_deref(), &old);
            board.note_old_workers(old);
            let reload = tokio::time::timeout(pause, board.reload()).await;
            if reload.is_ok() {
                // The master lists the old worker once the new one is ready, a moment later.
                tokio::time::sleep(SETTLED).await;
            }
        }
    };
    stop.run_until_cancelled(count_always).await;
}

fn tell(before: Option<&OldWorkers>, now: &OldWorkers) {
    let socket = now.socket.display();
    match (before.and_then(|old| old.trouble.as_ref()), &now.trouble) {
        (None, Some(trouble)) => {
            tracing::warn!(%socket, trouble, "cannot count the sessions of old workers");
        }
        (Some(_), None) => tracing::info!(%socket, "the sessions of old workers are counted again"),
        _ => {}
    }
}

async fn count(master: &PathBuf) -> OldWorkers {
    let mut old = OldWorkers {
        socket: master.clone(),
        at: Timestamp::now(),
        trouble: None,
        workers: Vec::new(),
        by_row: HashMap::new(),
    };
    let processes = match Master::new(master).processes().await {
        Ok(processes) => processes,
        Err(error) => {
            old.trouble = Some(error.to_string());
            return old;
        }
    };
    let workers = processes
        .iter()
        .filter(|process| process.kind == ProcessKind::OldWorker);
    for worker in workers {
        if old.workers.len() == MOST {
            old.trouble = Some(format!("more than {MOST} old workers"));
            break;
        }
        let socket = Socket::worker(master, worker.pid).with_limits(LIMITS);
        let sessions = match look::stats(&socket).await {
            Ok(stats) => Some(old.add(stats)),
            Err(error) => {
                tracing::debug!(pid = worker.pid, %error, "an old worker does not tell its sessions");
                None
            }
        };
        old.workers.push((worker.pid, sessions));
    }
    old
}

impl OldWorkers {
    /// Adds one worker's sessions; says how many there are.
    fn add(&mut self, stats: look::Stats) -> u64 {
        let mut all = 0;
        for (row, stat) in stats {
            let sessions = stat.sessions.unwrap_or_default();
            if sessions > 0 {
                all += sessions;
                *self.by_row.entry(row).or_default() += sessions;
            }
        }
        all
    }
}
