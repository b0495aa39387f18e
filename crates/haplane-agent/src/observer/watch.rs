//! The loop of one socket: look, compare, remember, push. A socket that hangs delays only itself.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use haplane_core::resolve::Policy;
use haplane_daemon::logs::story;
use haplane_runtime::Socket;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::asked::{AskedRow, asked_rows};
use super::board::{Board, Numbers, Sighting, Trouble};
use super::look::{self, Look, LookError};
use super::memory::Memory;
use super::push::{Generation, Pusher, results};
use super::slots::{Fate, Slots};
use crate::metrics::Metrics;
use crate::readable::Readable;
use crate::rows::Rows;
use crate::served::Served;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Between two looks while a change is on its way into HAProxy, so that its arrival is known early.
const LOOK_QUICKLY: Duration = Duration::from_millis(250);
/// For how long after a change.
const QUICK_FOR: Duration = Duration::from_secs(15);
/// Between two readings of the numbers.
const NUMBERS_EVERY: Duration = Duration::from_secs(10);
/// The same after an admin state changed and while rows drain, because somebody waits for the last
/// session; and just after our own start, while HAProxy still says of every row that nobody answers.
const NUMBERS_QUICKLY: Duration = Duration::from_secs(2);
/// For how long after a change of the store. A drain that takes longer than that can also wait ten
/// seconds for its numbers.
const DRAIN_FOR: Duration = Duration::from_mins(10);
/// With push, how soon a restart of HAProxy has to be noticed.
const PULSE_EVERY: Duration = Duration::from_millis(250);

/// What the loop of one socket needs.
#[derive(Debug)]
pub struct HaproxyWatch {
    /// Its place on the board.
    pub index: usize,
    /// The socket.
    pub socket: Socket,
    /// Where to tell.
    pub board: Arc<Board>,
    /// What was asked.
    pub rows: Arc<Mutex<Rows>>,
    /// What is answered from.
    pub served: watch::Receiver<Served>,
    /// Which keys are truly absent where the snapshot has none.
    pub readable: Arc<Readable>,
    /// The site's choices.
    pub policy: Policy,
    /// The counters.
    pub metrics: Arc<Metrics>,
    /// The responder's port.
    pub port: u16,
    /// Sets changed rows, if the site wants that.
    pub pusher: Option<Pusher>,
}

/// Whether there are rows that do not ask and whose whereabouts are unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    Some,
    None,
}

/// When the loop does what.
struct Timing {
    look: Instant,
    numbers: Instant,
    quick_until: Instant,
    drains_until: Instant,
    started_until: Instant,
}

impl HaproxyWatch {
    /// Looks until stopped.
    pub async fn run(mut self, stop: CancellationToken) {
        let watch = async {
            let now = Instant::now();
            let mut timing = Timing {
                look: now,
                numbers: now,
                quick_until: now,
                drains_until: now,
                started_until: now + QUICK_FOR,
            };
            loop {
                self.turn(&mut timing).await;
                self.wait(&mut timing).await;
            }
        };
        stop.run_until_cancelled(watch).await;
    }

    /// Waits for the next look, a change of the store, or, with push, a restart of HAProxy.
    async fn wait(&mut self, timing: &mut Timing) {
        loop {
            let pulse = self.pusher.as_ref().map(|_| Instant::now() + PULSE_EVERY);
            let wake = pulse.map_or(timing.look, |pulse| pulse.min(timing.look));
            tokio::select! {
                () = sleep_until(wake) => {}
                Ok(()) = self.served.changed() => {
                    timing.quick_until = Instant::now() + QUICK_FOR;
                    timing.drains_until = Instant::now() + DRAIN_FOR;
                    return;
                }
            }
            if Instant::now() >= timing.look || self.is_another_process().await {
                return;
            }
        }
    }

    /// Whether another process answers than at the last look. No answer counts as no: the next look
    /// will report it.
    async fn is_another_process(&self) -> bool {
        let known = self.board.haproxy(self.index).and_then(|one| one.sighting);
        match (look::pulse(&self.socket).await, known) {
            (Ok(process), Some(known)) => !process.is(&known.process),
            (Ok(_), None) => true,
            (Err(_), _) => false,
        }
    }

    async fn turn(&mut self, timing: &mut Timing) {
        match look::look(&self.socket).await {
            Ok(look) => self.take(look, timing).await,
            Err(error) => self.failed(&error),
        }
        let now = Instant::now();
        let pause = if now < timing.quick_until {
            LOOK_QUICKLY
        } else {
            LOOK_EVERY
        };
        timing.look = now + pause;
    }

    fn failed(&self, error: &LookError) {
        let socket = self.socket.path().display();
        let (kind, what) = (error.kind(), story(error));
        self.metrics.haproxy_up(&socket.to_string(), false);
        self.board.note(self.index, |known| {
            if known.trouble.as_ref().is_none_or(|old| old.kind != kind) {
                tracing::warn!(%socket, kind, what, "cannot look at HAProxy");
            }
            let since = known
                .trouble
                .as_ref()
                .map_or_else(Timestamp::now, |old| old.since);
            known.trouble = Some(Trouble { since, kind, what });
        });
    }

    /// What a good look leads to.
    async fn take(&mut self, look: Look, timing: &mut Timing) {
        let known = self.board.haproxy(self.index);
        self.succeeded(known.as_ref().and_then(|known| known.trouble.as_ref()));
        let before = known.and_then(|known| known.sighting);
        let before = before.as_deref();
        let generation = self.generation(&look, before);
        if generation == Generation::New {
            timing.numbers = Instant::now();
            timing.quick_until = Instant::now() + QUICK_FOR;
        }
        let of_this_process = before.filter(|_| generation == Generation::Same);

        let served = self.served.borrow().clone();
        let asked = asked_rows(&self.rows, &served, self.policy, &self.readable, look.ended);
        let look = self.push(look, &asked, generation).await;
        let known = of_this_process.and_then(|before| before.numbers.clone());
        let numbers = self.numbers(&look, known, timing).await;
        let (memories, is_waiting) = self.remember(&look, &asked, &served, before, generation);
        if !is_waiting {
            timing.quick_until = Instant::now();
        }
        let sighting = Sighting {
            process: match of_this_process {
                Some(before) => look.process.since(&before.process),
                None => look.process,
            },
            at: look.at,
            looked: look.started,
            rows: look.rows,
            numbers,
            memories,
        };
        let somebody_waits = sighting.drains(&asked) && Instant::now() < timing.drains_until;
        let has_just_started = Instant::now() < timing.started_until;
        if somebody_waits || has_just_started || sighting.outruns_numbers() {
            timing.numbers = timing.numbers.min(Instant::now() + NUMBERS_QUICKLY);
        }
        self.board.note(self.index, |known| {
            known.sighting = Some(Arc::new(sighting));
            known.trouble = None;
        });
        if self.forget_gone(&asked) == Lost::Some {
            timing.numbers = timing.numbers.min(Instant::now() + NUMBERS_QUICKLY);
        }
    }

    fn succeeded(&self, trouble: Option<&Trouble>) {
        let socket = self.socket.path().display().to_string();
        self.metrics.haproxy_up(&socket, true);
        if let Some(trouble) = trouble {
            tracing::info!(socket, since = %trouble.since, "HAProxy can be looked at again");
        }
    }

    /// Whether HAProxy was restarted or reloaded since the last look; the first look cannot tell.
    fn generation(&self, look: &Look, before: Option<&Sighting>) -> Generation {
        let Some(before) = before.filter(|before| !look.process.is(&before.process)) else {
            return Generation::Same;
        };
        let socket = self.socket.path().display();
        let (old, new) = (before.process.pid, look.process.pid);
        tracing::info!(%socket, old, new, version = look.process.version, "HAProxy was restarted or reloaded");
        self.metrics.haproxy_restarted();
        self.board.ring_reload();
        Generation::New
    }

    /// Sets what has to be set, and looks again to see whether it is.
    async fn push(
        &mut self,
        look: Look,
        asked: &HashMap<Arc<str>, AskedRow>,
        generation: Generation,
    ) -> Look {
        let Some(pusher) = &mut self.pusher else {
            return look;
        };
        let wanted = pusher.wanted(asked, &look, generation);
        if wanted.is_empty() {
            return look;
        }
        let changes = pusher.push(&self.socket, &wanted).await;
        let after = look::look(&self.socket).await.ok();
        let (results, trouble) = results(&wanted, &changes, after.as_ref());
        for result in &results {
            self.metrics.pushed(*result);
        }
        let socket = self.socket.path().display();
        let rows = results.len();
        if let Some(trouble) = &trouble {
            tracing::warn!(%socket, rows, trouble, "pushed, not all of it");
        } else {
            tracing::info!(%socket, rows, "pushed");
        }
        self.board
            .note(self.index, |known| known.push_trouble = trouble);
        // After a push the earlier look is out of date; it is kept only where the same process cannot
        // be looked at again.
        match after {
            Some(after) if after.process.is(&look.process) => after,
            _ => look,
        }
    }

    /// The numbers: read again when it is time, else the known ones of this process.
    async fn numbers(
        &self,
        look: &Look,
        known: Option<Arc<Numbers>>,
        timing: &mut Timing,
    ) -> Option<Arc<Numbers>> {
        if Instant::now() < timing.numbers {
            return known;
        }
        timing.numbers = Instant::now() + NUMBERS_EVERY;
        let read = Instant::now();
        let stats = match look::stats(&self.socket).await {
            Ok(stats) => stats,
            Err(error) => {
                let socket = self.socket.path().display();
                tracing::warn!(%socket, error = story(&error), "cannot read HAProxy's statistics");
                return None;
            }
        };
        let admin = look.rows.iter();
        let admin = admin.map(|(row, seen)| (Arc::clone(row), seen.admin));
        Some(Arc::new(Numbers {
            read,
            stats,
            admin: admin.collect(),
        }))
    }

    /// Compares every row that asks with what HAProxy shows. Says whether a change is on its way.
    fn remember(
        &self,
        look: &Look,
        asked: &HashMap<Arc<str>, AskedRow>,
        served: &Served,
        before: Option<&Sighting>,
        generation: Generation,
    ) -> (HashMap<Arc<str>, Memory>, bool) {
        let mut is_waiting = false;
        // A change that is older than the last look came by itself: an `until=` that has passed.
        let changed = before.map_or(served.since, |before| served.since.max(before.looked));
        let mut remember = |(row, asked): (&Arc<str>, &AskedRow)| {
            let known = before.and_then(|before| before.memories.get(row)).copied();
            let Some(seen) = look.rows.get(row) else {
                // It was here once: see forget_gone.
                return known.map(|memory| (Arc::clone(row), memory));
            };
            let mut memory = match (known, generation) {
                (Some(memory), Generation::Same) => memory,
                (Some(memory), Generation::New) => memory.in_new_process(),
                (None, _) => Memory::first(asked, changed),
            };
            if let Some(took) = memory.look(asked, seen, changed, (look.started, look.ended)) {
                self.metrics.observed_after(took);
            }
            let differs = asked.due != asked.answer || seen.differs_from(asked.due).is_some();
            is_waiting |= differs && !asked.is_silent(look.ended);
            Some((Arc::clone(row), memory))
        };
        let memories = asked.iter().filter_map(&mut remember).collect();
        (memories, is_waiting)
    }

    /// Forgets rows that were removed: they do not ask, no HAProxy has them, and no slot can hold
    /// them. Says whether there are rows of which this is not known yet.
    fn forget_gone(&self, asked: &HashMap<Arc<str>, AskedRow>) -> Lost {
        let now = Instant::now();
        let is_lost = |(row, one): &(&Arc<str>, &AskedRow)| {
            one.is_silent(now) && !self.board.may_show(row, now)
        };
        let lost: Vec<_> = asked.iter().filter(is_lost).collect();
        if lost.is_empty() {
            return Lost::None;
        }
        let haproxies = self.board.haproxies();
        let asking = asked.iter().filter(|(_, one)| !one.is_silent(now));
        let asking = asking.map(|(row, _)| Arc::clone(row)).collect();
        let answering_for = self.board.answering_for(now);
        let slots = Slots::of(&haproxies, &asking, self.port, answering_for, now);
        let mut still = Lost::None;
        for (row, one) in lost {
            let had = haproxies.iter().any(|haproxy| haproxy.lost(row));
            let fate = || Some(slots.as_ref()?.fate(row, one.silent_since()));
            if !had && fate() != Some(Fate::Gone) {
                still = Lost::Some;
                continue;
            }
            let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
            if rows.forget_removed(row, now) {
                tracing::info!(%row, "HAProxy does not have this row any more");
            }
        }
        still
    }
}
