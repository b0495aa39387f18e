//! Who gets which free slot, and who gets none.

use std::collections::{BTreeMap, BTreeSet};

use haplane_haproxy::ServerName;

use super::super::memory::Memory;
use super::super::model::{Endpoint, Instance, InstanceId, Mode, Observed, ObservedSlot};
use super::super::reason::Reason;
use super::super::step::{Kind, Step};
use super::super::words::Words;
use super::{Homeless, Planned, Planner};

impl<'a> Planner<'a> {
    /// Gives everyone who has no slot a free one, and lists those for whom there is none.
    pub(super) fn place_the_rest(&mut self, observed: &'a Observed) {
        let wanted = self.wanted;
        let mut waiting: Vec<&Instance> = wanted
            .serve
            .iter()
            .filter(|instance| !self.taken.contains(&instance.endpoint))
            .collect();
        // Whoever has waited longest; among equals the first of the list.
        waiting.sort_by_key(|instance| self.waiting_since(instance));
        let damped: BTreeSet<_> = wanted.damped.iter().collect();
        let mut room = match &self.policy.mode {
            Mode::Slots => Room::slots(self.memory, &self.free, &self.leaving),
            Mode::Dynamic {
                prefix,
                most,
                parameters,
                ..
            } => Room::dynamic(observed, prefix, *most, parameters),
        };
        for instance in waiting {
            if damped.contains(&instance.id) {
                self.plan.damped.push(instance.clone());
            } else if self.memory.in_trouble(&instance.id, self.now) {
                self.plan.refused.push(instance.clone());
                self.plan.under_way = true;
            } else {
                self.place(instance, &mut room);
            }
        }
        self.make_the_dead_give_way();
    }

    fn place(&mut self, instance: &'a Instance, room: &mut Room<'a>) {
        match room {
            _ if Words::of(instance, self.policy, 1).is_err() => {
                self.plan.refused.push(instance.clone());
            }
            Room::Slots {
                at_home,
                longest_free,
                used,
            } => {
                let home = at_home.get(&instance.endpoint).copied();
                let slot = home
                    .into_iter()
                    .chain(longest_free.by_ref())
                    .find(|slot| used.insert(&slot.server));
                match slot {
                    Some(slot) => self.prepare(slot, instance, Reason::Joined),
                    None => self.no_room(instance),
                }
            }
            Room::Dynamic {
                prefix,
                parameters,
                names,
                left,
            } => match server_name(prefix, &instance.id) {
                None => self.plan.refused.push(instance.clone()),
                // Its old server, at another address or on its way out, keeps the name for a moment longer.
                Some(server) if *left == 0 || names.contains(&server) => self.no_room(instance),
                Some(server) => {
                    *left -= 1;
                    names.insert(server.clone());
                    let kind = Kind::Add {
                        instance: instance.clone(),
                        parameters: (*parameters).to_owned(),
                    };
                    self.plan.fills.push(Planned {
                        step: Step { slot: server, kind },
                        reason: Reason::Joined,
                        telling: true,
                    });
                    self.plan.under_way = true;
                }
            },
        }
    }

    fn no_room(&mut self, instance: &Instance) {
        let since = self.waiting_since(instance);
        self.plan.homeless.push(Homeless {
            instance: instance.clone(),
            since,
        });
    }

    /// While a list is held nothing goes but what HAProxy itself finds down, and that only as far as it is needed.
    fn make_the_dead_give_way(&mut self) {
        let needed = self.plan.homeless.len().saturating_sub(self.soon_free);
        let dead: Vec<_> = self.may_give_way.drain(..).take(needed).collect();
        for slot in dead {
            self.retire(slot, Reason::GaveWay);
        }
    }
}

/// What there is for those who have no slot.
enum Room<'a> {
    Slots {
        /// Slots that already have an address.
        at_home: BTreeMap<Endpoint, &'a ObservedSlot>,
        /// Free slots, the one that has been free longest first.
        longest_free: std::vec::IntoIter<&'a ObservedSlot>,
        used: BTreeSet<&'a ServerName>,
    },
    Dynamic {
        prefix: &'a str,
        parameters: &'a str,
        names: BTreeSet<ServerName>,
        left: usize,
    },
}

impl<'a> Room<'a> {
    fn slots(memory: &Memory, free: &[&'a ObservedSlot], leaving: &[&'a ObservedSlot]) -> Self {
        let all = leaving.iter().chain(free);
        let at_home = all
            .filter_map(|slot| Some((slot.endpoint?, *slot)))
            .collect();
        let mut longest_free = free.to_vec();
        longest_free.sort_by_key(|slot| memory.slot(&slot.server).map(|memory| memory.since));
        Self::Slots {
            at_home,
            longest_free: longest_free.into_iter(),
            used: BTreeSet::new(),
        }
    }

    fn dynamic(observed: &Observed, prefix: &'a str, most: usize, parameters: &'a str) -> Self {
        let names: BTreeSet<_> = observed
            .slots
            .iter()
            .map(|slot| slot.server.clone())
            .collect();
        let left = most.saturating_sub(names.len());
        Self::Dynamic {
            prefix,
            parameters,
            names,
            left,
        }
    }
}

/// The name of the dynamic server of an instance: the prefix and its id, with `_` for what HAProxy's names cannot hold.
fn server_name(prefix: &str, id: &InstanceId) -> Option<ServerName> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    let id: String = id
        .as_str()
        .chars()
        .map(|c| if allowed(c) { c } else { '_' })
        .collect();
    format!("{prefix}{id}").parse().ok()
}
