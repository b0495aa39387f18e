//! What earlier looks at a row showed, as far as a verdict needs it.

use std::time::Duration;

use haplane_core::verdict::{Past, Seen};
use haplane_haproxy::agent_check::Answer;
use tokio::time::Instant;

use super::asked::AskedRow;

/// Of one row in one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    answer: Answer,
    agreed: bool,
    differs_since: Option<Instant>,
    due: Answer,
    due_since: Instant,
    due_seen: bool,
}

impl Memory {
    /// The first look at a row. What it is due now came before anybody looked: it is not timed.
    pub fn first(asked: &AskedRow, served_since: Instant) -> Self {
        Self {
            answer: asked.answer,
            agreed: false,
            differs_since: None,
            due: asked.due,
            due_since: served_since,
            due_seen: true,
        }
    }

    /// The same row in a new process: nothing that the old one did counts, but the change that is
    /// still to be seen.
    #[must_use]
    pub fn in_new_process(self) -> Self {
        Self {
            agreed: false,
            differs_since: None,
            ..self
        }
    }

    /// After one more look, which was sent at `started`. Says how long a change of what is due took
    /// to be seen, at the first look that shows it.
    pub fn look(
        &mut self,
        asked: &AskedRow,
        seen: &Seen,
        served_since: Instant,
        (started, ended): (Instant, Instant),
    ) -> Option<Duration> {
        if self.answer != asked.answer {
            self.answer = asked.answer;
            self.agreed = false;
            self.differs_since = None;
        }
        // A look from before the answer says nothing about it.
        if asked.answered < started {
            if seen.differs_from(asked.answer).is_none() {
                self.agreed = true;
                self.differs_since = None;
            } else {
                self.differs_since.get_or_insert(started);
            }
        }
        if self.due != asked.due {
            self.due = asked.due;
            self.due_since = served_since;
            self.due_seen = false;
        }
        if self.due_seen || seen.differs_from(asked.due).is_some() {
            return None;
        }
        self.due_seen = true;
        Some(ended.saturating_duration_since(self.due_since))
    }

    /// What it says to a verdict on `answer`, as of the look that was sent at `looked`.
    pub fn past(&self, answer: Answer, looked: Instant) -> Past {
        if self.answer != answer {
            return Past::default();
        }
        let differs_for = self.differs_since.map_or(Duration::ZERO, |since| {
            looked.saturating_duration_since(since)
        });
        Past {
            agreed: self.agreed,
            differs_for,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haplane_haproxy::server_state::{AdminBits, CheckBits, OpState};

    fn seen(admin: AdminBits) -> Seen {
        Seen {
            admin,
            operational: OpState::Running,
            weight: 100,
            configured_weight: 100,
            check: CheckBits::from_number(0),
            agent: CheckBits::from_number(22),
            agent_port: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_timed_once_and_a_hand_is_noticed() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let asked = |answer, due, answered| AskedRow {
            answer,
            due,
            asked: answered,
            answered,
            interval: Duration::from_secs(2),
            is_ambiguous: false,
        };
        let (ready, drain) = (seen(AdminBits::READY), seen(AdminBits::FDRAIN));
        let before = asked(Answer::READY, Answer::READY, at(0));
        let mut memory = Memory::first(&before, at(0));
        assert_eq!(memory.look(&before, &ready, at(0), (at(1), at(1))), None);
        assert!(memory.past(Answer::READY, at(1)).agreed);

        let changed = asked(Answer::READY, Answer::Drain, at(0));
        assert_eq!(memory.look(&changed, &ready, at(2), (at(3), at(3))), None);
        let after = asked(Answer::Drain, Answer::Drain, at(4));
        let stale = memory.look(&after, &ready, at(2), (at(4), at(4)));
        assert_eq!(stale, None);
        assert_eq!(memory.past(Answer::Drain, at(4)), Past::default());
        let took = memory.look(&after, &drain, at(2), (at(5), at(6)));
        assert_eq!(took, Some(Duration::from_secs(4)));
        assert_eq!(memory.look(&after, &drain, at(2), (at(7), at(7))), None);

        memory.look(&after, &ready, at(2), (at(8), at(8)));
        memory.look(&after, &ready, at(2), (at(10), at(10)));
        let past = memory.past(Answer::Drain, at(10));
        assert_eq!(
            (past.agreed, past.differs_for),
            (true, Duration::from_secs(2))
        );
        assert!(!memory.in_new_process().past(Answer::Drain, at(10)).agreed);
    }
}
