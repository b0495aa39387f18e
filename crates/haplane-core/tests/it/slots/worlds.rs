//! Many random worlds. For a long night, where nothing ends a test after a few minutes:
//! `HAPLANE_WORLDS=1000000 cargo test --release -p haplane-core --test it worlds`. A failure names its seed, and
//! `HAPLANE_WORLD=<seed>` runs that one alone.

use std::time::Duration;

use haplane_core::slots::{Kind, Planned};

use super::chaos::{Chaos, Rough};

/// How many worlds an ordinary run visits.
const WORLDS: u64 = 1500;
/// Rounds of trouble in each.
const TROUBLE: usize = 40;
/// After the trouble, a world must be as it should be within this many rounds.
const BOUND: usize = 120;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn seeds() -> impl Iterator<Item = u64> {
    let (first, count) = match number("HAPLANE_WORLD") {
        Some(seed) => (seed, 1),
        None => (0, number("HAPLANE_WORLDS").unwrap_or(WORLDS)),
    };
    first..first + count
}

fn live_through(seed: u64, rough: Rough) {
    let mut chaos = Chaos::new(seed, rough);
    for _ in 0..TROUBLE {
        chaos.stir();
        chaos.round();
    }
    chaos.calm();
    let (mut quiet, mut said_again) = (0, false);
    for _ in 0..BOUND {
        chaos.settle();
        let plan = chaos.round();
        let only_says = |planned: &Planned| matches!(planned.step.kind, Kind::Say { .. });
        quiet = if plan.steps().all(only_says) && !plan.under_way {
            quiet + 1
        } else {
            0
        };
        // Long enough for every slot's agent check to have asked.
        if quiet == 16 && !said_again {
            // What somebody made a slot send is only put right when it is told again.
            chaos.now = chaos.now + Duration::from_mins(1);
            (quiet, said_again) = (0, true);
        } else if quiet == 16 {
            return chaos.check_settled();
        }
    }
    chaos.fail("never came to rest");
}

/// Everything succeeds: instances come, go, move and change their weight.
#[test]
fn smooth_worlds() {
    for seed in seeds() {
        live_through(
            seed,
            Rough {
                steps_fail: false,
                restarts: false,
                hands: false,
            },
        );
    }
}

/// Steps are refused, cut off, or applied without an answer.
#[test]
fn failing_worlds() {
    for seed in seeds() {
        live_through(
            seed,
            Rough {
                steps_fail: true,
                restarts: false,
                hands: false,
            },
        );
    }
}

/// And HAProxy restarts, and people change slots by hand.
#[test]
fn rough_worlds() {
    for seed in seeds() {
        live_through(
            seed,
            Rough {
                steps_fail: true,
                restarts: true,
                hands: true,
            },
        );
    }
}
