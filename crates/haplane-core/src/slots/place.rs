//! One instance, one slot: which of several claims on an id or an address counts.

use std::collections::{BTreeMap, BTreeSet};

use super::model::{Endpoint, Instance, InstanceId};

/// An instance that was left out because another one has its id or its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// Who was left out.
    pub instance: Instance,
    /// Who has the id or the address.
    pub kept: InstanceId,
    /// What they share.
    pub shared: Shared,
}

/// What two instances cannot share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shared {
    /// The id.
    Id,
    /// Address and port.
    Endpoint,
}

/// The list with one instance for every id and every address: the one already served stays, else the first. `served`
/// says who has a slot now.
pub fn without_duplicates(
    instances: Vec<Instance>,
    served: &BTreeMap<Endpoint, InstanceId>,
) -> (Vec<Instance>, Vec<Rejected>) {
    let mut order: Vec<usize> = (0..instances.len()).collect();
    let is_served = |instance: &Instance| served.get(&instance.endpoint) == Some(&instance.id);
    order.sort_by_key(|&index| !instances.get(index).is_some_and(is_served));
    let mut by_id = BTreeMap::new();
    let mut by_endpoint: BTreeMap<Endpoint, InstanceId> = BTreeMap::new();
    let mut kept = BTreeSet::new();
    let mut rejected = Vec::new();
    for index in order {
        let Some(instance) = instances.get(index) else {
            continue;
        };
        let clash = by_id
            .get(&instance.id)
            .map(|id: &InstanceId| (id.clone(), Shared::Id))
            .or_else(|| {
                by_endpoint
                    .get(&instance.endpoint)
                    .map(|id| (id.clone(), Shared::Endpoint))
            });
        if let Some((kept, shared)) = clash {
            rejected.push(Rejected {
                instance: instance.clone(),
                kept,
                shared,
            });
        } else {
            by_id.insert(instance.id.clone(), instance.id.clone());
            by_endpoint.insert(instance.endpoint, instance.id.clone());
            kept.insert(index);
        }
    }
    let list = instances
        .into_iter()
        .enumerate()
        .filter_map(|(index, instance)| kept.contains(&index).then_some(instance))
        .collect();
    (list, rejected)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::sample::instance;

    #[test]
    fn the_one_already_served_stays() {
        let mut twin = instance(2);
        twin.endpoint = instance(1).endpoint;
        let mut namesake = instance(3);
        namesake.id = instance(1).id;
        let list = vec![twin.clone(), instance(1), namesake.clone(), instance(4)];

        let (kept, rejected) = without_duplicates(list.clone(), &BTreeMap::new());
        assert_eq!(kept, [twin.clone(), namesake.clone(), instance(4)]);
        assert_eq!(rejected.len(), 1);
        assert_eq!(
            (rejected[0].shared, &rejected[0].kept),
            (Shared::Endpoint, &twin.id)
        );

        let served = BTreeMap::from([(instance(1).endpoint, instance(1).id)]);
        let (kept, rejected) = without_duplicates(list, &served);
        assert_eq!(kept, [instance(1), instance(4)]);
        assert_eq!(rejected.len(), 2);
    }
}
