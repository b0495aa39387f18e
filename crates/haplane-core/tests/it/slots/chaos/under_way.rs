//! Health checks and asks of the agent check: begun at one time, answered at another.

use super::*;

impl Chaos {
    /// Health checks begin out of maintenance only, but end wherever the slot is by then.
    pub(in crate::slots) fn checks_begin_and_end(&mut self) {
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
    pub(super) fn take_result(&mut self, index: usize, target: Option<Endpoint>) {
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

    /// What the responder says to these words, as the store is now.
    pub(super) fn answer(&self, words: &str) -> AdminState {
        let first = words.split(' ').next().unwrap_or_default();
        match first.strip_prefix("web/") {
            Some(id) => self.out.get(id).copied().unwrap_or(AdminState::Ready),
            None if first == "@free" => AdminState::Maint,
            None => self.fail(&format!("a slot sends {words:?}")),
        }
    }

    pub(in crate::slots) fn asks_begin_and_end(&mut self) {
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
    pub(super) fn take_answer(&mut self, index: usize, ask: &Ask) {
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
}
