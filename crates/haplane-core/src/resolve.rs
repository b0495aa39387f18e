//! From a line asked to a line answered: which key decides, and what HAProxy is told.

use haplane_haproxy::agent_check::Answer;
use haplane_haproxy::{AdminState, Percent};
use jiff::Timestamp;

use crate::ask::{Ask, Row};
use crate::desired::{Desired, Value};
use crate::key::Key;
use crate::snapshot::Snapshot;

/// What is answered when no key of a row has a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Absent {
    /// In rotation at full weight.
    #[default]
    Ready,
    /// The empty line: leave the row as somebody set it by other means.
    Keep,
}

/// Whether `ready` restates the weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Weights {
    /// `ready 100%`: whatever weight an earlier answer left behind is undone.
    #[default]
    Restate,
    /// A bare `ready`, for sites that set weights by other means.
    Leave,
}

/// The site's choices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Policy {
    /// For rows without any valid key.
    pub absent: Absent,
    /// For rows that are ready.
    pub weights: Weights,
}

/// What to answer, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The line.
    pub answer: Answer,
    /// What kind of answer it is, for counting.
    pub kind: AnswerKind,
    /// The key whose value decided, if one did.
    pub decided_by: Option<Key>,
}

/// The closed set of answers, as metrics count them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AnswerKind {
    /// In rotation because nothing or `ready` is desired.
    Ready,
    /// `drain`.
    Drain,
    /// `maint`.
    Maint,
    /// In rotation with a desired weight.
    Weight,
    /// A slot without an instance.
    Free,
    /// Nothing desired, and the policy is to change nothing.
    Keep,
}

impl AnswerKind {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Ready,
        Self::Drain,
        Self::Maint,
        Self::Weight,
        Self::Free,
        Self::Keep,
    ];

    /// The word for it in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Drain => "drain",
            Self::Maint => "maint",
            Self::Weight => "weight",
            Self::Free => "free",
            Self::Keep => "keep",
        }
    }
}

/// The answer to one line. The same snapshot gives the same answer on every agent.
pub fn resolve(ask: &Ask, snapshot: &Snapshot, now: Timestamp, policy: Policy) -> Decision {
    match ask {
        Ask::Free => Decision {
            answer: Answer::Maint,
            kind: AnswerKind::Free,
            decided_by: None,
        },
        Ask::Row(row) => match deciding(&row.keys, snapshot, now) {
            Some((key, value)) => decide(row, value.desired, Some(key.clone()), policy),
            None => match policy.absent {
                Absent::Ready => decide(row, Desired::READY, None, policy),
                Absent::Keep => Decision {
                    answer: Answer::Keep,
                    kind: AnswerKind::Keep,
                    decided_by: None,
                },
            },
        },
    }
}

/// The first of these keys that has a valid value which still holds.
pub fn deciding<'a>(
    keys: &'a [Key],
    snapshot: &Snapshot,
    now: Timestamp,
) -> Option<(&'a Key, Value)> {
    keys.iter().find_map(|key| {
        let stored = snapshot.get(key)?;
        stored.value.holds_at(now).then_some((key, stored.value))
    })
}

/// The keys whose absence this decision rests on, if it lets traffic in: those before the deciding
/// key that the snapshot does not have. Any of them could have said `drain`.
pub fn absences(ask: &Ask, snapshot: &Snapshot, decision: &Decision) -> Vec<Key> {
    match (ask, decision.kind) {
        (Ask::Row(row), AnswerKind::Ready | AnswerKind::Weight) => row
            .keys
            .iter()
            .take_while(|key| decision.decided_by.as_ref() != Some(*key))
            .filter(|key| snapshot.get(key).is_none() && snapshot.get_invalid(key).is_none())
            .cloned()
            .collect(),
        _ => Vec::new(),
    }
}

fn decide(row: &Row, desired: Desired, decided_by: Option<Key>, policy: Policy) -> Decision {
    let ready = |weight| Answer::Ready { weight, up: row.up };
    let (answer, kind) = match desired {
        Desired::Admin(AdminState::Drain) => (Answer::Drain, AnswerKind::Drain),
        Desired::Admin(AdminState::Maint) => (Answer::Maint, AnswerKind::Maint),
        Desired::Admin(AdminState::Ready) => {
            let restated = (policy.weights == Weights::Restate).then_some(Percent::FULL);
            (ready(row.scale.or(restated)), AnswerKind::Ready)
        }
        Desired::Weight(weight) => {
            let weight = row.scale.map_or(weight, |scale| weight.scaled_by(scale));
            (ready(Some(weight)), AnswerKind::Weight)
        }
    };
    Decision {
        answer,
        kind,
        decided_by,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Pair;

    fn snapshot(pairs: &[(&str, &str)]) -> Snapshot {
        Snapshot::new(
            1,
            pairs.iter().map(|(path, value)| Pair {
                path: (*path).to_owned(),
                value: value.as_bytes().to_vec(),
                version: 1,
                log_id: None,
            }),
        )
    }

    fn answer(line: &str, pairs: &[(&str, &str)], policy: Policy) -> (String, Option<String>) {
        let ask = Ask::parse(line.as_bytes()).unwrap();
        let now = "2026-11-29T12:00:00Z".parse().unwrap();
        let decision = resolve(&ask, &snapshot(pairs), now, policy);
        (
            decision.answer.to_string(),
            decision.decided_by.map(|key| key.to_string()),
        )
    }

    #[test]
    fn an_answer_that_lets_traffic_in_rests_on_absences() {
        let pairs = [
            ("canary", "drain"),
            ("blue", "50%"),
            ("over", "drain until=2026-01-01T00:00:00Z"),
            ("bad", "down"),
        ];
        let snapshot = snapshot(&pairs);
        let now = "2026-11-29T12:00:00Z".parse().unwrap();
        for (line, want) in [
            ("web/a", &["web/a"][..]),
            ("web/a canary", &[]),
            ("web/a over bad zone blue canary", &["web/a", "zone"]),
            ("blue web/a", &[]),
            ("@free", &[]),
        ] {
            let ask = Ask::parse(line.as_bytes()).unwrap();
            let decision = resolve(&ask, &snapshot, now, Policy::default());
            let absent = absences(&ask, &snapshot, &decision);
            let absent: Vec<&str> = absent.iter().map(Key::as_str).collect();
            assert_eq!(absent, want, "{line}");
        }
        let keep = Policy {
            absent: Absent::Keep,
            ..Policy::default()
        };
        let ask = Ask::parse(b"web/a").unwrap();
        let decision = resolve(&ask, &snapshot, now, keep);
        assert_eq!(absences(&ask, &snapshot, &decision), []);
    }

    #[test]
    fn the_answer_table() {
        let policy = Policy::default();
        let leave = Policy {
            weights: Weights::Leave,
            ..policy
        };
        let keep = Policy {
            absent: Absent::Keep,
            ..policy
        };
        for (line, pairs, policy, want, by) in [
            ("web/a canary", &[][..], policy, "ready 100%", None),
            (
                "web/a canary",
                &[("canary", "ready")],
                policy,
                "ready 100%",
                Some("canary"),
            ),
            (
                "web/a canary",
                &[("canary", "drain")],
                policy,
                "drain",
                Some("canary"),
            ),
            (
                "web/a canary",
                &[("canary", "maint")],
                policy,
                "maint",
                Some("canary"),
            ),
            (
                "web/a canary",
                &[("canary", "25%")],
                policy,
                "ready 25%",
                Some("canary"),
            ),
            (
                "web/a canary",
                &[("canary", "drain"), ("web/a", "ready")],
                policy,
                "ready 100%",
                Some("web/a"),
            ),
            (
                "web/a canary",
                &[("canary", "drain"), ("web/a", "down")],
                policy,
                "drain",
                Some("canary"),
            ),
            (
                "web/a canary",
                &[("canary", "down")],
                policy,
                "ready 100%",
                None,
            ),
            ("web/a", &[("canary", "drain")], policy, "ready 100%", None),
            (
                "web/a",
                &[("web/a", "drain until=2026-11-29T12:00:00Z")],
                policy,
                "ready 100%",
                None,
            ),
            (
                "web/a",
                &[("web/a", "drain until=2026-11-29T12:00:01Z")],
                policy,
                "drain",
                Some("web/a"),
            ),
            ("@free web/a", &[("web/a", "ready")], policy, "maint", None),
            ("web/a @up", &[], policy, "up ready 100%", None),
            (
                "web/a @up",
                &[("web/a", "drain")],
                policy,
                "drain",
                Some("web/a"),
            ),
            ("web/a @30%", &[], policy, "ready 30%", None),
            (
                "web/a @30% @up",
                &[("web/a", "25%")],
                policy,
                "up ready 8%",
                Some("web/a"),
            ),
            ("web/a", &[], leave, "ready", None),
            (
                "web/a",
                &[("web/a", "25%")],
                leave,
                "ready 25%",
                Some("web/a"),
            ),
            ("web/a @30%", &[], leave, "ready 30%", None),
            ("web/a @up", &[], keep, "", None),
            ("web/a", &[("web/a", "50")], keep, "", None),
            (
                "web/a",
                &[("web/a", "ready")],
                keep,
                "ready 100%",
                Some("web/a"),
            ),
            ("@free", &[], keep, "maint", None),
        ] {
            let got = answer(line, pairs, policy);
            assert_eq!(
                (got.0.as_str(), got.1.as_deref()),
                (want, by),
                "{line:?} {pairs:?}"
            );
        }
    }
}
