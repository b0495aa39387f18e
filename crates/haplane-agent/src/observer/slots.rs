//! Whether a row that stopped asking, and that HAProxy does not show under its own name, is gone or hangs.
//!
//! Such a row sat in a slot: a server with another name, whose agent check sent the row's words. When the slot's words
//! are changed, nobody asks for the row any more, and nothing is wrong. HAProxy does not tell what a slot sends, but it
//! tells how its check goes. Take every server of the backend that does not ask under its own name: if each one's agent
//! check is on, asks this agent, and was answered after the row should have asked, then none of them holds the row any
//! more.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use haplane_core::verdict::{Cause, Judgement, Sight, Verdict, judge_unasked};
use tokio::time::Instant;

use super::board::Haproxy;

/// What became of a row that stopped asking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// No slot holds it any more.
    Gone,
    /// Not known yet: some slot's last check is from before.
    Unclear,
    /// A slot that may hold it does not ask.
    Hangs(Cause),
}

/// The servers that do not ask by their own names, by backend.
#[derive(Debug, Default)]
pub struct Slots {
    backends: HashMap<Box<str>, Checks>,
}

/// How the agent checks of one backend's slots go.
#[derive(Debug)]
struct Checks {
    trouble: Option<Cause>,
    /// Whether the last check of each was answered.
    answered: bool,
    /// When that was read, at the earliest.
    read: Option<Instant>,
}

impl Slots {
    /// What the last looks say; nothing when one is missing. `asking` are the rows that ask by their own names, `port`
    /// is where they ask, and `answering_for` how long they are answered.
    pub fn of(
        haproxies: &[Haproxy],
        asking: &HashSet<Arc<str>>,
        port: u16,
        answering_for: Duration,
        now: Instant,
    ) -> Option<Self> {
        if haproxies.is_empty() {
            return None;
        }
        let mut slots = Self::default();
        for haproxy in haproxies {
            let sighting = haproxy.present(now)?;
            let read = sighting.numbers.as_ref().map(|numbers| numbers.read);
            for row in sighting.rows.keys().filter(|row| !asking.contains(*row)) {
                let Some(sight) = sighting.sight(row, None, now) else {
                    continue;
                };
                let sight = Sight {
                    process_age: sight.process_age.min(answering_for),
                    ..sight
                };
                slots.note(row, &judge_unasked(&sight, port), read);
            }
        }
        Some(slots)
    }

    fn note(&mut self, row: &str, judgement: &Judgement, read: Option<Instant>) {
        let cause = judgement.causes.first();
        if cause == Some(&Cause::NotEnrolled) {
            return;
        }
        let checks = self.backends.entry(backend(row).into()).or_insert(Checks {
            trouble: None,
            answered: true,
            read,
        });
        checks.read = checks.read.min(read);
        match (judgement.verdict, cause) {
            (Verdict::Unobserved, Some(Cause::OtherName)) => {}
            (Verdict::Silent, Some(cause)) if !matches!(cause, Cause::NeverAsked(_)) => {
                let trouble = || Cause::InSlot(row.into(), Box::new(cause.clone()));
                checks.trouble.get_or_insert_with(trouble);
            }
            _ => checks.answered = false,
        }
    }

    /// What became of this row, which should have asked by then.
    pub fn fate(&self, row: &str, silent_since: Instant) -> Fate {
        match self.backends.get(backend(row)) {
            None => Fate::Gone,
            Some(Checks {
                trouble: Some(cause),
                ..
            }) => Fate::Hangs(cause.clone()),
            Some(checks) if checks.answered && checks.read >= Some(silent_since) => Fate::Gone,
            Some(_) => Fate::Unclear,
        }
    }
}

fn backend(row: &str) -> &str {
    row.split_once('/').map_or(row, |(backend, _)| backend)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_gone_only_where_every_slot_was_answered_since() {
        let judged = |verdict, cause| Judgement {
            verdict,
            causes: vec![cause],
        };
        let answered = judged(Verdict::Unobserved, Cause::OtherName);
        let unenrolled = judged(Verdict::Unobserved, Cause::NotEnrolled);
        let young = judged(Verdict::Pending, Cause::NotAskedYet(Duration::ZERO));
        let never = judged(Verdict::Silent, Cause::NeverAsked(Duration::from_mins(1)));
        let off = judged(Verdict::Silent, Cause::SwitchedOff);
        let silent_since = Instant::now();
        let after = silent_since + Duration::from_secs(1);
        let before = silent_since.checked_sub(Duration::from_secs(1)).unwrap();
        let hangs = Fate::Hangs(Cause::InSlot("web/2".into(), Box::new(Cause::SwitchedOff)));
        for (what, judgements, read, fate) in [
            (
                "answered since",
                vec![&answered, &answered],
                Some(after),
                Fate::Gone,
            ),
            (
                "answered before",
                vec![&answered],
                Some(before),
                Fate::Unclear,
            ),
            ("never read", vec![&answered], None, Fate::Unclear),
            (
                "one is new",
                vec![&answered, &young],
                Some(after),
                Fate::Unclear,
            ),
            (
                "one never ran",
                vec![&answered, &never],
                Some(after),
                Fate::Unclear,
            ),
            (
                "one is off",
                vec![&answered, &off, &young],
                Some(after),
                hangs,
            ),
            ("others do not ask", vec![&unenrolled], None, Fate::Gone),
            ("no slots at all", vec![], None, Fate::Gone),
        ] {
            let mut slots = Slots::default();
            for (number, judgement) in (1..).zip(judgements) {
                slots.note(&format!("web/{number}"), judgement, read);
            }
            slots.note("api/1", &off, Some(after));
            assert_eq!(slots.fate("web/i7", silent_since), fate, "{what}");
        }
    }
}
