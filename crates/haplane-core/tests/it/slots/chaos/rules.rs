//! What must hold, at every moment and at the end.

use super::*;

impl Chaos {
    /// No new request reaches the address of an instance that left, whatever was under way when it did.
    pub(super) fn who_left_is_asked_nothing(&self) {
        for slot in &self.world.slots {
            if self.left.contains(&slot.server) && takes_traffic(slot) {
                self.fail(&format!("{} takes traffic again", slot.server));
            }
        }
    }

    /// A slot that serves an instance of the list is never given up, however full it is.
    pub(super) fn who_is_served_stays(&self, observed: &Observed, plan: &Plan) {
        let live: BTreeSet<_> = self.live.iter().map(|instance| instance.endpoint).collect();
        for planned in &plan.frees {
            let seen = observed
                .slots
                .iter()
                .find(|slot| slot.server == planned.step.slot)
                .unwrap();
            let memory = self.memory.slot(&planned.step.slot).unwrap();
            let held_down = seen.agent == Agent::On && seen.agent_down.is_some();
            let served = memory.stage == Stage::Active
                && !held_down
                && seen.endpoint.is_some_and(|e| live.contains(&e));
            if served {
                self.fail(&format!("{planned:?} takes a served instance out"));
            }
        }
    }

    /// Never an address change in rotation, nor under sessions of another address.
    pub(super) fn check_before(&self, command: &Command) {
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
        let moves = slot.endpoint != Endpoint::new(address, port).ok();
        if moves && slot.in_rotation() {
            self.fail(&format!("{command} while in rotation"));
        }
        if moves && slot.sessions > 0 && !self.excused.contains(&slot.server) {
            self.fail(&format!("{command} under {} sessions", slot.sessions));
        }
    }

    /// No request meets an endpoint before its first passed check, not even between two commands.
    pub(super) fn check_opened(&mut self, planned: &Planned) {
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

    pub(super) fn one_slot_for_each_instance(&self) {
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

    /// Everything is as it should be: full or complete, each in its own state, with its own words.
    pub(in crate::slots) fn check_settled(&self) {
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
                _ if slot.health == Health::Off => {
                    self.fail(&format!("the check of {} is off", slot.server))
                }
                Agent::On if slot.agent_down.is_some() => {
                    self.fail(&format!("{} is held down", slot.server))
                }
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
