//! What is remembered of one process's slots between two looks at it. HAProxy shows neither what a slot's agent check
//! sends nor whom a slot is meant for; both are remembered here, and only what was acknowledged counts as known.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use haplane_haproxy::{AdminState, ServerName};

use super::model::{
    Agent, Endpoint, Instance, InstanceId, Moment, Observed, ObservedSlot, Opening, ProcessId,
    Wanted,
};
use super::plan::Plan;
use super::reason::Reason;
use super::step::{Kind, Step};
use super::words::{FREE, Words, share_in_force};

/// Where a slot is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// Seen for the first time in this process: nothing is remembered.
    Unknown,
    /// Out of rotation, quiet, and told that it is free.
    Free,
    /// An instance is being brought in.
    Filling,
    /// It serves an instance (in whatever admin state that one shall have).
    Active,
    /// Its instance left; sessions or an ask may still be under way.
    Draining,
    /// Seen quiet once after it left.
    Idle,
}

impl Stage {
    /// Every stage, for gauges.
    pub const ALL: [Self; 6] = [
        Self::Unknown,
        Self::Free,
        Self::Filling,
        Self::Active,
        Self::Draining,
        Self::Idle,
    ];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Free => "free",
            Self::Filling => "filling",
            Self::Active => "active",
            Self::Draining => "draining",
            Self::Idle => "idle",
        }
    }
}

/// What a slot's agent check sends, as far as we were told that it took it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// Not known.
    Unknown,
    /// That it is free.
    Free,
    /// The words of an instance.
    Words(Words),
}

/// What became of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every command was acknowledged.
    Done,
    /// Refused, cut off or never answered: some of it may have been done.
    Unsure,
}

/// One change of stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// When.
    pub at: Moment,
    /// Into which stage.
    pub stage: Stage,
    /// Who sits there, or sat there.
    pub instance: Option<InstanceId>,
    /// Why; none when HAProxy was simply found in this stage.
    pub reason: Option<Reason>,
}

impl Transition {
    /// What was done to the slot and why, in the past tense; none when nothing was.
    pub fn why(&self) -> Option<String> {
        let done = match self.stage {
            Stage::Filling => "filled",
            Stage::Active => "told again",
            Stage::Draining => "taken out",
            Stage::Unknown | Stage::Free | Stage::Idle => "changed",
        };
        let reason = self.reason?;
        if self.stage == Stage::Active && reason == Reason::Unfamiliar {
            return Some("found serving by a synchroniser that had not seen it before".to_owned());
        }
        Some(format!("{done} because {}", reason.past()))
    }
}

/// How many transitions of a slot are kept.
const HISTORY: usize = 8;

/// After a failed step on a slot the next one waits this long, doubled at each failure.
const FIRST_RETRY: Duration = Duration::from_millis(250);
const LAST_RETRY: Duration = Duration::from_secs(15);

/// What a slot sends is told again this often: somebody may have told it something else, and HAProxy does not show it.
const TELL_AGAIN: Duration = Duration::from_mins(1);

/// What is remembered of one slot.
#[derive(Clone, Debug)]
pub struct SlotMemory {
    /// Where it is in its life.
    pub stage: Stage,
    /// Since when.
    pub since: Moment,
    /// Who it is meant for, or was.
    pub occupant: Option<Instance>,
    /// What its agent check sends.
    pub told: Told,
    /// When it was told that.
    told_at: Moment,
    /// Whether the last step was acknowledged.
    pub(super) sure: bool,
    /// How a slot that is being filled was opened, once it was.
    pub(super) opened: Option<Opening>,
    /// How often in a row it was seen quiet since it left.
    quiet: u8,
    /// When its sessions were last cut.
    pub(super) cut_at: Option<Moment>,
    failures: u32,
    retry_at: Moment,
    /// The last transitions, oldest first.
    pub history: Arc<Vec<Transition>>,
}

impl SlotMemory {
    fn new(now: Moment) -> Self {
        Self {
            stage: Stage::Unknown,
            since: now,
            occupant: None,
            told: Told::Unknown,
            told_at: now,
            sure: true,
            opened: None,
            quiet: 0,
            cut_at: None,
            failures: 0,
            retry_at: Moment::default(),
            history: Arc::default(),
        }
    }

    /// Whether a step on this slot failed so recently that the next one waits.
    pub(super) fn waits(&self, now: Moment) -> bool {
        now < self.retry_at
    }

    /// What it was told so long ago that it is told again.
    pub(super) fn told_long_ago(&self, now: Moment) -> Option<String> {
        if now.since(self.told_at) < TELL_AGAIN {
            return None;
        }
        match &self.told {
            Told::Unknown => None,
            Told::Free => Some(FREE.to_owned()),
            Told::Words(words) => Some(words.to_string()),
        }
    }

    /// Where its occupant listens.
    pub(super) fn endpoint(&self) -> Option<Endpoint> {
        self.occupant.as_ref().map(|instance| instance.endpoint)
    }

    fn enter(&mut self, stage: Stage, reason: Option<Reason>, now: Moment) {
        // What was put right is told, although the slot is where it was.
        if self.stage == stage && reason != Some(Reason::ByHand) {
            return;
        }
        if self.stage != stage {
            self.stage = stage;
            self.since = now;
        }
        let instance = self.occupant.as_ref().map(|instance| instance.id.clone());
        // Shared with the pages, which keep the history as it was at their last look.
        let history = Arc::make_mut(&mut self.history);
        if history.len() == HISTORY {
            history.remove(0);
        }
        history.push(Transition {
            at: now,
            stage,
            instance,
            reason,
        });
    }

    fn forget(&mut self, now: Moment) {
        self.enter(Stage::Unknown, None, now);
        self.occupant = None;
        self.told = Told::Unknown;
        self.sure = true;
        self.opened = None;
        self.quiet = 0;
        self.cut_at = None;
    }

    /// Takes in what HAProxy shows of the slot now.
    fn see(&mut self, slot: &ObservedSlot, now: Moment) {
        match self.stage {
            Stage::Active if slot.endpoint != self.endpoint() => self.forget(now),
            Stage::Filling => self.see_filling(slot, now),
            Stage::Free if slot.sessions > 0 => {
                self.quiet = 0;
                self.enter(Stage::Draining, None, now);
            }
            Stage::Active | Stage::Free => {}
            Stage::Unknown if slot.agent != Agent::Absent => self.quiet = 0,
            Stage::Unknown | Stage::Draining | Stage::Idle => self.see_leaving(slot, now),
        }
    }

    /// An opened slot is active once it is seen in the state that it was opened with and no ask from before is under
    /// way; seen in maintenance instead, such an ask closed it, and it must be prepared again before the agent's next
    /// answer opens it unchecked.
    fn see_filling(&mut self, slot: &ObservedSlot, now: Moment) {
        let Some(opening) = self.opened else { return };
        let at_home = slot.endpoint == self.endpoint();
        if !at_home || (slot.admin == AdminState::Maint && opening.admin != AdminState::Maint) {
            self.opened = None;
            self.sure = false;
        } else if !slot.asking {
            self.enter(Stage::Active, None, now);
        }
    }

    /// Quiet twice in a row after it was told to leave: the first look ends an ask that was under way, the second one
    /// shows that it changed nothing.
    fn see_leaving(&mut self, slot: &ObservedSlot, now: Moment) {
        let told = slot.agent == Agent::Absent || self.told == Told::Free;
        self.quiet = if self.sure && told && slot.is_quiet() {
            self.quiet.saturating_add(1)
        } else {
            0
        };
        let stage = match self.quiet {
            0 if self.stage == Stage::Unknown => Stage::Unknown,
            0 => Stage::Draining,
            1 => Stage::Idle,
            _ => Stage::Free,
        };
        self.enter(stage, None, now);
        if stage == Stage::Free {
            self.occupant = None;
            self.opened = None;
        }
    }
}

/// What is remembered of one pool in one process.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    process: Option<ProcessId>,
    slots: BTreeMap<ServerName, SlotMemory>,
    waiting: BTreeMap<InstanceId, Moment>,
    troubles: BTreeMap<InstanceId, (u32, Moment)>,
}

impl Memory {
    /// What is remembered of one slot.
    pub fn slot(&self, server: &ServerName) -> Option<&SlotMemory> {
        self.slots.get(server)
    }

    /// All slots that are remembered.
    pub fn slots(&self) -> impl Iterator<Item = (&ServerName, &SlotMemory)> {
        self.slots.iter()
    }

    /// Whether the last step on some slot, or to bring some instance in, was not acknowledged. (A server that could
    /// not be added has no slot to tell it by.)
    pub fn is_failing(&self) -> bool {
        !self.troubles.is_empty() || self.slots.values().any(|slot| slot.failures > 0)
    }

    /// The words of every slot that follows the responder, and the state that this came to by now.
    pub fn followed<'a>(
        &'a self,
        observed: &'a Observed,
    ) -> impl Iterator<Item = (&'a Words, Opening)> {
        observed.slots.iter().filter_map(|slot| {
            let memory = self.slots.get(&slot.server)?;
            let Told::Words(words) = &memory.told else {
                return None;
            };
            let follows = memory.stage == Stage::Active && slot.agent == Agent::On && !slot.asking;
            let opening = Opening {
                admin: slot.admin,
                weight: share_in_force(slot.weight, slot.configured_weight),
            };
            follows.then_some((words, opening))
        })
    }

    /// Since when an instance has been without a slot.
    pub(crate) fn waiting_since(&self, id: &InstanceId) -> Option<Moment> {
        self.waiting.get(id).copied()
    }

    /// Whether bringing this instance in failed so recently that it waits.
    pub(super) fn in_trouble(&self, id: &InstanceId, now: Moment) -> bool {
        self.troubles
            .get(id)
            .is_some_and(|(_, retry_at)| now < *retry_at)
    }

    /// Takes in one complete observation. Another process than last time has forgotten everything, so it is all
    /// forgotten here too. Returns whether it was another one.
    pub fn see(&mut self, observed: &Observed, now: Moment) -> bool {
        let restarted = self
            .process
            .is_some_and(|process| process != observed.process);
        if restarted {
            for slot in self.slots.values_mut() {
                slot.forget(now);
            }
        }
        self.process = Some(observed.process);
        let there: BTreeMap<_, _> = observed
            .slots
            .iter()
            .map(|slot| (&slot.server, slot))
            .collect();
        self.slots.retain(|server, _| there.contains_key(server));
        for slot in &observed.slots {
            self.slots
                .entry(slot.server.clone())
                .or_insert_with(|| SlotMemory::new(now))
                .see(slot, now);
        }
        restarted
    }

    /// Notes who is without a slot, so that whoever waits longest is served first. An instance that is tried again
    /// keeps its place and its count of failures until it is in, or no longer wanted.
    pub fn note_waiting(&mut self, plan: &Plan, wanted: &Wanted, now: Moment) {
        let before = std::mem::take(&mut self.waiting);
        let wanted: BTreeSet<_> = wanted.serve.iter().map(|instance| &instance.id).collect();
        self.troubles.retain(|id, _| wanted.contains(id));
        let tried = self.troubles.keys();
        self.waiting = plan
            .without_a_slot()
            .chain(tried)
            .map(|id| (id.clone(), before.get(id).copied().unwrap_or(now)))
            .collect();
    }

    /// Before a step is taken: from now on until it is acknowledged, nothing about the slot is certain.
    pub fn begin(&mut self, step: &Step, reason: Reason, now: Moment) {
        let slot = self
            .slots
            .entry(step.slot.clone())
            .or_insert_with(|| SlotMemory::new(now));
        // Cut off or not, it then sends what it was told before, or the same.
        slot.sure &= matches!(step.kind, Kind::Say { .. });
        match &step.kind {
            Kind::Retire { .. } => {
                slot.told = Told::Unknown;
                slot.quiet = 0;
                slot.opened = None;
                slot.cut_at = None;
                slot.enter(Stage::Draining, Some(reason), now);
            }
            Kind::Cut => slot.cut_at = Some(now),
            Kind::Delete | Kind::Say { .. } => {}
            Kind::Prepare { instance, .. } | Kind::Add { instance, .. } => {
                slot.occupant = Some(instance.clone());
                slot.opened = None;
                slot.quiet = 0;
                slot.enter(Stage::Filling, Some(reason), now);
            }
            Kind::Restate {
                instance, words, ..
            } => {
                slot.occupant = Some(instance.clone());
                if words.is_some() {
                    slot.told = Told::Unknown;
                }
                slot.enter(Stage::Active, Some(reason), now);
            }
            Kind::Open { .. } => {
                slot.opened = None;
                slot.told = Told::Unknown;
            }
        }
    }

    /// After a step was taken, with the opening that it was taken with.
    pub fn end(&mut self, step: &Step, outcome: Outcome, opening: Opening, now: Moment) {
        let Some(slot) = self.slots.get_mut(&step.slot) else {
            return;
        };
        if outcome == Outcome::Unsure {
            slot.failures = slot.failures.saturating_add(1);
            slot.retry_at = now + retry_after(slot.failures);
            if let (true, Some(instance)) = (step.kind.fills(), step.kind.instance()) {
                let trouble = self.troubles.entry(instance.id.clone()).or_default();
                trouble.0 = trouble.0.saturating_add(1);
                trouble.1 = now + retry_after(trouble.0);
            }
            return;
        }
        slot.failures = 0;
        slot.sure = true;
        slot.told_at = now;
        match &step.kind {
            Kind::Retire { .. } => slot.told = Told::Free,
            Kind::Restate {
                words: Some(words), ..
            } => slot.told = Told::Words(words.clone()),
            Kind::Open {
                instance, words, ..
            } => {
                self.troubles.remove(&instance.id);
                slot.opened = Some(opening);
                slot.told = words.clone().map_or(Told::Unknown, Told::Words);
            }
            _ => {}
        }
    }
}

fn retry_after(failures: u32) -> Duration {
    FIRST_RETRY
        .saturating_mul(1 << failures.saturating_sub(1).min(10))
        .min(LAST_RETRY)
}
