//! Whatever a source says, in whatever order: its guard removes nothing that was not allowed, waited for or confirmed.

use std::collections::BTreeSet;
use std::time::Duration;

use haplane_core::slots::hold::{Guard, HeldReason, Limits};
use haplane_core::slots::{Endpoint, Moment, Removal};

use super::chaos::instance;

const LIMITS: Limits = Limits {
    max_removal: 50,
    hold: Duration::from_mins(5),
    settle: Duration::from_secs(10),
    allow_empty: false,
};

/// The list whose absences are acted on, if there is one now.
fn accepted(guard: &Guard) -> Option<BTreeSet<Endpoint>> {
    let wanted = guard
        .wanted()
        .filter(|wanted| wanted.removal == Removal::Allowed)?;
    Some(
        wanted
            .serve
            .iter()
            .map(|instance| instance.endpoint)
            .collect(),
    )
}

fn one_source(seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut guard = Guard::new(LIMITS);
    let mut now = Moment::default();
    let mut before = BTreeSet::new();
    for _ in 0..200 {
        now = now + Duration::from_secs(rng.u64(0..40));
        let held_before = guard.held();
        let mut confirmed = false;
        match rng.u8(0..10) {
            0..6 => {
                let first = rng.u32(0..4);
                let count = rng.u32(0..20);
                guard.offer((first..first + count).map(instance).collect(), now);
            }
            6 => guard.fail("a failed read".into(), now),
            7 => confirmed = guard.confirm(None).is_ok(),
            _ => guard.tick(now),
        }
        let Some(after) = accepted(&guard) else {
            continue;
        };
        let lost = before.difference(&after).count();
        let allowed = after.len() * 2 >= before.len() && !after.is_empty();
        let waited = held_before.is_some_and(|held| {
            held.reason != HeldReason::Empty && held.until.is_some_and(|until| now >= until)
        });
        assert!(
            lost == 0 || confirmed || waited || allowed,
            "seed {seed}: {lost} of {} went at {now:?}",
            before.len()
        );
        before = after;
    }
}

#[test]
fn nothing_goes_that_was_not_allowed_waited_for_or_confirmed() {
    for seed in 0..5000 {
        one_source(seed);
    }
}
