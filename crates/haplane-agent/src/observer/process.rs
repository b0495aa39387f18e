//! Which HAProxy process answers on a socket, and whether it is still the one of the last look.

use std::time::Duration;

use haplane_haproxy::show_info::ProcessInfo;
use tokio::time::Instant;

/// One process, as it was when somebody looked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// HAProxy's version.
    pub version: String,
    uptime: Duration,
    started_at: Option<u64>,
    born: Instant,
}

impl Process {
    /// What it said of itself at `looked`.
    pub fn new(info: ProcessInfo, looked: Instant) -> Self {
        Self {
            pid: info.pid,
            version: info.version,
            uptime: info.uptime,
            started_at: info.started_at,
            born: looked.checked_sub(info.uptime).unwrap_or(looked),
        }
    }

    /// Whether `before` is this process too. In a container every process has the same number, so
    /// the time of its start counts as well; HAProxy before 2.4 tells only its uptime.
    pub fn is(&self, before: &Self) -> bool {
        let same_start = match (self.started_at, before.started_at) {
            (Some(own), Some(other)) => own == other,
            _ => self.uptime >= before.uptime,
        };
        self.pid == before.pid && same_start
    }

    /// This look at the same process as `before`, whose age was known better.
    #[must_use]
    pub fn since(self, before: &Self) -> Self {
        Self {
            born: before.born,
            ..self
        }
    }

    /// How old it is at least: HAProxy tells its uptime in whole seconds.
    pub fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.born)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, uptime: u64, started_at: Option<u64>) -> Process {
        let info = ProcessInfo {
            version: "2.8.25".to_owned(),
            pid,
            uptime: Duration::from_secs(uptime),
            nbproc: 1,
            process_number: 1,
            nbthread: 2,
            node: None,
            description: None,
            stopping: false,
            connections: None,
            started_at,
        };
        Process::new(info, Instant::now())
    }

    #[tokio::test(start_paused = true)]
    async fn a_restart_is_told_by_pid_start_or_uptime() {
        for (before, after, same) in [
            (process(7, 60, Some(1)), process(7, 62, Some(1)), true),
            (process(7, 60, Some(1)), process(8, 0, Some(61)), false),
            (process(7, 60, Some(1)), process(7, 0, Some(61)), false),
            (process(7, 60, None), process(7, 62, None), true),
            (process(7, 60, None), process(7, 0, None), false),
        ] {
            assert_eq!(after.is(&before), same, "{before:?} {after:?}");
        }
    }
}
