//! Flap damping: an instance that keeps coming and going is not given a slot until it has stayed for a while.
//!
//! Only bringing in is damped; leaving never is. And when more than half of a pool comes and goes at once it is the source that flaps, not
//! the instances: then nobody is damped, for damping everybody would be an outage.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::model::{InstanceId, Moment};

/// When an instance counts as flapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damping {
    /// It came this often…
    pub times: usize,
    /// …within this time. Zero switches damping off.
    pub window: Duration,
    /// Then it is damped until it has stayed this long without a break.
    pub stay: Duration,
}

impl Default for Damping {
    fn default() -> Self {
        Self {
            times: 4,
            window: Duration::from_mins(5),
            stay: Duration::from_mins(1),
        }
    }
}

/// An instance came or went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flap {
    /// When.
    pub at: Moment,
    /// Whether it came.
    pub came: bool,
}

/// How many comings and goings of an instance are kept.
const HISTORY: usize = 20;
/// Of how many instances.
const MOST_INSTANCES: usize = 50_000;

/// The comings and goings of one pool's instances.
#[derive(Clone, Debug, Default)]
pub struct Flaps {
    here: BTreeSet<InstanceId>,
    history: BTreeMap<InstanceId, VecDeque<Flap>>,
    started: bool,
}

impl Flaps {
    /// Takes in the list as it is now. The first list is the starting point: nobody "comes" with it.
    pub fn note<'a>(
        &mut self,
        list: impl Iterator<Item = &'a InstanceId>,
        now: Moment,
        damping: Damping,
    ) {
        let list: BTreeSet<InstanceId> = list.cloned().collect();
        if self.started {
            let came = list.difference(&self.here).map(|id| (id.clone(), true));
            let went = self.here.difference(&list).map(|id| (id.clone(), false));
            for (id, came) in came.chain(went).collect::<Vec<_>>() {
                self.push(id, Flap { at: now, came });
            }
        }
        self.started = true;
        self.here = list;
        let keep = damping.window.max(damping.stay);
        self.history
            .retain(|_, flaps| flaps.back().is_some_and(|last| now.since(last.at) <= keep));
    }

    fn push(&mut self, id: InstanceId, flap: Flap) {
        if !self.history.contains_key(&id) && self.history.len() >= MOST_INSTANCES {
            return;
        }
        let history = self.history.entry(id).or_default();
        if history.len() == HISTORY {
            history.pop_front();
        }
        history.push_back(flap);
    }

    /// Who is damped now.
    pub fn damped(&self, now: Moment, damping: Damping) -> Vec<InstanceId> {
        let flapping: Vec<_> = self
            .history
            .iter()
            .filter(|(_, flaps)| is_flapping(flaps, now, damping))
            .map(|(id, _)| id)
            .collect();
        if flapping.len() * 2 > self.here.len() {
            return Vec::new();
        }
        flapping
            .into_iter()
            .filter(|id| self.here.contains(*id))
            .cloned()
            .collect()
    }

    /// The last comings and goings of an instance, oldest first.
    pub fn of(&self, id: &InstanceId) -> impl Iterator<Item = Flap> + '_ {
        self.history.get(id).into_iter().flatten().copied()
    }
}

fn is_flapping(flaps: &VecDeque<Flap>, now: Moment, damping: Damping) -> bool {
    let recent = flaps
        .iter()
        .filter(|flap| flap.came && now.since(flap.at) <= damping.window)
        .count();
    let settled = flaps
        .back()
        .is_some_and(|last| last.came && now.since(last.at) >= damping.stay);
    damping.window > Duration::ZERO && recent >= damping.times && !settled
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::sample::instance;

    fn at(seconds: u64) -> Moment {
        Moment(Duration::from_secs(seconds))
    }

    #[test]
    fn who_comes_and_goes_waits_until_it_stays() {
        let damping = Damping::default();
        let (steady, flapping) = (
            [instance(1).id, instance(2).id, instance(3).id],
            instance(4).id,
        );
        let mut flaps = Flaps::default();
        for round in 0..8 {
            let there = round % 2 == 1;
            let list = steady.iter().chain(there.then_some(&flapping));
            flaps.note(list, at(round * 5), damping);
        }
        assert_eq!(
            flaps.damped(at(36), damping),
            std::slice::from_ref(&flapping)
        );
        assert_eq!(flaps.of(&flapping).count(), 7);
        assert_eq!(flaps.of(&steady[0]).count(), 0);
        assert_eq!(flaps.damped(at(35 + 60), damping), []);
        assert_eq!(
            flaps.damped(
                at(36),
                Damping {
                    window: Duration::ZERO,
                    ..damping
                }
            ),
            []
        );
    }

    #[test]
    fn when_everybody_flaps_it_is_the_source() {
        let damping = Damping::default();
        let mut flaps = Flaps::default();
        let all: Vec<_> = (0..6).map(|n| instance(n).id).collect();
        for round in 0..12 {
            let list = if round % 2 == 0 { &all[..] } else { &[] };
            flaps.note(list.iter(), at(round * 5), damping);
        }
        flaps.note(all.iter(), at(60), damping);
        assert_eq!(flaps.damped(at(61), damping), []);
    }
}
