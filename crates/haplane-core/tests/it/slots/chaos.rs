//! One HAProxy with everything that can happen around it: steps that are refused, cut off or applied without an answer,
//! asks of the agent check and health checks that are under way while words and addresses change, sessions that outlive
//! their server, restarts, and people who change slots by hand. Every rule that must hold is checked where it would be broken.

mod rounds;
mod rules;
mod under_way;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use haplane_core::slots::world::World;
use haplane_core::slots::{
    Agent, Answers, ByHand, CheckPort, Endpoint, Health, Instance, Kind, Memory, Mode, Moment,
    Observed, ObservedSlot, Opening, Outcome, Plan, Planned, Policy, ProcessId, Removal, Stage,
    Wanted, doubtful, plan,
};
use haplane_haproxy::runtime_cmd::{Action, Command};
use haplane_haproxy::{AdminState, Percent, ServerName};

/// How rough a world is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rough {
    pub(super) steps_fail: bool,
    pub(super) restarts: bool,
    pub(super) hands: bool,
}

/// An ask that HAProxy sent and whose answer has not come yet.
#[derive(Clone, Debug)]
struct Ask {
    answer: AdminState,
    /// Whether it was asked as a free slot.
    as_free: bool,
    /// Where the slot pointed when the ask began.
    endpoint: Option<Endpoint>,
}

pub(super) struct Chaos {
    pub(super) seed: u64,
    pub(super) rng: fastrand::Rng,
    pub(super) world: World,
    pub(super) memory: Memory,
    pub(super) policy: Policy,
    pub(super) live: Vec<Instance>,
    pub(super) now: Moment,
    pub(super) rough: Rough,
    /// Instances that the store keeps out of rotation.
    out: BTreeMap<String, AdminState>,
    asks: BTreeMap<ServerName, Ask>,
    /// Health checks under way, and the address that each was sent to.
    checks: BTreeMap<ServerName, Option<Endpoint>>,
    /// Slots that an instance left, as far as HAProxy was told so, and that nobody was given since.
    left: BTreeSet<ServerName>,
    /// Slots whose present address has passed a health check.
    verified: BTreeSet<ServerName>,
    /// Slots that a person left in a state that no rule covers, or a step that was cut off just before everything
    /// was forgotten.
    excused: BTreeSet<ServerName>,
    /// Slots whose last step was cut off.
    cut_off: BTreeSet<ServerName>,
    /// Slots that were opened in rotation and have kept their address since.
    opened_ready: BTreeSet<ServerName>,
    next_instance: u32,
    first_dynamic: bool,
    pub(super) trail: Vec<String>,
}

pub(super) fn instance(n: u32) -> Instance {
    let [_, b, c, d] = n.to_be_bytes();
    Instance {
        id: format!("i{n}").parse().unwrap(),
        endpoint: format!("10.{b}.{c}.{d}:8000").parse().unwrap(),
        zone: None,
        weight: None,
        groups: Vec::new(),
    }
}

pub(super) fn slot(n: usize, agent: Agent, health: Health) -> ObservedSlot {
    ObservedSlot {
        server: format!("web-{n}").parse().unwrap(),
        endpoint: Endpoint::new([127, 0, 0, 1].into(), 1).ok(),
        admin: AdminState::Maint,
        sessions: 0,
        agent,
        asking: false,
        agent_down: None,
        health,
        checking: false,
        weight: 100,
        configured_weight: 100,
        check_port: None,
    }
}

/// Whether HAProxy sends it new requests.
fn takes_traffic(slot: &ObservedSlot) -> bool {
    let held = slot.agent == Agent::On && slot.agent_down.is_some();
    slot.admin == AdminState::Ready && slot.health != Health::Down && !held
}

pub(super) fn policy(mode: Mode) -> Policy {
    Policy {
        backend: "web".parse().unwrap(),
        mode,
        groups: Vec::new(),
        drain_grace: Duration::from_secs(3),
        by_hand: ByHand::Repair,
        check_port: CheckPort::AsConfigured,
    }
}

impl Chaos {
    pub(super) fn new(seed: u64, rough: Rough) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let slots = rng.usize(1..9);
        let agent = if rng.bool() { Agent::On } else { Agent::Absent };
        let health = if rng.u8(0..4) > 0 {
            Health::Down
        } else {
            Health::Unchecked
        };
        let dynamic = rng.u8(0..4) == 0;
        let mode = if dynamic {
            let check = if health == Health::Unchecked {
                "weight 100"
            } else {
                "check weight 100"
            };
            let enrolled = agent == Agent::On;
            let parameters = if enrolled {
                format!("{check} agent-check")
            } else {
                check.to_owned()
            };
            Mode::Dynamic {
                prefix: "web-".into(),
                most: slots,
                parameters,
                enrolled,
            }
        } else {
            Mode::Slots
        };
        let there = if dynamic { 0 } else { slots };
        let mut chaos = Self {
            seed,
            rng,
            world: World {
                process: ProcessId {
                    pid: 1,
                    started_at: 1,
                },
                slots: (1..=there).map(|n| slot(n, agent, health)).collect(),
                sends: BTreeMap::new(),
            },
            memory: Memory::default(),
            policy: policy(mode),
            live: Vec::new(),
            now: Moment::default(),
            rough,
            out: BTreeMap::new(),
            asks: BTreeMap::new(),
            checks: BTreeMap::new(),
            left: BTreeSet::new(),
            verified: BTreeSet::new(),
            excused: BTreeSet::new(),
            cut_off: BTreeSet::new(),
            opened_ready: BTreeSet::new(),
            next_instance: 1,
            first_dynamic: dynamic,
            trail: Vec::new(),
        };
        chaos.placeholders();
        for _ in 0..chaos.rng.usize(0..=slots * 2) {
            chaos.join();
        }
        chaos
    }

    pub(super) fn capacity(&self) -> usize {
        match self.policy.mode {
            Mode::Slots => self.world.slots.len(),
            Mode::Dynamic { most, .. } => most,
        }
    }

    fn note(&mut self, text: &str) {
        self.trail
            .push(format!("{:>7.2}s {text}", self.now.0.as_secs_f64()));
    }

    pub(super) fn fail(&self, what: &str) -> ! {
        let trail = self
            .trail
            .iter()
            .rev()
            .take(60)
            .rev()
            .cloned()
            .collect::<Vec<_>>()
            .join("\n");
        panic!(
            "seed {}: {what}\nthe last events:\n{trail}\nslots: {:#?}",
            self.seed, self.world.slots
        );
    }

    fn placeholders(&mut self) {
        for slot in &self.world.slots {
            self.world
                .sends
                .insert(slot.server.clone(), "@free".to_owned());
        }
    }

    pub(super) fn join(&mut self) {
        let newcomer = instance(self.next_instance);
        self.next_instance += 1;
        if self.rng.u8(0..4) == 0 {
            let state = if self.rng.bool() {
                AdminState::Drain
            } else {
                AdminState::Maint
            };
            self.out.insert(newcomer.id.to_string(), state);
        }
        self.live.push(newcomer);
    }

    /// Something happens that is nobody's step.
    pub(super) fn stir(&mut self) {
        self.now = self.now + Duration::from_millis(self.rng.u64(1..400));
        match self.rng.u8(0..12) {
            0 | 1 => self.join(),
            2 | 3 if !self.live.is_empty() => {
                let gone = self.rng.usize(0..self.live.len());
                let gone = self.live.remove(gone);
                self.note(&format!("{} leaves", gone.id));
            }
            4 if !self.live.is_empty() => {
                let index = self.rng.usize(0..self.live.len());
                let weight = Percent::new(self.rng.u16(1..200));
                self.live[index].weight = weight;
            }
            5 if !self.live.is_empty() => {
                // Another id at the same address, or the same id elsewhere.
                let index = self.rng.usize(0..self.live.len());
                let other = instance(self.next_instance);
                self.next_instance += 1;
                if self.rng.bool() {
                    self.live[index].id = other.id;
                } else {
                    self.live[index].endpoint = other.endpoint;
                }
            }
            6 if self.rough.restarts && self.rng.u8(0..3) == 0 => self.restart(),
            7 if self.rough.hands && self.rng.bool() => self.meddle(),
            8 if self.rough.restarts && self.rng.u8(0..3) == 0 => {
                self.note("the synchroniser restarts");
                self.memory = Memory::default();
                self.excused.append(&mut self.cut_off);
            }
            _ => {}
        }
        self.sessions_come_and_go();
        self.checks_begin_and_end();
        self.asks_begin_and_end();
        self.who_left_is_asked_nothing();
    }

    fn restart(&mut self) {
        self.note("HAProxy restarts");
        self.world.process.pid += 1;
        self.asks.clear();
        self.checks.clear();
        self.left.clear();
        self.verified.clear();
        self.excused.clear();
        self.cut_off.clear();
        self.opened_ready.clear();
        if self.first_dynamic {
            self.world.slots.clear();
            self.world.sends.clear();
            return;
        }
        for slot in &mut self.world.slots {
            slot.endpoint = Endpoint::new([127, 0, 0, 1].into(), 1).ok();
            slot.admin = AdminState::Maint;
            slot.sessions = 0;
            (slot.asking, slot.checking) = (false, false);
            slot.agent_down = None;
            slot.weight = slot.configured_weight;
            if slot.agent == Agent::Off {
                slot.agent = Agent::On;
            }
            if slot.health != Health::Unchecked {
                slot.health = Health::Down;
            }
        }
        self.placeholders();
    }

    fn meddle(&mut self) {
        if self.world.slots.is_empty() {
            return;
        }
        let index = self.rng.usize(0..self.world.slots.len());
        let server = self.world.slots[index].server.clone();
        let action = match self.rng.u8(0..10) {
            0 => Action::State(AdminState::Ready),
            1 => Action::State(AdminState::Maint),
            2 => Action::State(AdminState::Drain),
            3 => Action::DisableAgent,
            4 => Action::EnableAgent,
            5 => Action::AgentUp,
            6 => Action::AgentDown,
            7 => Action::AgentSend("@free".to_owned()),
            8 if self.world.slots[index].health != Health::Unchecked => {
                self.note(&format!("somebody: disable health {server}"));
                self.world.slots[index].health = Health::Off;
                return;
            }
            _ => Action::Address([10, 9, 9, 9].into(), 1),
        };
        self.note(&format!("somebody: {action:?} on {server}"));
        self.excused.insert(server.clone());
        self.left.remove(&server);
        let command = Command::new(format!("web/{server}").parse().unwrap(), action);
        self.world.apply(&command);
    }

    fn sessions_come_and_go(&mut self) {
        for slot in &mut self.world.slots {
            if takes_traffic(slot) && self.rng.bool() {
                slot.sessions += 1;
            } else if slot.sessions > 0 && self.rng.u8(0..3) == 0 {
                slot.sessions -= 1;
            }
        }
    }
}
