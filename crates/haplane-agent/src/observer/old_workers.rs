//! What workers that finish after a reload still hold, row by row.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;

use super::look::Stats;

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
    /// Of nobody yet.
    pub(super) fn none(socket: PathBuf) -> Self {
        Self {
            socket,
            at: Timestamp::now(),
            trouble: None,
            workers: Vec::new(),
            by_row: HashMap::new(),
        }
    }

    /// The sessions that old workers hold on this row; `None` when that is not known.
    pub fn sessions(&self, row: &str) -> Option<u64> {
        let all_told = self.workers.iter().all(|(_, sessions)| sessions.is_some());
        (self.trouble.is_none() && all_told)
            .then(|| self.by_row.get(row).copied().unwrap_or_default())
    }

    /// Adds one worker's sessions; says how many there are.
    pub(super) fn add(&mut self, stats: Stats) -> u64 {
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
