//! Counts what old workers still hold, again and again, through the master's socket.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use haplane_runtime::{Limits, Master, ProcessKind, Socket};
use tokio_util::sync::CancellationToken;

use super::board::Board;
use super::look;
use super::old_workers::OldWorkers;

/// How often the master is asked while there is no old worker and nobody saw a reload.
const CALM: Duration = Duration::from_secs(10);
/// How often while there is one, or while the master does not answer.
const BUSY: Duration = Duration::from_secs(2);
/// How long the master takes to list the old worker as old, once the new one answers.
const SETTLED: Duration = Duration::from_millis(500);
/// The most old workers that are counted: a machine that reloads every second may have many.
const MOST: usize = 32;
/// A worker behind the master that hangs must not use up the time of all the others.
const LIMITS: Limits = Limits {
    within: Duration::from_secs(1),
    ..look::LIMITS
};

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
    let mut old = OldWorkers::none(master.clone());
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
