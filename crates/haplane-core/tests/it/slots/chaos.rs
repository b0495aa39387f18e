//! One HAProxy with everything that can happen around it: steps that are refused, cut off or applied without an answer,
//! asks of the agent check and health checks that are under way while words and addresses change, sessions that outlive
//! their server, restarts, and people who change slots by hand. Every rule that must hold is checked where it would be broken.

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
        endpoint: Endpoint::new([127, 0, 0, 1].into(), 1),
        admin: AdminState::Maint,
        sessions: 0,
        agent,
        asking: false,
        agent_down: false,
        health,
        checking: false,
        weight: 100,
        configured_weight: 100,
        check_port: None,
    }
}

/// Whether HAProxy sends it new requests.
fn takes_traffic(slot: &ObservedSlot) -> bool {
    let held = slot.agent == Agent::On && slot.agent_down;
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
            slot.endpoint = Endpoint::new([127, 0, 0, 1].into(), 1);
            slot.admin = AdminState::Maint;
            slot.sessions = 0;
            (slot.asking, slot.checking) = (false, false);
            slot.agent_down = false;
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
        let action = match self.rng.u8(0..7) {
            0 => Action::State(AdminState::Ready),
            1 => Action::State(AdminState::Maint),
            2 => Action::State(AdminState::Drain),
            3 => Action::DisableAgent,
            4 => Action::EnableAgent,
            5 => Action::AgentUp,
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

    /// Health checks begin out of maintenance only, but end wherever the slot is by then.
    pub(super) fn checks_begin_and_end(&mut self) {
        for index in 0..self.world.slots.len() {
            let slot = self.world.slots[index].clone();
            if let Some(target) = self.checks.get(&slot.server).copied() {
                if self.rng.bool() {
                    self.checks.remove(&slot.server);
                    self.world.slots[index].checking = false;
                    self.take_result(index, target);
                }
            } else if matches!(slot.health, Health::Up | Health::Down)
                && slot.in_rotation()
                && self.rng.u8(0..4) > 0
            {
                self.checks.insert(slot.server.clone(), slot.endpoint);
                self.world.slots[index].checking = true;
            }
        }
    }

    /// With `rise 1` one passed check is enough, and HAProxy does not ask which address it was sent to.
    fn take_result(&mut self, index: usize, target: Option<Endpoint>) {
        // Who left may well answer for a while.
        let listed = |instance: &Instance| Some(instance.endpoint) == target;
        let passed = self.live.iter().any(listed) || self.rng.bool();
        let slot = &mut self.world.slots[index];
        if !slot.in_rotation() {
            return;
        }
        if !passed {
            slot.health = Health::Down;
            return;
        }
        slot.health = Health::Up;
        let server = slot.server.clone();
        if slot.endpoint == target {
            self.verified.insert(server);
        } else if !self.excused.contains(&server) {
            self.fail(&format!("a check of {target:?} brought {server} up"));
        }
    }

    /// No new request reaches the address of an instance that left, whatever was under way when it did.
    fn who_left_is_asked_nothing(&self) {
        for slot in &self.world.slots {
            if self.left.contains(&slot.server) && takes_traffic(slot) {
                self.fail(&format!("{} takes traffic again", slot.server));
            }
        }
    }

    /// What the responder says to these words, as the store is now.
    fn answer(&self, words: &str) -> AdminState {
        let first = words.split(' ').next().unwrap_or_default();
        match first.strip_prefix("web/") {
            Some(id) => self.out.get(id).copied().unwrap_or(AdminState::Ready),
            None if first == "@free" => AdminState::Maint,
            None => self.fail(&format!("a slot sends {words:?}")),
        }
    }

    pub(super) fn asks_begin_and_end(&mut self) {
        for index in 0..self.world.slots.len() {
            let slot = self.world.slots[index].clone();
            if let Some(ask) = self.asks.get(&slot.server).cloned() {
                if self.rng.bool() {
                    self.asks.remove(&slot.server);
                    self.world.slots[index].asking = false;
                    self.take_answer(index, &ask);
                }
            } else if slot.agent == Agent::On
                && self.rng.bool()
                && let Some(words) = self.world.sends.get(&slot.server)
            {
                let ask = Ask {
                    answer: self.answer(words),
                    as_free: words == "@free",
                    endpoint: slot.endpoint,
                };
                self.asks.insert(slot.server.clone(), ask);
                self.world.slots[index].asking = true;
            }
        }
    }

    /// An answer counts whatever was changed since the ask, unless the agent check is off by then (measured: HAProxy lets
    /// such an ask run into its time limit).
    fn take_answer(&mut self, index: usize, ask: &Ask) {
        let slot = self.world.slots[index].clone();
        if slot.agent != Agent::On {
            return;
        }
        let opens = slot.admin == AdminState::Maint && ask.answer != AdminState::Maint;
        if opens && slot.endpoint != ask.endpoint && !self.excused.contains(&slot.server) {
            self.fail(&format!(
                "an old answer opened {} for its next instance",
                slot.server
            ));
        }
        self.note(&format!("{} is answered {}", slot.server, ask.answer));
        let checked = slot.health != Health::Unchecked && !self.verified.contains(&slot.server);
        let by_us =
            self.opened_ready.contains(&slot.server) && !self.excused.contains(&slot.server);
        if opens && ask.answer == AdminState::Ready && checked && by_us {
            self.fail(&format!(
                "a late answer closed {} and the next one opened it unchecked",
                slot.server
            ));
        }
        if ask.answer == AdminState::Maint && !ask.as_free {
            // In maintenance on purpose; opened again it is the agent's doing, as for any server.
            self.opened_ready.remove(&slot.server);
        }
        let row = format!("web/{}", slot.server).parse().unwrap();
        self.world
            .apply(&Command::new(row, Action::State(ask.answer)));
    }

    pub(super) fn wanted(&self) -> Wanted {
        Wanted {
            serve: self.live.clone(),
            removal: Removal::Allowed,
            damped: Vec::new(),
        }
    }

    /// One round: look, plan, take the steps.
    pub(super) fn round(&mut self) -> Plan {
        let observed = self.world.observe();
        if self.memory.see(&observed, self.now) {
            self.excused.append(&mut self.cut_off);
        }
        let wanted = self.wanted();
        let answers: Answers = doubtful(&observed, &wanted, &self.memory)
            .into_iter()
            .map(|instance| {
                let admin = self.answer(&format!("web/{}", instance.id));
                (
                    instance.endpoint,
                    Opening {
                        admin,
                        weight: None,
                    },
                )
            })
            .collect();
        let plan = plan(
            &observed,
            &wanted,
            &self.policy,
            &self.memory,
            &answers,
            self.now,
        );
        let waiting = plan
            .homeless
            .iter()
            .map(|homeless| &homeless.instance.id)
            .chain(plan.refused.iter().map(|i| &i.id));
        self.memory.note_waiting(waiting, self.now);
        self.who_is_served_stays(&observed, &plan);
        if self.rough.restarts && self.rng.u8(0..40) == 0 {
            // In the very moment between the plan and its steps.
            self.restart();
        }
        for planned in plan.steps() {
            self.take(planned);
        }
        self.one_slot_for_each_instance();
        self.who_left_is_asked_nothing();
        plan
    }

    /// A slot that serves an instance of the list is never given up, however full it is.
    fn who_is_served_stays(&self, observed: &Observed, plan: &Plan) {
        let live: BTreeSet<_> = self.live.iter().map(|instance| instance.endpoint).collect();
        for planned in &plan.frees {
            let seen = observed
                .slots
                .iter()
                .find(|slot| slot.server == planned.step.slot)
                .unwrap();
            let memory = self.memory.slot(&planned.step.slot).unwrap();
            let served =
                memory.stage == Stage::Active && seen.endpoint.is_some_and(|e| live.contains(&e));
            if served {
                self.fail(&format!("{planned:?} takes a served instance out"));
            }
        }
    }

    fn take(&mut self, planned: &Planned) {
        let step = &planned.step;
        self.memory.begin(step, planned.reason, self.now);
        let opening = match step.kind.asks() {
            Some(words) => Opening {
                admin: self.answer(words.as_str()),
                weight: None,
            },
            None => Opening::READY,
        };
        let commands = step.commands(&self.policy.backend, opening);
        self.note(&format!(
            "{} {}: {}",
            step.kind.as_str(),
            step.slot,
            planned.reason
        ));
        let (taken, answered) = match self.rng.u8(0..8) {
            0 if self.rough.steps_fail => (0, false),
            1 if self.rough.steps_fail => (self.rng.usize(0..=commands.len()), false),
            2 if self.rough.steps_fail => (commands.len(), false),
            _ => (commands.len(), true),
        };
        let mut done_all = true;
        if step.kind.fills() {
            self.left.remove(&step.slot);
        }
        for command in commands.iter().take(taken) {
            self.check_before(command);
            let applied = self.world.apply(command);
            done_all &= applied;
            if applied {
                self.track(command);
            }
            self.check_opened(planned);
        }
        if matches!(step.kind, Kind::Retire { .. }) && taken == commands.len() && done_all {
            self.left.insert(step.slot.clone());
        }
        if taken < commands.len() || !answered {
            self.cut_off.insert(step.slot.clone());
            self.note(&format!(
                "  only {taken} of {} applied, answered: {answered}",
                commands.len()
            ));
        } else {
            self.cut_off.remove(&step.slot);
        }
        let outcome = if answered && done_all {
            Outcome::Done
        } else {
            Outcome::Unsure
        };
        self.memory.end(step, outcome, opening, self.now);
    }

    /// Never an address change in rotation, nor under sessions of another address.
    fn check_before(&self, command: &Command) {
        let Action::Address(address, port) = command.action else {
            return;
        };
        let slot = self
            .world
            .slots
            .iter()
            .find(|slot| slot.server == command.row.server);
        let Some(slot) = slot else {
            return;
        };
        let moves = slot.endpoint != Endpoint::new(address, port);
        if moves && slot.in_rotation() {
            self.fail(&format!("{command} while in rotation"));
        }
        if moves && slot.sessions > 0 && !self.excused.contains(&slot.server) {
            self.fail(&format!("{command} under {} sessions", slot.sessions));
        }
    }

    fn track(&mut self, command: &Command) {
        let server = &command.row.server;
        match &command.action {
            Action::Address(..) | Action::Add(..) => {
                self.verified.remove(server);
                self.opened_ready.remove(server);
                self.excused.remove(server);
            }
            Action::State(AdminState::Maint) => {
                self.opened_ready.remove(server);
            }
            Action::Delete => {
                self.asks.remove(server);
                self.checks.remove(server);
                self.left.remove(server);
                self.world.sends.remove(server);
            }
            _ => {}
        }
    }

    /// No request meets an endpoint before its first passed check, not even between two commands.
    fn check_opened(&mut self, planned: &Planned) {
        let opened = &planned.step.slot;
        let slot = self.world.slots.iter().find(|slot| slot.server == *opened);
        let Some(slot) = slot.filter(|slot| slot.admin == AdminState::Ready) else {
            return;
        };
        if planned.step.kind.as_str() != "open" {
            return;
        }
        let meant = planned
            .step
            .kind
            .instance()
            .map(|instance| instance.endpoint);
        if slot.endpoint != meant {
            self.fail(&format!("{opened} was opened at {:?}", slot.endpoint));
        }
        if slot.health == Health::Up && takes_traffic(slot) && !self.verified.contains(opened) {
            self.fail(&format!("{opened} was opened unchecked"));
        }
        self.opened_ready.insert(opened.clone());
    }

    fn one_slot_for_each_instance(&self) {
        let mut seen = BTreeMap::new();
        for (server, slot) in self.memory.slots() {
            if !matches!(slot.stage, Stage::Active | Stage::Filling) {
                continue;
            }
            let Some(occupant) = &slot.occupant else {
                continue;
            };
            if let Some(other) = seen.insert(occupant.endpoint, server) {
                self.fail(&format!(
                    "{} is in {server} and in {other}",
                    occupant.endpoint
                ));
            }
        }
    }

    /// From now on nothing goes wrong any more, and nobody comes or goes.
    pub(super) fn calm(&mut self) {
        self.note("calm");
        self.rough = Rough {
            steps_fail: false,
            restarts: false,
            hands: false,
        };
    }

    /// A quiet moment: what is under way ends.
    pub(super) fn settle(&mut self) {
        self.now = self.now + Duration::from_millis(500);
        for slot in &mut self.world.slots {
            if slot.admin != AdminState::Ready {
                slot.sessions = slot.sessions.saturating_sub(1);
            }
        }
        self.checks_begin_and_end();
        self.asks_begin_and_end();
        self.who_left_is_asked_nothing();
    }

    /// Everything is as it should be: full or complete, each in its own state, with its own words.
    pub(super) fn check_settled(&self) {
        let served: Vec<_> = self
            .world
            .slots
            .iter()
            .filter(|slot| {
                self.memory
                    .slot(&slot.server)
                    .is_some_and(|memory| memory.stage == Stage::Active)
            })
            .collect();
        let expected = self.live.len().min(self.capacity());
        if served.len() != expected {
            self.fail(&format!("{} of {expected} served", served.len()));
        }
        for slot in served {
            let Some(instance) = self
                .live
                .iter()
                .find(|instance| Some(instance.endpoint) == slot.endpoint)
            else {
                self.fail(&format!("{} serves nobody", slot.server));
            };
            let admin = self
                .out
                .get(instance.id.as_str())
                .copied()
                .unwrap_or(AdminState::Ready);
            let sends = self
                .world
                .sends
                .get(&slot.server)
                .map_or("", String::as_str);
            let own = sends.split(' ').next() == Some(&format!("web/{}", instance.id));
            match slot.agent {
                Agent::Absent if slot.admin != AdminState::Ready => {
                    self.fail(&format!("{} is not ready", slot.server))
                }
                Agent::On if slot.agent_down => self.fail(&format!("{} is held down", slot.server)),
                Agent::Off => self.fail(&format!("the agent of {} is off", slot.server)),
                Agent::On if !own => self.fail(&format!(
                    "{} sends {sends:?} for {}",
                    slot.server, instance.id
                )),
                Agent::On if slot.admin != admin && !slot.asking => {
                    self.fail(&format!("{} is {}, not {admin}", slot.server, slot.admin));
                }
                Agent::Absent | Agent::On => {}
            }
        }
        for slot in &self.world.slots {
            let free = self
                .memory
                .slot(&slot.server)
                .is_none_or(|memory| memory.stage == Stage::Free);
            if free && slot.in_rotation() {
                self.fail(&format!("{} is free and in rotation", slot.server));
            }
        }
    }
}
