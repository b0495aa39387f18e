//! The day of the outage, in memory: 75 % more instances than ever, past the slots; hours of churn; and in the evening
//! the oldest go first. Beside it the order that caused it: look for free slots first, give up when there are none.

use std::collections::BTreeSet;

use haplane_core::slots::world::World;
use haplane_core::slots::{
    Agent, Answers, Endpoint, Health, Instance, Memory, Mode, Moment, Opening, Outcome, ProcessId,
    Removal, Stage, Wanted, plan,
};

use super::chaos::{instance, policy, slot};

const SLOTS: usize = 40;

/// The list over the day, oldest instance first.
fn the_day() -> Vec<Vec<Instance>> {
    let mut lists = Vec::new();
    let mut live: Vec<_> = (0..26).map(instance).collect();
    lists.push(live.clone());
    let mut next = 26;
    // The morning: 75 % more.
    while live.len() < 46 {
        live.push(instance(next));
        next += 1;
    }
    lists.push(live.clone());
    // Hours of churn: some of the oldest go, as many new ones come.
    for _ in 0..60 {
        live.drain(..2);
        live.extend((next..next + 2).map(instance));
        next += 2;
        lists.push(live.clone());
    }
    // The evening: down to where it was, oldest first.
    while live.len() > 26 {
        live.drain(..2);
        lists.push(live.clone());
    }
    lists
}

fn fresh() -> World {
    World {
        process: ProcessId {
            pid: 1,
            started_at: 1,
        },
        slots: (1..=SLOTS)
            .map(|n| slot(n, Agent::Absent, Health::Unchecked))
            .collect(),
        sends: std::collections::BTreeMap::new(),
    }
}

/// How many of the live instances are in rotation, as a share of what fits.
fn share(world: &World, live: &[Instance]) -> f64 {
    let served: BTreeSet<_> = world
        .slots
        .iter()
        .filter(|slot| slot.in_rotation())
        .filter_map(|slot| slot.endpoint)
        .collect();
    let good = live
        .iter()
        .filter(|instance| served.contains(&instance.endpoint))
        .count();
    let fits = live.len().min(SLOTS);
    f64::from(u32::try_from(good).unwrap()) / f64::from(u32::try_from(fits).unwrap())
}

fn ours(lists: &[Vec<Instance>]) -> Vec<f64> {
    let (mut world, mut memory, policy) = (fresh(), Memory::default(), policy(Mode::Slots));
    let now = Moment::default();
    let mut shares = Vec::new();
    for list in lists {
        let wanted = Wanted {
            serve: list.clone(),
            removal: Removal::Allowed,
            damped: Vec::new(),
        };
        loop {
            let observed = world.observe();
            memory.see(&observed, now);
            let plan = plan(&observed, &wanted, &policy, &memory, &Answers::new(), now);
            for planned in plan.steps() {
                memory.begin(&planned.step, planned.reason, now);
                for command in planned.step.commands(&policy.backend, Opening::READY) {
                    assert!(world.apply(&command));
                }
                memory.end(&planned.step, Outcome::Done, Opening::READY, now);
            }
            memory.note_waiting(&plan, &wanted, now);
            if plan.is_empty() && !plan.under_way {
                assert_eq!(plan.homeless.len(), list.len().saturating_sub(SLOTS));
                break;
            }
        }
        shares.push(share(&world, list));
    }
    assert!(
        memory
            .slots()
            .all(|(_, slot)| matches!(slot.stage, Stage::Active | Stage::Free))
    );
    shares
}

/// The home-made script of the second background document: fill first, free afterwards, exit when full.
fn naive(lists: &[Vec<Instance>]) -> Vec<f64> {
    let mut world = fresh();
    let mut shares = Vec::new();
    for list in lists {
        naive_round(&mut world, list);
        shares.push(share(&world, list));
    }
    shares
}

fn naive_round(world: &mut World, list: &[Instance]) {
    let served = |world: &World, endpoint: Endpoint| {
        world
            .slots
            .iter()
            .any(|slot| slot.in_rotation() && slot.endpoint == Some(endpoint))
    };
    for instance in list {
        if !served(world, instance.endpoint) {
            let Some(slot) = world.slots.iter_mut().find(|slot| !slot.in_rotation()) else {
                return;
            };
            slot.endpoint = Some(instance.endpoint);
            slot.admin = haplane_haproxy::AdminState::Ready;
        }
    }
    let live: BTreeSet<_> = list.iter().map(|instance| instance.endpoint).collect();
    for slot in &mut world.slots {
        if slot.in_rotation()
            && slot
                .endpoint
                .is_none_or(|endpoint| !live.contains(&endpoint))
        {
            slot.admin = haplane_haproxy::AdminState::Maint;
        }
    }
}

#[test]
fn what_fits_is_served_all_day_and_the_naive_order_collapses() {
    let lists = the_day();
    let ours = ours(&lists);
    assert!(
        ours.iter().all(|share| (*share - 1.0).abs() < f64::EPSILON),
        "{ours:?}"
    );
    let naive = naive(&lists);
    assert!(naive.iter().any(|share| *share < 0.1), "{naive:?}");
}

/// Everything is replaced at once while every slot is taken.
#[test]
fn a_full_replacement_while_full() {
    let lists = vec![
        (0..40).map(instance).collect(),
        (100..160).map(instance).collect::<Vec<_>>(),
    ];
    assert_eq!(ours(&lists), [1.0, 1.0]);
}
