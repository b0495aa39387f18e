//! An HAProxy process in memory: what the commands of steps do to slots. It carries a plan to its end without touching
//! anything (`haplane sync --plan`), and it is the world that the planner's properties are tested in.

use std::collections::BTreeMap;

use haplane_haproxy::runtime_cmd::{Action, Command};
use haplane_haproxy::{AdminState, ServerName};

use super::memory::{Memory, Outcome};
use super::model::{
    Agent, Answers, DownBy, Endpoint, Health, Instance, Moment, Observed, ObservedSlot, Opening,
    Policy, ProcessId, Wanted,
};
use super::plan::{Homeless, Plan, Planned, plan};
use super::words::weight_in_force;

/// The slots of one pool in one simulated process.
#[derive(Clone, Debug)]
pub struct World {
    /// Which process this is.
    pub process: ProcessId,
    /// The slots in their order.
    pub slots: Vec<ObservedSlot>,
    /// What each agent check sends.
    pub sends: BTreeMap<ServerName, String>,
}

impl World {
    /// The world as it was observed; what its agent checks send is not known.
    pub(crate) fn from_observed(observed: &Observed) -> Self {
        Self {
            process: observed.process,
            slots: observed.slots.clone(),
            sends: BTreeMap::new(),
        }
    }

    /// What `show servers state` and `show stat` would say.
    pub fn observe(&self) -> Observed {
        let mut slots = self.slots.clone();
        for slot in &mut slots {
            slot.agent_down = slot.agent_down.filter(|_| slot.agent == Agent::On);
        }
        Observed {
            process: self.process,
            slots,
        }
    }

    /// Does what HAProxy does at one command; whether it succeeded.
    pub fn apply(&mut self, command: &Command) -> bool {
        if let Action::Add(address, port, parameters) = &command.action {
            return self.add(
                &command.row.server,
                Endpoint::new(*address, *port).ok(),
                parameters,
            );
        }
        let Some(index) = self
            .slots
            .iter()
            .position(|slot| slot.server == command.row.server)
        else {
            return false;
        };
        let Some(slot) = self.slots.get_mut(index) else {
            return false;
        };
        match &command.action {
            Action::State(state) => {
                let leaves_maint = slot.admin == AdminState::Maint && *state != AdminState::Maint;
                slot.admin = *state;
                if leaves_maint && slot.health == Health::Down {
                    // HAProxy takes it for up until a check has failed (facts 7.2).
                    slot.health = Health::Up;
                }
            }
            Action::Address(address, port) => slot.endpoint = Endpoint::new(*address, *port).ok(),
            Action::CheckPort(port) => slot.check_port = Some(*port),
            Action::Weight(share) => {
                slot.weight = weight_in_force(*share, slot.configured_weight);
            }
            Action::AgentSend(words) => {
                if slot.agent != Agent::On {
                    return false;
                }
                self.sends.insert(slot.server.clone(), words.clone());
            }
            Action::AgentDown | Action::AgentUp if slot.agent != Agent::On => return false,
            Action::AgentDown => slot.agent_down = Some(DownBy::Command),
            Action::AgentUp => {
                slot.agent_down = None;
                if slot.in_rotation() && slot.health == Health::Down {
                    slot.health = Health::Up;
                }
            }
            Action::EnableAgent if slot.agent == Agent::Absent => return false,
            Action::EnableAgent => slot.agent = Agent::On,
            Action::DisableAgent if slot.agent == Agent::Absent => {}
            Action::DisableAgent => slot.agent = Agent::Off,
            Action::EnableHealth if slot.health == Health::Off => slot.health = Health::Up,
            Action::EnableHealth => {}
            Action::HealthDown if slot.admin == AdminState::Maint => {}
            Action::HealthDown => slot.health = Health::Down,
            Action::ShutdownSessions => slot.sessions = 0,
            // Checks under way do not keep HAProxy from it.
            Action::Delete if slot.admin == AdminState::Maint && slot.sessions == 0 => {
                drop(self.slots.remove(index));
            }
            Action::Delete | Action::Add(..) => return false,
        }
        true
    }

    fn add(&mut self, server: &ServerName, endpoint: Option<Endpoint>, parameters: &str) -> bool {
        if self.slots.iter().any(|slot| slot.server == *server) {
            return false;
        }
        let has = |word: &str| parameters.split(' ').any(|parameter| parameter == word);
        let enrolled = has("agent-check");
        self.slots.push(ObservedSlot {
            server: server.clone(),
            endpoint,
            admin: AdminState::Maint,
            sessions: 0,
            agent: if enrolled { Agent::Off } else { Agent::Absent },
            asking: false,
            // The agent check of a dynamic server begins with health 0 (facts 7.3).
            agent_down: enrolled.then_some(DownBy::Command),
            health: if has("check") {
                Health::Off
            } else {
                Health::Unchecked
            },
            checking: false,
            weight: 100,
            configured_weight: 100,
            check_port: None,
        });
        true
    }
}

/// What a plan comes to when everything succeeds and all sessions end.
#[derive(Clone, Debug, Default)]
pub struct Foreseen {
    /// Every step that changes something, in order; `open` belongs to the `fill` or `add` before it.
    pub steps: Vec<Planned>,
    /// Who is left without a slot.
    pub homeless: Vec<Homeless>,
    /// Who waits because it comes and goes too often.
    pub damped: Vec<Instance>,
}

/// More rounds than any plan needs: retire, two quiet looks, prepare, open, and once more for what made room late.
const MOST_ROUNDS: usize = 24;

/// Carries a plan to its end in memory.
pub fn foresee(
    observed: &Observed,
    wanted: &Wanted,
    policy: &Policy,
    memory: &Memory,
    answers: &Answers,
    now: Moment,
) -> Foreseen {
    let mut world = World::from_observed(observed);
    let mut memory = memory.clone();
    let mut foreseen = Foreseen::default();
    for _ in 0..MOST_ROUNDS {
        for slot in &mut world.slots {
            (slot.asking, slot.checking) = (false, false);
            if !slot.in_rotation() {
                slot.sessions = 0;
            }
        }
        let observed = world.observe();
        memory.see(&observed, now);
        let plan = plan(&observed, wanted, policy, &memory, answers, now);
        for planned in plan.steps() {
            take(&mut world, &mut memory, planned, policy, now);
            if planned.telling {
                foreseen.steps.push(planned.clone());
            }
        }
        let done = !plan.under_way && plan.is_empty();
        let Plan {
            homeless, damped, ..
        } = plan;
        foreseen.homeless = homeless;
        foreseen.damped = damped;
        if done {
            break;
        }
    }
    foreseen
}

fn take(world: &mut World, memory: &mut Memory, planned: &Planned, policy: &Policy, now: Moment) {
    let step = &planned.step;
    memory.begin(step, planned.reason, now);
    let mut done = true;
    for command in step.commands(&policy.backend, Opening::READY) {
        done &= world.apply(&command);
    }
    let outcome = if done { Outcome::Done } else { Outcome::Unsure };
    memory.end(step, outcome, Opening::READY, now);
}
