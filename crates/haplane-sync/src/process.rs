//! One HAProxy: look, plan, take the steps, and look again. Nothing of one process waits for another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use haplane_core::slots::world::{Foreseen, foresee};
use haplane_core::slots::{
    Answers, Instance, Memory, Moment, Observed, Opening, Outcome, Plan, Planned, Wanted, Words,
    doubtful, plan,
};
use haplane_haproxy::BackendName;
use haplane_haproxy::runtime_cmd::{Action, Command};
use haplane_runtime::{Change, Master, MasterError, Socket};

use crate::clock::Clock;
use crate::observe::{ObserveError, ObservedBackend, Sessions, observe, served};
use crate::pool::Pool;
use crate::responder::{Leave, Responder};
use crate::settings::SocketPath;

/// Why a round could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RoundError {
    /// The process could not be looked at.
    #[error(transparent)]
    Observe(#[from] ObserveError),
    /// The master has no worker to look at.
    #[error(transparent)]
    Master(#[from] MasterError),
    /// There is no list to keep slots in line with yet.
    #[error("the source has not given a list yet")]
    NoList,
    /// Steps kept failing, or a slot never got where it was to go.
    #[error("not everything came to rest in time; what is left is in the last steps")]
    NotSettled,
    /// The backend has no slot of this pool.
    #[error(
        "the backend {backend} has no server named {prefix}N: is the server-template line there?"
    )]
    NoSlots {
        /// The backend.
        backend: BackendName,
        /// The prefix.
        prefix: String,
    },
}

impl RoundError {
    /// HAProxy answers, and what is configured here is not there.
    pub const fn is_about_the_configuration(&self) -> bool {
        matches!(
            self,
            Self::NoSlots { .. } | Self::Observe(ObserveError::NoBackend { .. })
        )
    }
}

/// What one round of one pool came to.
#[derive(Clone, Debug)]
pub struct Round {
    /// What was seen before the steps.
    pub observed: Observed,
    /// What was planned.
    pub plan: Plan,
    /// What became of each step, in the plan's order.
    pub taken: Vec<Taken>,
    /// Another process answered than the time before.
    pub restarted: bool,
}

/// A step that was taken.
#[derive(Clone, Debug)]
pub struct Taken {
    /// The step and its reason.
    pub planned: Planned,
    /// What HAProxy said; none when it did it.
    pub trouble: Option<String>,
}

/// One HAProxy and what is remembered of it.
#[derive(Debug)]
pub struct Process {
    path: SocketPath,
    responder: Arc<Responder>,
    clock: Clock,
    memories: BTreeMap<String, Memory>,
    /// Backends of which the last look left it open which check holds a server down.
    doubted: BTreeSet<BackendName>,
}

impl Process {
    /// The HAProxy behind a socket; nothing is remembered of it.
    pub fn new(path: SocketPath, responder: Arc<Responder>, clock: Clock) -> Self {
        Self {
            path,
            responder,
            clock,
            memories: BTreeMap::new(),
            doubted: BTreeSet::new(),
        }
    }

    /// Where it is.
    pub const fn path(&self) -> &SocketPath {
        &self.path
    }

    /// Now, on the clock of this process.
    pub fn now(&self) -> Moment {
        self.clock.now()
    }

    /// What is remembered of a pool's slots.
    pub fn memory(&self, pool: &Pool) -> Option<&Memory> {
        self.memories.get(&pool.settings.name)
    }

    /// The socket of the process that takes connections now.
    pub async fn socket(&self) -> Result<Socket, RoundError> {
        match &self.path {
            SocketPath::Process(path) => Ok(Socket::new(path)),
            SocketPath::Master(path) => Ok(Master::new(path).current_worker().await?),
        }
    }

    /// Looks at a backend.
    pub async fn look(
        &mut self,
        socket: &Socket,
        pools: &[Arc<Pool>],
    ) -> Result<ObservedBackend, RoundError> {
        let needed = |pool: &Arc<Pool>| self.memory(pool).map_or(Sessions::Count, Sessions::needed);
        let backend = pools.first().map(|pool| &pool.settings.policy.backend);
        let Some(backend) = backend else {
            return Err(RoundError::NoList);
        };
        let some_need_it = pools.iter().any(|pool| needed(pool) == Sessions::Count);
        let sessions = if some_need_it || self.doubted.contains(backend) {
            Sessions::Count
        } else {
            Sessions::Skip
        };
        let seen = observe(socket, backend, sessions).await?;
        if seen.has_doubts() {
            self.doubted.insert(backend.clone());
        } else {
            self.doubted.remove(backend);
        }
        Ok(seen)
    }

    /// One round of one pool of the backend that was looked at.
    pub async fn round(
        &mut self,
        socket: &Socket,
        backend: &ObservedBackend,
        pool: &Pool,
    ) -> Result<Round, RoundError> {
        let now = self.clock.now();
        let (observed, wanted) = self.prepare(backend, pool, now)?;
        let memory = self.memories.entry(pool.settings.name.clone()).or_default();
        let restarted = memory.see(&observed, now);
        for (words, opening) in memory.followed(&observed) {
            self.responder.saw(words, opening);
        }
        let answers = self.answers(&observed, &wanted, pool, now).await;
        let memory = self.memories.entry(pool.settings.name.clone()).or_default();
        let plan = plan(
            &observed,
            &wanted,
            &pool.settings.policy,
            memory,
            &answers,
            now,
        );
        memory.note_waiting(&plan, &wanted, now);
        let taken = self.take(socket, pool, &plan).await;
        Ok(Round {
            observed,
            plan,
            taken,
            restarted,
        })
    }

    /// What a round would come to in the end, without touching anything.
    pub async fn foresee(
        &self,
        backend: &ObservedBackend,
        pool: &Pool,
    ) -> Result<Foreseen, RoundError> {
        let now = self.clock.now();
        let (observed, wanted) = self.prepare(backend, pool, now)?;
        let mut memory = self.memory(pool).cloned().unwrap_or_default();
        memory.see(&observed, now);
        let answers = self
            .ask_about(doubtful(&observed, &wanted, &memory), &observed, pool, now)
            .await;
        Ok(foresee(
            &observed,
            &wanted,
            &pool.settings.policy,
            &memory,
            &answers,
            now,
        ))
    }

    /// What is there and what is wanted.
    fn prepare(
        &self,
        backend: &ObservedBackend,
        pool: &Pool,
        now: Moment,
    ) -> Result<(Observed, Wanted), RoundError> {
        let observed = backend.of(&pool.settings);
        pool.learn_baseline(&self.path, served(&observed), now);
        if observed.slots.is_empty()
            && pool.settings.policy.mode == haplane_core::slots::Mode::Slots
        {
            return Err(RoundError::NoSlots {
                backend: pool.settings.policy.backend.clone(),
                prefix: pool.settings.prefix.clone(),
            });
        }
        let wanted = pool.wanted(now).ok_or(RoundError::NoList)?;
        Ok((observed, wanted))
    }

    async fn answers(
        &self,
        observed: &Observed,
        wanted: &Wanted,
        pool: &Pool,
        now: Moment,
    ) -> Answers {
        let Some(memory) = self.memory(pool) else {
            return Answers::new();
        };
        self.ask_about(doubtful(observed, wanted, memory), observed, pool, now)
            .await
    }

    /// Asks about instances whose slot is in maintenance; a responder that is away does not end what it said of them.
    async fn ask_about(
        &self,
        instances: Vec<Instance>,
        observed: &Observed,
        pool: &Pool,
        now: Moment,
    ) -> Answers {
        let weight = observed
            .slots
            .first()
            .map_or(100, |slot| slot.configured_weight);
        let words = |instance: &Instance| Words::of(instance, &pool.settings.policy, weight).ok();
        let asked: Vec<_> = instances
            .iter()
            .filter_map(|instance| Some((instance.endpoint, words(instance)?)))
            .collect();
        let every: Vec<Words> = asked.iter().map(|(_, words)| words.clone()).collect();
        for words in &every {
            self.responder.saw_perhaps(words, Opening::KEPT_OUT);
        }
        let answers = self.responder.ask(every, now).await;
        let answered = |words: &Words| match answers.get(words) {
            Some(Leave::Open(opening)) => Some(*opening),
            Some(Leave::Wait) | None => None,
        };
        asked
            .iter()
            .filter_map(|(endpoint, words)| Some((*endpoint, answered(words)?)))
            .collect()
    }

    /// Takes the steps of a plan, all of them in as few connections as they fit into.
    async fn take(&mut self, socket: &Socket, pool: &Pool, plan: &Plan) -> Vec<Taken> {
        let now = self.clock.now();
        let asks: BTreeSet<Words> = plan
            .steps()
            .filter_map(|planned| planned.step.kind.asks().cloned())
            .collect();
        let answers = self.responder.ask(asks.into_iter().collect(), now).await;
        let memory = self.memories.entry(pool.settings.name.clone()).or_default();
        let mut steps = Vec::new();
        for planned in plan.steps() {
            let answer = planned
                .step
                .kind
                .asks()
                .and_then(|words| answers.get(words));
            let opening = match answer {
                Some(Leave::Open(opening)) => *opening,
                // A slot waits for the responder; words for a slot in rotation need not.
                Some(Leave::Wait) if planned.step.kind.fills() => continue,
                Some(Leave::Wait) | None => Opening::READY,
            };
            memory.begin(&planned.step, planned.reason, now);
            steps.push((planned, opening));
        }
        let backend = &pool.settings.policy.backend;
        // Weights are sent apart from their steps: a static balance algorithm refuses them, and that must not
        // keep an instance out.
        let mut groups = Vec::new();
        let mut mains = Vec::new();
        for (planned, opening) in &steps {
            let commands = planned.step.commands(backend, *opening);
            let (weights, rest): (Vec<_>, Vec<_>) = commands.into_iter().partition(is_weight);
            let alone = rest.is_empty();
            groups.extend([weights, rest]);
            mains.push(groups.len() - if alone { 2 } else { 1 });
        }
        let changes = socket.change(&groups).await;
        let now = self.clock.now();
        let mut taken = Vec::with_capacity(steps.len());
        for ((planned, opening), main) in steps.into_iter().zip(mains) {
            let (outcome, trouble) = match changes.get(main) {
                Some(Change::Done) | None => (Outcome::Done, None),
                Some(Change::Refused(why) | Change::Unknown(why)) => {
                    (Outcome::Unsure, Some(why.clone()))
                }
            };
            memory.end(&planned.step, outcome, opening, now);
            taken.push(Taken {
                planned: planned.clone(),
                trouble,
            });
        }
        taken
    }
}

fn is_weight(command: &Command) -> bool {
    matches!(command.action, Action::Weight(_))
}
