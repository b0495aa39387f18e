//! One round of the synchroniser: look, plan, take the steps, each of which may fail.

use super::*;

impl Chaos {
    pub(in crate::slots) fn wanted(&self) -> Wanted {
        Wanted {
            serve: self.live.clone(),
            removal: Removal::Allowed,
            damped: Vec::new(),
        }
    }

    /// One round: look, plan, take the steps.
    pub(in crate::slots) fn round(&mut self) -> Plan {
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
        self.memory.note_waiting(&plan, &wanted, self.now);
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

    pub(super) fn take(&mut self, planned: &Planned) {
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

    pub(super) fn track(&mut self, command: &Command) {
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

    /// From now on nothing goes wrong any more, and nobody comes or goes.
    pub(in crate::slots) fn calm(&mut self) {
        self.note("calm");
        self.rough = Rough {
            steps_fail: false,
            restarts: false,
            hands: false,
        };
    }

    /// A quiet moment: what is under way ends.
    pub(in crate::slots) fn settle(&mut self) {
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
}
