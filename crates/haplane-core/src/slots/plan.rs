//! The planner: what to do next about every slot of one pool in one process, and why.

use std::collections::{BTreeMap, BTreeSet};

use haplane_haproxy::{AdminState, Percent, ServerName};

use super::memory::{Memory, SlotMemory, Stage, Told};
use super::model::{
    Agent, Answers, ByHand, CheckPort, DownBy, Endpoint, Health, Instance, InstanceId, Mode,
    Moment, Observed, ObservedSlot, Policy, Removal, Wanted,
};
use super::reason::Reason;
use super::step::{Kind, Step};
use super::words::{Words, share_of_weight, weight_in_force};

mod placing;

/// A step and why it is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// What to do.
    pub step: Step,
    /// Why.
    pub reason: Reason,
    /// Whether it changes anything that is worth telling: a slot that is told again what it sends already stays as it
    /// is, and opening is the second half of filling.
    pub telling: bool,
}

/// An instance for which there is no free slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Homeless {
    /// Who.
    pub instance: Instance,
    /// Since when.
    pub since: Moment,
}

/// What to do next. Empty when everything is as it should be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Steps that make room. They are taken first.
    pub frees: Vec<Planned>,
    /// Steps about slots that keep their instance.
    pub restates: Vec<Planned>,
    /// Steps that bring instances in.
    pub fills: Vec<Planned>,
    /// Who does not fit, longest waiting first.
    pub homeless: Vec<Homeless>,
    /// Who could have a slot but comes and goes too often.
    pub damped: Vec<Instance>,
    /// Who is kept out because its backend and id are too long for a key, or its slots keep failing.
    pub refused: Vec<Instance>,
    /// Slots that a person changed and that are left as they are.
    pub by_hand: Vec<ServerName>,
    /// A slot is on its way: look again soon even without steps.
    pub under_way: bool,
}

impl Plan {
    /// All steps in the order in which they are taken: room is made before it is used.
    pub fn steps(&self) -> impl Iterator<Item = &Planned> {
        self.frees.iter().chain(&self.restates).chain(&self.fills)
    }

    /// Everybody who has no slot, for whatever reason.
    pub(crate) fn without_a_slot(&self) -> impl Iterator<Item = &InstanceId> {
        let homeless = self.homeless.iter().map(|homeless| &homeless.instance);
        homeless
            .chain(&self.damped)
            .chain(&self.refused)
            .map(|instance| &instance.id)
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.steps().next().is_none()
    }
}

/// The instances whose slot is seen in maintenance at their address while nothing is remembered of it: left there when
/// it was freed, or in maintenance because that is desired? Ask the responder and give [`plan`] its answers.
pub fn doubtful(observed: &Observed, wanted: &Wanted, memory: &Memory) -> Vec<Instance> {
    let by_endpoint: BTreeMap<_, _> = wanted.serve.iter().map(|i| (i.endpoint, i)).collect();
    let unknown = |slot: &&ObservedSlot| {
        may_be_kept_out(slot)
            && memory
                .slot(&slot.server)
                .is_none_or(|slot| slot.stage == Stage::Unknown)
    };
    let at_home = |slot: &ObservedSlot| {
        slot.endpoint
            .and_then(|endpoint| by_endpoint.get(&endpoint))
    };
    observed
        .slots
        .iter()
        .filter(unknown)
        .filter_map(at_home)
        .map(|i| (*i).clone())
        .collect()
}

/// Decides what to do next about the slots of one pool in one process. `memory` must have seen `observed`.
pub fn plan(
    observed: &Observed,
    wanted: &Wanted,
    policy: &Policy,
    memory: &Memory,
    answers: &Answers,
    now: Moment,
) -> Plan {
    let mut planner = Planner {
        wanted,
        policy,
        memory,
        answers,
        now,
        by_endpoint: wanted
            .serve
            .iter()
            .map(|instance| (instance.endpoint, instance))
            .collect(),
        taken: BTreeSet::new(),
        free: Vec::new(),
        leaving: Vec::new(),
        may_give_way: Vec::new(),
        soon_free: 0,
        plan: Plan::default(),
    };
    planner.look_at_slots(observed);
    planner.place_the_rest(observed);
    planner.plan
}

struct Planner<'a> {
    wanted: &'a Wanted,
    policy: &'a Policy,
    memory: &'a Memory,
    answers: &'a Answers,
    now: Moment,
    by_endpoint: BTreeMap<Endpoint, &'a Instance>,
    /// Addresses that a slot serves or is being filled with.
    taken: BTreeSet<Endpoint>,
    /// Slots that any instance can have now.
    free: Vec<&'a ObservedSlot>,
    /// Slots that only the instance that left them can have again: it need not wait for its own sessions.
    leaving: Vec<&'a ObservedSlot>,
    /// Slots of instances that a held list lacks and that HAProxy finds down.
    may_give_way: Vec<&'a ObservedSlot>,
    /// Slots on their way to being free.
    soon_free: usize,
    plan: Plan,
}

impl<'a> Planner<'a> {
    /// Whoever has a slot keeps it: those in rotation choose first, so that of two slots with one address the one that
    /// serves stays.
    fn look_at_slots(&mut self, observed: &'a Observed) {
        let rank =
            |slot: &ObservedSlot| match self.memory.slot(&slot.server).map(|memory| memory.stage) {
                Some(Stage::Active) => (0, !slot.in_rotation()),
                Some(Stage::Filling) => (1, !slot.in_rotation()),
                _ => (2, !slot.in_rotation()),
            };
        let mut slots: Vec<_> = observed.slots.iter().collect();
        slots.sort_by_key(|slot| rank(slot));
        for slot in slots {
            if let Some(memory) = self.memory.slot(&slot.server) {
                self.look_at(slot, memory);
            }
        }
    }

    fn look_at(&mut self, slot: &'a ObservedSlot, memory: &'a SlotMemory) {
        if memory.waits(self.now) {
            // Its endpoint stays taken, so that no other slot gets it meanwhile.
            let is_home = matches!(memory.stage, Stage::Active | Stage::Filling);
            self.taken.extend(memory.endpoint().filter(|_| is_home));
            self.plan.under_way = true;
            return;
        }
        match memory.stage {
            Stage::Active => self.look_at_active(slot, memory),
            Stage::Filling => self.look_at_filling(slot, memory),
            Stage::Unknown => self.look_at_unknown(slot),
            Stage::Free => self.look_at_free(slot, memory),
            Stage::Draining | Stage::Idle => self.look_at_leaving(slot, memory),
        }
    }

    fn look_at_active(&mut self, slot: &'a ObservedSlot, memory: &SlotMemory) {
        let Some(occupant) = &memory.occupant else {
            return;
        };
        match self.claim(occupant.endpoint) {
            Claim::Granted(instance) => self.keep(slot, memory, instance),
            Claim::Duplicate => self.retire(slot, Reason::Duplicate),
            Claim::NotListed => self.let_go(slot, Reason::Left),
        }
    }

    /// The slot stays with its instance: it may have to be told something.
    fn keep(&mut self, slot: &ObservedSlot, memory: &SlotMemory, instance: &Instance) {
        let Some(words) = self.words(instance, slot) else {
            self.plan.refused.push(instance.clone());
            return;
        };
        let switched_off = slot.health == Health::Off || slot.agent == Agent::Off;
        let reason = if slot.agent == Agent::Absent {
            drift_without_agent(slot, instance)
        } else {
            match &memory.told {
                Told::Words(told) if *told == words => switched_off.then_some(Reason::ByHand),
                Told::Words(_) => Some(Reason::WordsChanged),
                Told::Unknown | Told::Free => Some(Reason::Unconfirmed),
            }
        };
        match reason {
            // It serves nobody, and only being filled again brings it up by way of its health check.
            None if is_held_down_by_hand(slot) && self.policy.by_hand == ByHand::Repair => {
                self.taken.remove(&instance.endpoint);
                self.retire(slot, Reason::ByHand);
            }
            None if is_held_down_by_hand(slot) => self.plan.by_hand.push(slot.server.clone()),
            None => self.say_again(slot, memory),
            Some(Reason::ByHand) if self.policy.by_hand == ByHand::Leave => {
                self.plan.by_hand.push(slot.server.clone());
            }
            Some(reason) => self.restate(slot, instance, words, reason),
        }
    }

    fn say_again(&mut self, slot: &ObservedSlot, memory: &SlotMemory) {
        if slot.agent == Agent::On
            && let Some(words) = memory.told_long_ago(self.now)
        {
            let kind = Kind::Say { words };
            self.plan.restates.push(planned(slot, kind, Reason::Unseen));
        }
    }

    fn restate(&mut self, slot: &ObservedSlot, instance: &Instance, words: Words, reason: Reason) {
        // A slot that only becomes known is left exactly as it is; the next look may find something to change.
        let alone = slot.agent == Agent::Absent && reason != Reason::Unfamiliar;
        let kind = Kind::Restate {
            instance: instance.clone(),
            words: (slot.agent != Agent::Absent).then_some(words),
            agent: slot.agent,
            lift: slot.agent == Agent::Off && slot.health != Health::Down,
            weight: (alone && slot.weight != weight_of(instance, slot))
                .then(|| share_of(instance, slot)),
            reopen: alone && slot.admin != AdminState::Ready,
            check: slot.admin == AdminState::Maint && is_checked(slot),
            start_check: reason == Reason::ByHand && slot.health == Health::Off,
        };
        self.plan.restates.push(planned(slot, kind, reason));
    }

    fn look_at_filling(&mut self, slot: &'a ObservedSlot, memory: &SlotMemory) {
        let Some(occupant) = &memory.occupant else {
            return;
        };
        self.plan.under_way = true;
        let instance = match self.claim(occupant.endpoint) {
            Claim::Granted(instance) => instance,
            Claim::Duplicate => return self.retire(slot, Reason::Duplicate),
            Claim::NotListed => return self.retire(slot, Reason::Left),
        };
        if memory.opened.is_some() {
            return;
        }
        let at_home = slot.endpoint == Some(occupant.endpoint);
        if slot.in_rotation() && !at_home {
            // Never an address change in rotation: out first, and from the beginning.
            self.retire(slot, Reason::ByHand);
        } else if !memory.sure || !at_home || slot.agent == Agent::On || slot.in_rotation() {
            self.prepare(slot, instance, Reason::Unconfirmed);
        } else if !slot.has_under_way() {
            self.open(slot, instance);
        }
    }

    fn look_at_unknown(&mut self, slot: &'a ObservedSlot) {
        let instance = slot
            .endpoint
            .and_then(|endpoint| self.by_endpoint.get(&endpoint).copied());
        let is_to_be_out = slot
            .endpoint
            .and_then(|endpoint| self.answers.get(&endpoint))
            .is_some_and(|answer| answer.admin == AdminState::Maint);
        let kept_out_on_purpose = instance.is_some() && is_to_be_out && may_be_kept_out(slot);
        // Down with its agent check off, it may be held down by that check: it serves nobody, and only being filled
        // again mends that.
        let may_be_held = slot.agent == Agent::Off && slot.health == Health::Down;
        let serves = slot.in_rotation() && slot.agent_down.is_none() && !may_be_held;
        if serves || kept_out_on_purpose {
            let claim = slot
                .endpoint
                .map_or(Claim::NotListed, |endpoint| self.claim(endpoint));
            match claim {
                Claim::Granted(instance) => self.adopt(slot, instance),
                Claim::Duplicate => self.retire(slot, Reason::Duplicate),
                Claim::NotListed => self.let_go(slot, Reason::NotDiscovered),
            }
        } else if slot.agent == Agent::Absent {
            // In maintenance with nobody else to open it: two quiet looks make it free.
            self.plan.under_way = true;
            self.soon_free += 1;
        } else {
            self.retire(slot, Reason::Unfamiliar);
        }
    }

    fn adopt(&mut self, slot: &ObservedSlot, instance: &Instance) {
        match self.words(instance, slot) {
            Some(words) => self.restate(slot, instance, words, Reason::Unfamiliar),
            None => self.plan.refused.push(instance.clone()),
        }
    }

    fn look_at_free(&mut self, slot: &'a ObservedSlot, memory: &SlotMemory) {
        let dynamic = matches!(self.policy.mode, Mode::Dynamic { .. });
        if !slot.in_rotation() && dynamic {
            self.plan
                .frees
                .push(planned(slot, Kind::Delete, Reason::Unused));
        } else if !slot.in_rotation() {
            self.say_again(slot, memory);
            self.free.push(slot);
        } else if self.policy.by_hand == ByHand::Repair {
            self.retire(slot, Reason::ByHand);
        } else {
            self.plan.by_hand.push(slot.server.clone());
        }
    }

    fn look_at_leaving(&mut self, slot: &'a ObservedSlot, memory: &SlotMemory) {
        self.plan.under_way = true;
        if !memory.sure {
            self.retire(slot, Reason::Unconfirmed);
        } else if slot.in_rotation() {
            self.retire(slot, Reason::OpenedAgain);
        } else {
            self.soon_free += 1;
            let last = memory.cut_at.unwrap_or(memory.since);
            if slot.sessions > 0 && self.now.since(last) >= self.policy.drain_grace {
                self.plan
                    .frees
                    .push(planned(slot, Kind::Cut, Reason::GraceOver));
            }
            self.leaving.push(slot);
        }
    }

    fn prepare(&mut self, slot: &ObservedSlot, instance: &Instance, reason: Reason) {
        if let Mode::Dynamic { .. } = self.policy.mode {
            // A dynamic server is born with its address; one that is not as it was born is replaced.
            self.retire(slot, reason);
            return;
        }
        let port = instance.endpoint.port.get();
        let check_port = match self.policy.check_port {
            CheckPort::AsConfigured => None,
            CheckPort::OfInstance => slot
                .check_port
                .filter(|current| *current != port)
                .map(|_| port),
            CheckPort::Fixed(fixed) => Some(fixed.get()),
        };
        let kind = Kind::Prepare {
            instance: instance.clone(),
            agent: slot.agent,
            check_port,
        };
        self.taken.insert(instance.endpoint);
        self.plan.fills.push(planned(slot, kind, reason));
        self.plan.under_way = true;
    }

    fn open(&mut self, slot: &ObservedSlot, instance: &Instance) {
        let Some(words) = self.words(instance, slot) else {
            self.retire(slot, Reason::Left);
            return;
        };
        let dynamic = matches!(self.policy.mode, Mode::Dynamic { .. });
        let kind = Kind::Open {
            instance: instance.clone(),
            words: (slot.agent != Agent::Absent).then_some(words),
            agent: slot.agent,
            weight: (slot.agent == Agent::Absent).then(|| share_of(instance, slot)),
            check: slot.health != Health::Unchecked,
            start_check: slot.health == Health::Off,
            dynamic,
        };
        self.plan.fills.push(planned(slot, kind, Reason::Prepared));
    }

    /// The slot's instance is not on the list: it goes, unless the list is held.
    fn let_go(&mut self, slot: &'a ObservedSlot, reason: Reason) {
        match self.wanted.removal {
            Removal::Allowed => self.retire(slot, reason),
            Removal::Held if slot.health == Health::Down => self.may_give_way.push(slot),
            Removal::Held => {}
        }
    }

    fn retire(&mut self, slot: &ObservedSlot, reason: Reason) {
        let kind = Kind::Retire { agent: slot.agent };
        self.plan.frees.push(planned(slot, kind, reason));
        self.plan.under_way = true;
        self.soon_free += 1;
    }

    fn claim(&mut self, endpoint: Endpoint) -> Claim<'a> {
        match self.by_endpoint.get(&endpoint) {
            None => Claim::NotListed,
            Some(instance) if self.taken.insert(endpoint) => Claim::Granted(instance),
            Some(_) => Claim::Duplicate,
        }
    }

    fn words(&self, instance: &Instance, slot: &ObservedSlot) -> Option<Words> {
        Words::of(instance, self.policy, slot.configured_weight).ok()
    }

    fn waiting_since(&self, instance: &Instance) -> Moment {
        self.memory.waiting_since(&instance.id).unwrap_or(self.now)
    }
}

/// What becomes of a slot's wish for an address.
enum Claim<'a> {
    Granted(&'a Instance),
    Duplicate,
    NotListed,
}

fn planned(slot: &ObservedSlot, kind: Kind, reason: Reason) -> Planned {
    let telling = match reason {
        Reason::Prepared | Reason::Unseen => false,
        Reason::Unfamiliar => matches!(kind, Kind::Retire { .. }) && slot.in_rotation(),
        _ => true,
    };
    let step = Step {
        slot: slot.server.clone(),
        kind,
    };
    Planned {
        step,
        reason,
        telling,
    }
}

/// In maintenance because its instance shall be? Its agent check runs then, and is up; of a slot that was freed it is
/// down, and of one that is being filled it is off.
fn may_be_kept_out(slot: &ObservedSlot) -> bool {
    !slot.in_rotation() && slot.agent == Agent::On && slot.agent_down.is_none()
}

/// `health down` is lifted by a passed check only, so it is for slots whose checks run.
fn is_checked(slot: &ObservedSlot) -> bool {
    matches!(slot.health, Health::Up | Health::Down)
}

/// Down by a command: no answer to its words has the word that lifts it.
fn is_held_down_by_hand(slot: &ObservedSlot) -> bool {
    slot.agent == Agent::On && slot.agent_down == Some(DownBy::Command)
}

/// A slot without agent check is ours alone: if it differs, a person changed it, or its instance's weight changed.
fn drift_without_agent(slot: &ObservedSlot, instance: &Instance) -> Option<Reason> {
    if slot.admin != AdminState::Ready || slot.health == Health::Off {
        return Some(Reason::ByHand);
    }
    (slot.weight != weight_of(instance, slot)).then_some(Reason::WordsChanged)
}

fn share_of(instance: &Instance, slot: &ObservedSlot) -> Percent {
    share_of_weight(instance, slot.configured_weight).unwrap_or(Percent::FULL)
}

fn weight_of(instance: &Instance, slot: &ObservedSlot) -> u16 {
    weight_in_force(share_of(instance, slot), slot.configured_weight)
}
