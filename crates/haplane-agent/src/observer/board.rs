//! What every HAProxy beside the agent showed last: written by one task for each socket, read by the
//! pages. Nothing here waits for a socket.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use haplane_core::verdict::{Past, Seen, Sight, Stat};
use haplane_haproxy::agent_check::Answer;
use haplane_haproxy::server_state::AdminBits;
use jiff::Timestamp;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::asked::AskedRow;
use super::look::Stats;
use super::memory::Memory;
use super::old_workers::OldWorkers;
use super::process::Process;

/// A look older than this says nothing about now: three more should have followed it.
const LOOK_LASTS: Duration = Duration::from_secs(8);

/// One HAProxy, as its socket shows it.
#[derive(Clone, Debug)]
pub struct Haproxy {
    /// The socket.
    pub socket: Arc<Path>,
    /// The last good look.
    pub sighting: Option<Arc<Sighting>>,
    /// What is wrong now.
    pub trouble: Option<Trouble>,
    /// Why rows could not be set through this socket, the last time that this was tried.
    pub push_trouble: Option<String>,
}

/// What is wrong with a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Since when.
    pub since: Timestamp,
    /// One word.
    pub kind: &'static str,
    /// What it is, and what to do.
    pub what: String,
}

/// What `show stat` said, beside the look before it.
#[derive(Debug)]
pub struct Numbers {
    /// Of every server.
    pub stats: Stats,
    /// When they were read.
    pub read: Instant,
    /// Its admin state when they were read.
    pub admin: HashMap<Arc<str>, AdminBits>,
}

/// What one look showed, with what was known before.
#[derive(Debug)]
pub struct Sighting {
    /// Which process.
    pub process: Process,
    /// When it was looked at.
    pub at: Timestamp,
    /// The same moment.
    pub looked: Instant,
    /// All its servers.
    pub rows: HashMap<Arc<str>, Seen>,
    /// Their numbers, read more rarely; none yet for a process that is new.
    pub numbers: Option<Arc<Numbers>>,
    /// Of the rows that ask.
    pub memories: HashMap<Arc<str>, Memory>,
}

impl Sighting {
    /// What a verdict on this answer needs to know of one row.
    pub fn sight(&self, row: &str, answer: Option<Answer>, now: Instant) -> Option<Sight<'_>> {
        let seen = self.rows.get(row)?;
        let past = match (answer, self.memories.get(row)) {
            (Some(answer), Some(memory)) => memory.past(answer, self.looked),
            _ => Past::default(),
        };
        Some(Sight {
            seen,
            stat: self.stat(row),
            looked_ago: now.saturating_duration_since(self.looked),
            process_age: self.process.age(now),
            past,
        })
    }

    /// The numbers of one row.
    pub fn stat(&self, row: &str) -> Option<&Stat> {
        self.numbers.as_ref()?.stats.get(row)
    }

    /// Whether the numbers are older than the admin state of any row.
    pub fn outruns_numbers(&self) -> bool {
        self.numbers.as_ref().is_none_or(|numbers| {
            let is_newer =
                |(row, seen): (&Arc<str>, &Seen)| numbers.admin.get(row) != Some(&seen.admin);
            self.rows.iter().any(is_newer)
        })
    }

    /// Whether any of the rows that ask drains and still has sessions.
    pub fn drains(&self, asked: &HashMap<Arc<str>, AskedRow>) -> bool {
        asked.keys().any(|row| {
            let is_draining = self.rows.get(row).is_some_and(|seen| seen.admin.is_drain());
            is_draining && self.sessions(row).is_none_or(|sessions| sessions > 0)
        })
    }

    /// The sessions of one row. They are not known until they were read after its admin state last
    /// changed: a row that was idle when it was drained may have got sessions in between.
    pub fn sessions(&self, row: &str) -> Option<u64> {
        let numbers = self.numbers.as_ref()?;
        let is_current = numbers.admin.get(row) == Some(&self.rows.get(row)?.admin);
        numbers.stats.get(row)?.sessions.filter(|_| is_current)
    }
}

impl Haproxy {
    /// Whether it had this row once, and does not have it any more.
    pub fn lost(&self, row: &str) -> bool {
        self.sighting.as_ref().is_some_and(|sighting| {
            sighting.memories.contains_key(row) && !sighting.rows.contains_key(row)
        })
    }

    /// The last look, if it still says something about now.
    pub fn present(&self, now: Instant) -> Option<&Arc<Sighting>> {
        let lasts =
            |sighting: &&Arc<Sighting>| now.saturating_duration_since(sighting.looked) < LOOK_LASTS;
        self.sighting.as_ref().filter(lasts)
    }

    /// Why there is no present look.
    pub fn absence(&self) -> String {
        let trouble = self.trouble.as_ref().map(|trouble| trouble.what.clone());
        trouble.unwrap_or_else(|| format!("{} has not been looked at yet", self.socket.display()))
    }
}

/// All of them.
#[derive(Debug, Default)]
pub struct Board {
    haproxies: Vec<Mutex<Haproxy>>,
    /// `None` without a master's socket.
    old_workers: Mutex<Option<Arc<OldWorkers>>>,
    /// Since when asks are answered.
    answering: OnceLock<Instant>,
    /// Rung when a new process was seen: its predecessor may have become an old worker.
    reloaded: Notify,
}

impl Board {
    /// Nothing seen yet behind these sockets.
    pub fn new(sockets: &[PathBuf]) -> Self {
        let haproxy = |socket: &PathBuf| {
            Mutex::new(Haproxy {
                socket: socket.as_path().into(),
                sighting: None,
                trouble: None,
                push_trouble: None,
            })
        };
        Self {
            haproxies: sockets.iter().map(haproxy).collect(),
            old_workers: Mutex::default(),
            answering: OnceLock::new(),
            reloaded: Notify::new(),
        }
    }

    /// From now on asks are answered.
    pub fn note_answering(&self) {
        self.answering.get_or_init(Instant::now);
    }

    /// For how long asks have been answered.
    pub fn answering_for(&self, now: Instant) -> Duration {
        let since = self.answering.get();
        since.map_or(Duration::ZERO, |since| {
            now.saturating_duration_since(*since)
        })
    }

    /// What is known of each HAProxy.
    pub fn haproxies(&self) -> Vec<Haproxy> {
        let known = |one: &Mutex<Haproxy>| lock(one).clone();
        self.haproxies.iter().map(known).collect()
    }

    /// What is known of one.
    pub fn haproxy(&self, index: usize) -> Option<Haproxy> {
        self.haproxies.get(index).map(|one| lock(one).clone())
    }

    /// Changes what is known of one.
    pub fn note(&self, index: usize, change: impl FnOnce(&mut Haproxy)) {
        if let Some(one) = self.haproxies.get(index) {
            change(&mut lock(one));
        }
    }

    /// Tells that a new process was seen.
    pub fn ring_reload(&self) {
        self.reloaded.notify_one();
    }

    /// Waits until a new process is seen.
    pub async fn reload(&self) {
        self.reloaded.notified().await;
    }

    /// What the old workers still hold.
    pub fn old_workers(&self) -> Option<Arc<OldWorkers>> {
        lock(&self.old_workers).clone()
    }

    /// Notes what the old workers still hold.
    pub fn note_old_workers(&self, old: OldWorkers) {
        *lock(&self.old_workers) = Some(Arc::new(old));
    }

    /// Whether any HAProxy shows this row, or may, because there is no present look at it.
    pub fn may_show(&self, row: &str, now: Instant) -> bool {
        self.haproxies.iter().any(|one| {
            let one = lock(one);
            one.present(now)
                .is_none_or(|sighting| sighting.rows.contains_key(row))
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
