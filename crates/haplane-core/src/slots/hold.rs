//! The guard of a source: which list is acted on, and which change of it is held until it is confirmed.
//!
//! "Nothing there" and "not allowed to see" look the same in Consul (facts 8.5), and a list can come back one instance
//! after the other. So a failed read is never a list, an empty one waits for an operator, and one that lost too many at
//! once waits for a while. Waiting costs little: HAProxy's own checks take dead instances out, new ones are served all
//! the same, and only removals wait.

use std::collections::BTreeSet;
use std::time::Duration;

use super::model::{Endpoint, Instance, Moment, Removal, Wanted};

/// What a pool allows of one change of its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The share of the last accepted list that may go at once, in percent.
    pub max_removal: u8,
    /// How long a list that lost more is held.
    pub hold: Duration,
    /// How long a list that comes back after a hold or a failure must stay the same.
    pub settle: Duration,
    /// An empty list is accepted like any other.
    pub allow_empty: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_removal: 50,
            hold: Duration::from_mins(5),
            settle: Duration::from_secs(10),
            allow_empty: false,
        }
    }
}

/// Why a list is not acted on as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HeldReason {
    /// The source cannot be read; the last list stays.
    Failed,
    /// The list is empty.
    Empty,
    /// It lost more at once than `max_removal`.
    Shrunken,
    /// It came back after a hold or a failure, and must stay the same for a moment.
    Settling,
}

impl HeldReason {
    /// Every reason, for gauges.
    pub const ALL: [Self; 4] = [Self::Failed, Self::Empty, Self::Shrunken, Self::Settling];

    /// The word for it in JSON and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Empty => "empty",
            Self::Shrunken => "shrunken",
            Self::Settling => "settling",
        }
    }
}

/// A change that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Why.
    pub reason: HeldReason,
    /// More about it, for a failed read.
    pub detail: String,
    /// Since when.
    pub since: Moment,
    /// How many instances the last accepted list had.
    pub had: usize,
    /// How many the list that is held has.
    pub has: usize,
    /// When it will be accepted if nothing changes; none when it waits for an operator or for its source.
    pub until: Option<Moment>,
}

/// Nothing is held, or not what the operator saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfirmError {
    /// Nothing to confirm.
    #[error("nothing is held")]
    NothingHeld,
    /// The source cannot be read, so there is no list to accept.
    #[error("the source cannot be read: there is no list to confirm")]
    NoList,
    /// The list has changed since.
    #[error("the list has {has} instances by now, not {expected}: look again")]
    Changed {
        /// What it has now.
        has: usize,
        /// What the operator was shown.
        expected: usize,
    },
}

/// The guard of one pool's source.
#[derive(Clone, Debug)]
pub struct Guard {
    limits: Limits,
    accepted: Option<Vec<Instance>>,
    /// How many HAProxy served before any list was accepted: the first list is measured by it.
    baseline: usize,
    offered: Option<Offered>,
    failing: Option<(Moment, String)>,
    /// The next list comes after a failure.
    after_failure: bool,
}

/// A list that was not accepted at once.
#[derive(Clone, Debug)]
struct Offered {
    list: Vec<Instance>,
    reason: HeldReason,
    since: Moment,
    changed_at: Moment,
    /// The most instances it has had while it was held, and since when.
    most: usize,
    grown_at: Moment,
}

impl Guard {
    /// A guard that has seen nothing yet.
    pub const fn new(limits: Limits) -> Self {
        Self {
            limits,
            accepted: None,
            baseline: 0,
            offered: None,
            failing: None,
            after_failure: false,
        }
    }

    /// Before the first list: how many instances HAProxy serves already. A first list is measured by it.
    pub fn set_baseline(&mut self, served: usize) {
        self.baseline = self.baseline.max(served);
    }

    /// The source was read: this is the whole list.
    pub fn offer(&mut self, list: Vec<Instance>, now: Moment) {
        let after_failure = self.failing.take().is_some() || self.after_failure;
        self.after_failure = false;
        let (had, has) = (self.had(), list.len());
        let reason = self.judge(&list, had, has, after_failure);
        let Some(reason) = reason else {
            return self.accept(list);
        };
        let before = self.offered.take();
        let same = !after_failure
            && before
                .as_ref()
                .is_some_and(|before| endpoints(&before.list) == endpoints(&list));
        // The hold begins anew when the reason changes, or after a failure.
        let started_over =
            after_failure || before.as_ref().is_none_or(|before| before.reason != reason);
        let most = before.as_ref().map_or(has, |before| before.most.max(has));
        let grew = before.as_ref().is_none_or(|before| has > before.most);
        self.offered = Some(Offered {
            since: before.as_ref().map_or(now, |before| before.since),
            changed_at: before
                .as_ref()
                .filter(|_| same)
                .map_or(now, |before| before.changed_at),
            grown_at: before
                .as_ref()
                .filter(|_| !grew && !started_over)
                .map_or(now, |before| before.grown_at),
            most,
            reason,
            list,
        });
        self.tick(now);
    }

    /// Why this list cannot be accepted at once, if it cannot.
    fn judge(
        &self,
        list: &[Instance],
        had: usize,
        has: usize,
        after_failure: bool,
    ) -> Option<HeldReason> {
        if has == 0 && had > 0 {
            return (!self.limits.allow_empty).then_some(HeldReason::Empty);
        }
        let kept_enough = has * 100 >= had * usize::from(100 - self.limits.max_removal.min(100));
        if !kept_enough {
            return Some(HeldReason::Shrunken);
        }
        let unsettled = self.offered.is_some() || after_failure;
        (unsettled && self.loses_some(list)).then_some(HeldReason::Settling)
    }

    fn loses_some(&self, list: &[Instance]) -> bool {
        let now = endpoints(list);
        self.accepted
            .as_ref()
            .is_none_or(|accepted| !endpoints(accepted).is_subset(&now))
    }

    /// The source could not be read. Nothing else changes, however long it lasts.
    pub fn fail(&mut self, why: String, now: Moment) {
        let since = self.failing.as_ref().map_or(now, |(since, _)| *since);
        self.failing = Some((since, why));
    }

    /// Time has passed: a list that has been held long enough is accepted. Never while the source cannot be read.
    pub fn tick(&mut self, now: Moment) {
        let due = self.due().is_some_and(|due| now >= due);
        if self.failing.is_none()
            && due
            && let Some(offered) = self.offered.take()
        {
            self.accept(offered.list);
        }
    }

    /// When the list that is held will be accepted by itself.
    fn due(&self) -> Option<Moment> {
        let offered = self.offered.as_ref()?;
        let Limits { hold, settle, .. } = self.limits;
        match offered.reason {
            HeldReason::Shrunken => Some(offered.grown_at + hold),
            HeldReason::Settling => {
                Some((offered.changed_at + settle).min(offered.grown_at + hold.max(settle)))
            }
            HeldReason::Empty | HeldReason::Failed => None,
        }
    }

    /// An operator accepts the list that is held; `expected` is the number of instances that they were shown.
    /// Returns the numbers before and after.
    pub fn confirm(&mut self, expected: Option<usize>) -> Result<(usize, usize), ConfirmError> {
        let Some(offered) = &self.offered else {
            return Err(if self.failing.is_some() {
                ConfirmError::NoList
            } else {
                ConfirmError::NothingHeld
            });
        };
        let (had, has) = (self.had(), offered.list.len());
        if let Some(expected) = expected.filter(|expected| *expected != has) {
            return Err(ConfirmError::Changed { has, expected });
        }
        let list = offered.list.clone();
        self.accept(list);
        Ok((had, has))
    }

    fn accept(&mut self, list: Vec<Instance>) {
        self.accepted = Some(list);
        self.offered = None;
    }

    fn had(&self) -> usize {
        self.accepted.as_ref().map_or(self.baseline, Vec::len)
    }

    /// What shall be served now; none before the first list.
    pub fn wanted(&self) -> Option<Wanted> {
        let (list, removal) = match (&self.offered, &self.accepted) {
            (Some(offered), _) => (&offered.list, Removal::Held),
            (None, Some(accepted)) => (accepted, Removal::Allowed),
            (None, None) => return None,
        };
        Some(Wanted {
            serve: list.clone(),
            removal,
            damped: Vec::new(),
        })
    }

    /// What is held, if anything.
    pub fn held(&self) -> Option<Held> {
        let (had, has) = (
            self.had(),
            self.offered
                .as_ref()
                .map_or(self.had(), |offered| offered.list.len()),
        );
        match (&self.failing, &self.offered) {
            (Some((since, why)), _) => Some(Held {
                reason: HeldReason::Failed,
                detail: why.clone(),
                since: *since,
                had,
                has,
                until: None,
            }),
            (None, Some(offered)) => Some(Held {
                reason: offered.reason,
                detail: String::new(),
                since: offered.since,
                had,
                has,
                until: self.due(),
            }),
            (None, None) => None,
        }
    }
}

fn endpoints(list: &[Instance]) -> BTreeSet<Endpoint> {
    list.iter().map(|instance| instance.endpoint).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::sample::instance;

    fn at(seconds: u64) -> Moment {
        Moment(Duration::from_secs(seconds))
    }

    fn list(ids: std::ops::Range<u32>) -> Vec<Instance> {
        ids.map(instance).collect()
    }

    fn guard_with(ids: std::ops::Range<u32>) -> Guard {
        let mut guard = Guard::new(Limits::default());
        guard.offer(list(ids), at(0));
        assert_eq!(guard.held(), None);
        guard
    }

    fn reason(guard: &Guard) -> Option<(HeldReason, usize, usize)> {
        guard.held().map(|held| (held.reason, held.had, held.has))
    }

    fn serves(guard: &Guard) -> (usize, Removal) {
        let wanted = guard.wanted().unwrap();
        (wanted.serve.len(), wanted.removal)
    }

    #[test]
    fn an_empty_list_waits_for_an_operator_only() {
        let mut guard = guard_with(0..10);
        guard.offer(list(0..0), at(1));
        assert_eq!(reason(&guard), Some((HeldReason::Empty, 10, 0)));
        guard.tick(at(1_000_000));
        assert_eq!(serves(&guard), (0, Removal::Held));
        assert_eq!(
            guard.confirm(Some(3)),
            Err(ConfirmError::Changed {
                has: 0,
                expected: 3
            })
        );
        assert_eq!(guard.confirm(Some(0)), Ok((10, 0)));
        assert_eq!(serves(&guard), (0, Removal::Allowed));
        assert_eq!(guard.confirm(None), Err(ConfirmError::NothingHeld));
    }

    #[test]
    fn the_number_counts_not_who_they_are() {
        let mut guard = guard_with(0..10);
        guard.offer(list(100..105), at(1));
        assert_eq!(
            (reason(&guard), serves(&guard)),
            (None, (5, Removal::Allowed))
        );
        guard.offer(list(200..202), at(2));
        assert_eq!(reason(&guard), Some((HeldReason::Shrunken, 5, 2)));
    }

    #[test]
    fn a_shrunken_list_is_held_for_a_while() {
        let mut guard = guard_with(0..10);
        guard.offer(list(0..4), at(10));
        assert_eq!(guard.held().unwrap().until, Some(at(310)));
        guard.tick(at(309));
        assert_eq!(serves(&guard), (4, Removal::Held));
        guard.tick(at(310));
        assert_eq!(
            (reason(&guard), serves(&guard)),
            (None, (4, Removal::Allowed))
        );
    }

    #[test]
    fn instances_that_register_again_one_by_one_are_not_a_scale_down() {
        let mut guard = guard_with(0..10);
        guard.fail("connection refused".into(), at(5));
        assert_eq!(reason(&guard), Some((HeldReason::Failed, 10, 10)));
        guard.offer(list(0..0), at(100));
        assert_eq!(reason(&guard), Some((HeldReason::Empty, 10, 0)));
        for n in 1..10 {
            // The hold begins anew with every instance that comes.
            guard.offer(list(0..n), at(100 + u64::from(n) * 9));
            assert_ne!(reason(&guard), None, "{n}");
        }
        guard.offer(list(0..10), at(200));
        assert_eq!(
            (reason(&guard), serves(&guard)),
            (None, (10, Removal::Allowed))
        );
    }

    #[test]
    fn a_list_that_comes_back_smaller_must_settle() {
        let mut guard = guard_with(0..10);
        guard.fail("500".into(), at(5));
        guard.offer(list(0..9), at(20));
        assert_eq!(reason(&guard), Some((HeldReason::Settling, 10, 9)));
        guard.offer(list(0..9), at(25));
        guard.tick(at(29));
        assert_eq!(serves(&guard), (9, Removal::Held));
        guard.tick(at(30));
        assert_eq!(
            (reason(&guard), serves(&guard)),
            (None, (9, Removal::Allowed))
        );
    }

    #[test]
    fn nothing_is_accepted_by_time_while_the_source_cannot_be_read() {
        let mut guard = guard_with(0..10);
        guard.offer(list(0..2), at(10));
        guard.fail("timeout".into(), at(20));
        guard.tick(at(10_000));
        assert_eq!(serves(&guard), (2, Removal::Held));
        assert_eq!(reason(&guard), Some((HeldReason::Failed, 10, 2)));
    }

    #[test]
    fn the_hold_begins_anew_after_a_failure() {
        let mut guard = guard_with(0..10);
        guard.offer(list(0..2), at(10));
        guard.fail("timeout".into(), at(20));
        guard.offer(list(0..2), at(1000));
        assert_eq!(serves(&guard), (2, Removal::Held));
        assert_eq!(guard.held().unwrap().until, Some(at(1300)));
    }

    #[test]
    fn the_first_list_is_measured_by_what_is_served() {
        let mut guard = Guard::new(Limits::default());
        assert_eq!(guard.wanted(), None);
        guard.set_baseline(20);
        guard.offer(list(0..0), at(0));
        assert_eq!(reason(&guard), Some((HeldReason::Empty, 20, 0)));
        guard.offer(list(0..5), at(1));
        assert_eq!(reason(&guard), Some((HeldReason::Shrunken, 20, 5)));

        let mut fresh = Guard::new(Limits::default());
        fresh.offer(list(0..0), at(0));
        assert_eq!(
            (reason(&fresh), serves(&fresh)),
            (None, (0, Removal::Allowed))
        );

        let mut trusting = Guard::new(Limits {
            allow_empty: true,
            ..Limits::default()
        });
        trusting.set_baseline(20);
        trusting.offer(list(0..0), at(0));
        assert_eq!(reason(&trusting), None);
    }
}
