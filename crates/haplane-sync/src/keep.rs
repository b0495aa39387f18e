//! The loop of one HAProxy: whatever happens in a turn, there is a next one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use haplane_core::slots::{Memory, Moment, Reason, Stage};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::board::{Board, PoolStatus};
use crate::hands::Repairs;
use crate::metrics::Metrics;
use crate::observe::ObserveError;
use crate::once::by_backend;
use crate::pool::Pool;
use crate::process::{Process, Round, RoundError, Taken};

/// The shortest pause between two looks while something is under way, and the longest.
const SOON: Duration = Duration::from_millis(2);
const LATER: Duration = Duration::from_secs(1);
/// A failure that goes on is said again this often.
const SAY_AGAIN: Duration = Duration::from_mins(1);

/// Keeps one HAProxy in line.
#[derive(Debug)]
pub struct Keeper {
    process: Process,
    board: Arc<Board>,
    metrics: Arc<Metrics>,
    /// What goes on being wrong, with the process as a whole (no pool) or with one pool.
    troubles: BTreeMap<(String, About), Trouble>,
    /// What was changed from outside and put right, by pool.
    repairs: BTreeMap<String, Repairs>,
    /// Up to which change of its list a pool was seen to have arrived.
    arrived: BTreeMap<String, Moment>,
    pause: Duration,
}

/// What a failure is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum About {
    /// Nothing could be decided: no answer, no list, no slots.
    Look,
    /// Steps were decided, and HAProxy did not take all of them.
    Steps,
    /// What is put right does not stay so.
    Hands,
}

/// A failure that goes on.
#[derive(Debug)]
struct Trouble {
    text: String,
    since: Instant,
    said: Instant,
    times: u64,
}

/// How a turn went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    /// Everything is as it should be.
    Calm,
    /// Something is on its way.
    UnderWay,
    /// Steps were taken: look at once.
    Acted,
}

impl Keeper {
    /// A keeper of this process.
    pub fn new(process: Process, board: Arc<Board>, metrics: Arc<Metrics>) -> Self {
        Self {
            process,
            board,
            metrics,
            troubles: BTreeMap::new(),
            repairs: BTreeMap::new(),
            arrived: BTreeMap::new(),
            pause: SOON,
        }
    }

    /// Runs until stopped: at every change of a list, while something is under way, and from time to time.
    pub async fn run(mut self, mut changed: watch::Receiver<u64>, stop: CancellationToken) {
        let backends = by_backend(&self.board.pools);
        loop {
            changed.mark_unchanged();
            let turn = self.turn(&backends).await;
            let now = self.board.clock.now();
            self.board
                .update(self.process.path(), |process| process.last_turn = now);
            let pause = self.next_pause(turn);
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
                _ = changed.changed() => {}
            }
        }
    }

    fn next_pause(&mut self, turn: Turn) -> Duration {
        let (pause, next) = match turn {
            Turn::Acted => (SOON, SOON),
            Turn::UnderWay => (self.pause, (self.pause * 2).min(LATER)),
            Turn::Calm => (self.board.reconcile, SOON),
        };
        self.pause = next;
        pause.min(self.board.reconcile)
    }

    async fn turn(&mut self, backends: &[Vec<Arc<Pool>>]) -> Turn {
        let socket = match self.process.socket().await {
            Ok(socket) => socket,
            Err(error) => {
                self.whole_process_failed(&error);
                return Turn::Calm;
            }
        };
        let mut turn = Turn::Calm;
        for pools in backends {
            let backend = match self.process.look(&socket, pools).await {
                Ok(backend) => backend,
                Err(RoundError::Observe(ObserveError::Stopping { .. })) => return Turn::UnderWay,
                Err(error) if is_about_the_socket(&error) => {
                    self.whole_process_failed(&error);
                    return Turn::Calm;
                }
                Err(error) => {
                    for pool in pools {
                        self.failed(&pool.settings.name, &error);
                    }
                    continue;
                }
            };
            self.board.update(self.process.path(), |process| {
                process.pid = Some(backend.process.pid);
                process.version.clone_from(&backend.version);
                process.error = None;
            });
            self.recovered("", About::Look);
            for pool in pools {
                let began = Instant::now();
                match self.process.round(&socket, &backend, pool).await {
                    Ok(round) => turn = turn.max(self.note(pool, &round, began)),
                    Err(error) => {
                        let waits = matches!(error, RoundError::NoList);
                        turn = turn.max(if waits { Turn::UnderWay } else { Turn::Calm });
                        self.failed(&pool.settings.name, &error);
                    }
                }
            }
        }
        turn
    }

    fn note(&mut self, pool: &Pool, round: &Round, began: Instant) -> Turn {
        let name = &pool.settings.name;
        let path = self.process.path().clone();
        if round.restarted {
            tracing::info!(socket = %path, pid = round.observed.process.pid, "another HAProxy process answers: a reload or a restart");
        }
        for taken in &round.taken {
            let step = &taken.planned.step;
            let instance = step.kind.instance().map(|instance| instance.id.as_str());
            let (kind, slot, why) = (
                step.kind.as_str(),
                step.slot.as_str(),
                taken.planned.reason.as_str(),
            );
            match &taken.trouble {
                Some(trouble) => {
                    tracing::debug!(pool = name, socket = %path, slot, instance, kind, why, trouble, "a step was not acknowledged; it will be taken again");
                }
                None if taken.planned.telling => {
                    tracing::info!(pool = name, socket = %path, slot, instance, kind, why, "step taken");
                }
                None => {
                    tracing::debug!(pool = name, socket = %path, slot, instance, kind, why, "step taken");
                }
            }
        }
        self.metrics.count(name, &round.taken, began.elapsed());
        let failing = self.process.memory(pool).is_some_and(Memory::is_failing);
        let went_well = !failing && round.taken.iter().all(|taken| taken.trouble.is_none());
        let at_rest = self.is_at_rest(pool, round);
        let first_trouble = round.taken.iter().find_map(|taken| {
            let step = &taken.planned.step;
            let trouble = taken.trouble.as_ref()?;
            Some(format!("{} {}: {trouble}", step.kind.as_str(), step.slot))
        });
        if let Some(trouble) = &first_trouble {
            self.say(name, About::Steps, trouble);
        } else if went_well {
            self.recovered(name, About::Steps);
        }
        let contested = self.note_repairs(name, round);
        let now = self.board.clock.now();
        let memory = self.process.memory(pool);
        self.board.update(&path, |process| {
            process.restarts += u64::from(round.restarted);
            let status = process.pools.entry(name.clone()).or_default();
            if let Some(memory) = memory {
                status.take(&round.observed, memory, &round.plan);
            }
            status.contested = contested;
            if went_well || first_trouble.is_some() {
                status.error = first_trouble;
            }
            // In line for the first time only once everybody is in; from then on, as long as steps are acknowledged.
            if went_well && (at_rest || status.last_success.is_some()) {
                status.last_success = Some(now);
            }
        });
        self.recovered(name, About::Look);
        self.note_arrival(pool, at_rest);
        match (
            round.taken.is_empty(),
            round.plan.under_way || !round.plan.is_empty(),
        ) {
            (false, _) if went_well => Turn::Acted,
            (_, true) => Turn::UnderWay,
            _ => Turn::Calm,
        }
    }

    /// A change by hand is put right and forgotten; that it happens again and again is said.
    fn note_repairs(&mut self, pool: &str, round: &Round) -> Option<usize> {
        let now = self.board.clock.now();
        let repairs = self.repairs.entry(pool.to_owned()).or_default();
        let repaired = |taken: &Taken| taken.planned.reason == Reason::ByHand;
        if round.taken.iter().any(repaired) {
            repairs.note(now);
        }
        let often = repairs.often(now);
        match often {
            Some(rounds) => self.say(
                pool,
                About::Hands,
                &format!("{rounds} times within ten minutes"),
            ),
            None => self.recovered(pool, About::Hands),
        }
        often
    }

    /// Nothing is left to do, and nobody is on the way in or waits for a slot that is about to be free.
    fn is_at_rest(&self, pool: &Pool, round: &Round) -> bool {
        let filling = self
            .process
            .memory(pool)
            .is_some_and(|memory| memory.slots().any(|(_, slot)| slot.stage == Stage::Filling));
        let waits = !round.plan.homeless.is_empty() && round.plan.under_way;
        round.plan.is_empty() && !filling && !waits
    }

    /// At rest, the last change of the list has arrived.
    fn note_arrival(&mut self, pool: &Pool, at_rest: bool) {
        let change = pool.standing().last_change;
        let arrived = self.arrived.entry(pool.settings.name.clone()).or_default();
        if at_rest && change > *arrived {
            *arrived = change;
            self.metrics.propagated(self.board.clock.ago(change));
        }
    }

    fn whole_process_failed(&mut self, error: &RoundError) {
        let text = story(error);
        self.board.update(self.process.path(), |process| {
            process.pid = None;
            process.error = Some(text.clone());
        });
        self.say("", About::Look, &text);
    }

    fn failed(&mut self, pool: &str, error: &RoundError) {
        let text = story(error);
        self.board.update(self.process.path(), |process| {
            process
                .pools
                .entry(pool.to_owned())
                .or_insert_with(PoolStatus::default)
                .error = Some(text.clone());
        });
        // A source that gives no list says so itself, once it has failed.
        if !matches!(error, RoundError::NoList) {
            self.say(pool, About::Look, &text);
        }
    }

    /// A failure is said when it begins, and then once a minute; one to look also when its cause changes. Steps that fail
    /// are taken again for ever, one slot after another.
    fn say(&mut self, pool: &str, about: About, text: &str) {
        let now = Instant::now();
        let socket = self.process.path().to_string();
        match self.troubles.get_mut(&(pool.to_owned(), about)) {
            Some(trouble) if trouble.text == text || about != About::Look => {
                trouble.times += 1;
                if now.duration_since(trouble.said) >= SAY_AGAIN {
                    trouble.said = now;
                    tracing::warn!(pool, socket, times = trouble.times, ?about, "still: {text}");
                }
            }
            _ => {
                match about {
                    About::Look => tracing::warn!(pool, socket, "{text}; slots stay as they are"),
                    About::Steps => tracing::warn!(
                        pool,
                        socket,
                        "not every step is acknowledged, those are taken again: {text}"
                    ),
                    About::Hands => tracing::warn!(
                        pool,
                        socket,
                        "the slots are changed from outside, and put right: {text}. Does another synchroniser, a script \
                         or a person work on them?"
                    ),
                }
                let trouble = Trouble {
                    text: text.to_owned(),
                    since: now,
                    said: now,
                    times: 1,
                };
                self.troubles.insert((pool.to_owned(), about), trouble);
            }
        }
    }

    fn recovered(&mut self, pool: &str, about: About) {
        if let Some(trouble) = self.troubles.remove(&(pool.to_owned(), about)) {
            let socket = self.process.path().to_string();
            tracing::info!(pool, socket, after = ?trouble.since.elapsed(), "well again");
        }
    }
}

fn is_about_the_socket(error: &RoundError) -> bool {
    matches!(error, RoundError::Observe(ObserveError::Socket(_)))
}

/// The whole story in one line.
fn story(error: &RoundError) -> String {
    let mut story = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        story = format!("{story}: {error}");
        cause = error.source();
    }
    story
}
