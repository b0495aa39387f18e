//! What one node's rows can carry now and after a change: what `--min-ready` and the table weigh.

use std::collections::BTreeMap;

use haplane_core::Desired;
use haplane_core::floor::Load;
use haplane_core::outlook::Outlook;
use haplane_core::verdict::Verdict;

use crate::fleet::Node;
use crate::fleet::answers::RowAnswer;

/// One load for each row that can take traffic.
///
/// A slot of `haplane sync` asks with the name of the instance that it holds, and HAProxy shows it under its own: the
/// instance has no observation, the slot has no keys, and which belongs to which nobody can tell (ADR 6). So
/// instances are counted, and slots only say how heavy one is and how many are really in rotation.
pub(super) fn loads(node: &Node, before: &Outlook<'_>, after: &Outlook<'_>) -> Vec<Load> {
    let mut rows: Vec<Load> = Vec::new();
    let mut pools: BTreeMap<&str, Pool<'_>> = BTreeMap::new();
    for answer in &node.rows {
        let Some((backend, _)) = answer.row.split_once('/') else {
            continue;
        };
        match answer.keys() {
            Some((_, keys)) => {
                let (now, then) = (before.desired(&keys), after.desired(&keys));
                let load = |weight| Load {
                    backend: backend.to_owned(),
                    weight,
                    is_observed: is_weight_observed(answer),
                    healthy: takes_traffic(answer, now),
                    is_backup: is_backup(answer),
                    before: now,
                    after: then,
                };
                if answer.observed.is_some() {
                    rows.push(load(full_weight(answer, now)));
                } else {
                    let instance = load(share_of_slot(answer, now));
                    pools.entry(backend).or_default().instances.push(instance);
                }
            }
            None if is_answered_elsewhere(answer) => {
                pools.entry(backend).or_default().slots.push(answer);
            }
            None => rows.extend(out_of_reach(backend, answer)),
        }
    }
    rows.extend(pools.into_iter().flat_map(|(name, pool)| pool.loads(name)));
    rows
}

/// Rows of a backend of which only one half is known: those that ask, and those that HAProxy shows.
#[derive(Default)]
struct Pool<'n> {
    instances: Vec<Load>,
    slots: Vec<&'n RowAnswer>,
}

impl Pool<'_> {
    fn loads(mut self, backend: &str) -> Vec<Load> {
        if self.instances.is_empty() {
            // Nobody asks here: another agent answers them, so no write of ours moves them.
            let shown = self.slots.into_iter();
            return shown
                .filter_map(|slot| out_of_reach(backend, slot))
                .collect();
        }
        if self.slots.is_empty() {
            return self.instances;
        }
        let configured = self
            .slots
            .iter()
            .filter_map(|slot| slot.observed_number("configured_weight"));
        let weight = configured.max().unwrap_or(1);
        for load in &mut self.instances {
            load.weight = load.weight.saturating_mul(weight).div_ceil(100);
        }
        let open = self.slots.iter().filter(|slot| is_open(slot)).count();
        let meant = |load: &&mut Load| load.before.in_rotation();
        let missing = self.instances.iter_mut().filter(meant).count();
        let missing = missing.saturating_sub(open);
        // Which instances are down, or out by hand, nobody can tell: the worst is that they are those that stay.
        self.instances.sort_by_key(|load| !load.after.in_rotation());
        for load in self.instances.iter_mut().filter(meant).take(missing) {
            load.healthy = false;
        }
        self.instances
    }
}

/// A row that no write of ours reaches, but a part of its backend; a free slot in maint is none.
fn out_of_reach(backend: &str, answer: &RowAnswer) -> Option<Load> {
    (answer.observed_word("admin") != Some("maint")).then(|| Load {
        backend: backend.to_owned(),
        weight: full_weight(answer, Desired::READY),
        is_observed: is_weight_observed(answer),
        healthy: takes_traffic(answer, Desired::READY),
        is_backup: is_backup(answer),
        before: Desired::READY,
        after: Desired::READY,
    })
}

/// A row that HAProxy shows with an agent check, whose asks come under another name.
fn is_answered_elsewhere(answer: &RowAnswer) -> bool {
    answer.enrolled == Some(true) && answer.verdict() == Verdict::Unobserved
}

/// Whether a slot takes traffic, whatever it holds.
fn is_open(slot: &RowAnswer) -> bool {
    slot.observed_word("admin") == Some("ready")
        && slot.observed_word("operational") != Some("down")
}

fn is_backup(answer: &RowAnswer) -> bool {
    let backup = answer.observed.as_ref().and_then(|seen| seen.get("backup"));
    backup.and_then(serde_json::Value::as_bool) == Some(true)
}

/// Whether HAProxy's own weight of the row is known.
fn is_weight_observed(answer: &RowAnswer) -> bool {
    answer.observed_number("configured_weight").is_some()
}

/// The weight that the row has at 100 %.
fn full_weight(answer: &RowAnswer, now: Desired) -> u64 {
    if let Some(configured) = answer.observed_number("configured_weight") {
        return configured;
    }
    let in_force = answer
        .observed_number("weight")
        .filter(|weight| *weight > 0);
    in_force.map_or(1, |weight| at_full(weight, now))
}

/// How much of a slot's weight an instance has at 100 %, in percent: it may ask for less with `@N%`.
fn share_of_slot(answer: &RowAnswer, now: Desired) -> u64 {
    let mut words = answer.answer.as_deref().unwrap_or_default().split(' ');
    let share = words.find_map(|word| word.strip_suffix('%')?.parse().ok());
    share.map_or(100, |share| at_full(share, now)).max(1)
}

/// What a weight would be at 100 %.
fn at_full(weight: u64, now: Desired) -> u64 {
    match now {
        Desired::Weight(percent) if percent.get() > 0 => {
            weight.saturating_mul(100) / u64::from(percent.get())
        }
        _ => weight,
    }
}

/// Whether HAProxy would give it traffic, were it only for its checks and for what was set by hand.
fn takes_traffic(answer: &RowAnswer, now: Desired) -> bool {
    let admin = answer.observed_word("admin");
    // In maintenance there are no checks: what they will say nobody knows, so it counts as it is meant.
    let is_down = answer.observed_word("operational") == Some("down") && admin != Some("maint");
    let is_out = admin.is_some_and(|admin| admin != "ready");
    !(is_down || is_out && now.in_rotation())
}

#[cfg(test)]
mod tests;
