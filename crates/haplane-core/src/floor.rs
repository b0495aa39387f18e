//! How much of a backend stays in rotation: the guard behind `--min-ready`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use haplane_haproxy::AdminState;
use serde::Serialize;

use crate::desired::Desired;

/// More than this HAProxy gives nobody.
const MAX_WEIGHT: u64 = 256;

/// One row of one node, with what is desired of it now and after a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// Its backend.
    pub backend: String,
    /// Its full weight, as configured; 1 where nobody observes it.
    pub weight: u64,
    /// Whether that is the weight that HAProxy has. Of it, HAProxy gives whole units only: 50% of a weight of 1 is
    /// no traffic at all.
    pub is_observed: bool,
    /// Whether HAProxy's own checks let it take traffic.
    pub healthy: bool,
    /// Whether HAProxy uses it only when no other server is up, so that it adds no capacity to
    /// those.
    pub is_backup: bool,
    /// What is desired of it now.
    pub before: Desired,
    /// What will be.
    pub after: Desired,
}

/// How much of a backend's weight is in rotation, in percent, rounded down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Share {
    /// The backend.
    pub backend: String,
    /// Now.
    pub before: u64,
    /// After the change.
    pub after: u64,
}

impl Share {
    /// Whether the change leaves less than `floor` percent, and is to blame for it: one that takes
    /// nothing out of a backend never is.
    pub fn falls_below(&self, floor: u64) -> bool {
        self.after < self.before && self.after < floor
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}% -> {}%", self.backend, self.before, self.after)
    }
}

/// Sums of one backend; the weights in rotation in hundredths.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    total: u64,
    before: u64,
    after: u64,
}

/// The share of every backend, by name.
pub fn shares(loads: &[Load]) -> Vec<Share> {
    let has_others: BTreeSet<&str> = loads
        .iter()
        .filter(|load| !load.is_backup)
        .map(|load| load.backend.as_str())
        .collect();
    let counts = |load: &&Load| !(load.is_backup && has_others.contains(load.backend.as_str()));
    let mut backends: BTreeMap<&str, Sums> = BTreeMap::new();
    for load in loads.iter().filter(counts) {
        let sums = backends.entry(&load.backend).or_default();
        sums.total = sums.total.saturating_add(load.weight);
        if load.healthy {
            sums.before = sums.before.saturating_add(in_rotation(load, load.before));
            sums.after = sums.after.saturating_add(in_rotation(load, load.after));
        }
    }
    let share = |(backend, sums): (&str, Sums)| {
        let percent = |hundredths: u64| hundredths.checked_div(sums.total).unwrap_or(0);
        Share {
            backend: backend.to_owned(),
            before: percent(sums.before),
            after: percent(sums.after),
        }
    };
    backends.into_iter().map(share).collect()
}

fn in_rotation(load: &Load, desired: Desired) -> u64 {
    let percent = match desired {
        Desired::Weight(percent) => u64::from(percent.get()),
        Desired::Admin(AdminState::Ready) => 100,
        Desired::Admin(AdminState::Drain | AdminState::Maint) => 0,
    };
    let hundredths = load.weight.saturating_mul(percent);
    if load.is_observed {
        (hundredths / 100).min(MAX_WEIGHT) * 100
    } else {
        hundredths
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(backend: &str, weight: u64, healthy: bool, before: &str, after: &str) -> Load {
        Load {
            backend: backend.to_owned(),
            weight,
            is_observed: true,
            healthy,
            is_backup: false,
            before: before.parse().unwrap(),
            after: after.parse().unwrap(),
        }
    }

    #[test]
    fn weights_health_and_drains_that_are_there_already_count() {
        let loads = [
            load("web", 100, true, "ready", "drain"),
            load("web", 100, true, "ready", "ready"),
            load("web", 100, false, "ready", "ready"),
            load("web", 100, true, "maint", "maint"),
            load("api", 10, true, "ready", "50%"),
            load("api", 90, true, "ready", "ready"),
            load("out", 1, true, "drain", "maint"),
        ];
        let below = |floor| {
            let shares = shares(&loads);
            let below = shares.iter().filter(|share| share.falls_below(floor));
            below.map(Share::to_string).collect::<Vec<_>>()
        };
        assert_eq!(below(50), ["web 50% -> 25%"]);
        assert_eq!(below(96), ["api 100% -> 95%", "web 50% -> 25%"]);
        assert!(below(25).is_empty());
    }

    #[test]
    fn a_percentage_of_a_small_weight_is_what_haproxy_makes_of_it() {
        let all_at = |weight, percent: &str| {
            let loads = [load("web", weight, true, "ready", percent)];
            shares(&loads).pop().unwrap().after
        };
        assert_eq!(all_at(1, "50%"), 0, "truncated: no traffic at all");
        assert_eq!(all_at(1, "200%"), 200);
        assert_eq!(all_at(3, "50%"), 33);
        assert_eq!(all_at(100, "50%"), 50);
        assert_eq!(all_at(200, "200%"), 128, "no weight is above 256");
        let unknown = Load {
            is_observed: false,
            ..load("web", 1, true, "ready", "50%")
        };
        assert_eq!(shares(&[unknown])[0].after, 50);
    }

    #[test]
    fn a_backup_is_no_capacity_beside_others_and_all_of_it_where_there_are_none() {
        let backup = |load: Load| Load {
            is_backup: true,
            ..load
        };
        let loads = [
            load("web", 100, true, "ready", "drain"),
            backup(load("web", 100, true, "ready", "ready")),
            backup(load("spare", 1, true, "ready", "drain")),
            backup(load("spare", 1, true, "ready", "ready")),
        ];
        let told: Vec<String> = shares(&loads).iter().map(Share::to_string).collect();
        assert_eq!(told, ["spare 100% -> 50%", "web 100% -> 0%"]);
    }

    #[test]
    fn bringing_servers_back_is_never_refused() {
        let loads = [
            load("web", 1, true, "maint", "ready"),
            load("web", 9, true, "maint", "maint"),
        ];
        assert!(!shares(&loads)[0].falls_below(100));
    }
}
