//! The passing instances of a Consul service, by one blocking query.
//!
//! A service that is unknown and one that may not be read both look empty (facts 8.5); that is for the guard to hold.
//! What this loop must not do is hand over an answer from a server that is behind: the first read, and the first after
//! every error, is consistent, and an index that went back is read again.

use std::collections::BTreeMap;
use std::time::Duration;

use haplane_core::backoff::Backoff;
use haplane_core::slots::{Endpoint, EndpointError, Instance, InstanceId};
use haplane_haproxy::Percent;
use haplane_store::consul::Client;
use haplane_store::consul::service::{self, Instances, Which};
use haplane_store::{StoreError, StoreErrorKind};
use tokio_util::sync::CancellationToken;

use super::{Failure, Heard, Listing, Place, Reading};
use crate::settings::PoolSettings;

/// A client blocked on an index from before a loss of data sleeps through changes until its wait ends (facts 8.1).
const WAIT: Duration = Duration::from_secs(30);
/// Between two reads, however fast the service changes.
const PACE: Duration = Duration::from_millis(100);

/// What one pool takes from a service.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The service.
    pub service: String,
    /// The metadata key of the zone.
    pub zone_key: String,
    /// Tags that an instance must have.
    pub tags: Vec<String>,
    /// Metadata that it must have.
    pub meta: Vec<(String, String)>,
}

impl Selection {
    /// What a pool takes from this service.
    pub fn new(service: &str, pool: &PoolSettings) -> Self {
        Self {
            service: service.to_owned(),
            zone_key: pool.zone_key.clone(),
            tags: pool.tags.clone(),
            meta: pool.meta.clone(),
        }
    }

    fn takes(&self, instance: &service::Instance) -> bool {
        self.tags.iter().all(|tag| instance.tags.contains(tag))
            && self
                .meta
                .iter()
                .all(|(key, value)| instance.meta.get(key) == Some(value))
    }

    fn failure(&self, why: impl Into<String>) -> Reading {
        Reading::Failed(Failure::Consul {
            service: self.service.clone(),
            why: why.into(),
        })
    }
}

/// Reads the service once.
pub async fn read(client: &Client, selection: &Selection) -> Reading {
    match client
        .instances(&selection.service, Which::Passing)
        .await
        .and_then(led)
    {
        Ok(instances) => Reading::List(understand(&instances.list, selection)),
        Err(error) => selection.failure(error.story()),
    }
}

/// Follows the service until stopped, handing over each reading; while its list is held it is read `again` and again.
pub async fn watch(
    client: Client,
    selection: Selection,
    again: Duration,
    mut hand_over: impl FnMut(Reading) -> Heard + Send,
    stop: CancellationToken,
) {
    let mut heard = Heard::Taken;
    let mut backoff = Backoff::new(PACE, Duration::from_millis(200), Duration::from_secs(2));
    let mut index = None;
    loop {
        // A permission that is back wakes nobody: what is held is asked for again, not only waited for.
        let wait = match heard {
            Heard::Taken => WAIT,
            Heard::Held => WAIT.min(again),
        };
        let read = next(&client, &selection.service, index, wait);
        let read = tokio::select! {
            () = stop.cancelled() => return,
            read = read => read,
        };
        let pause = match read {
            Ok(instances) => {
                backoff.reset();
                index = Some(instances.meta.index);
                heard = hand_over(Reading::List(understand(&instances.list, &selection)));
                PACE
            }
            Err(error) => {
                index = None;
                hand_over(selection.failure(error.story()));
                backoff.next_wait(fastrand::f64())
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

async fn next(
    client: &Client,
    service: &str,
    index: Option<u64>,
    wait: Duration,
) -> Result<Instances, StoreError> {
    let Some(index) = index else {
        return client
            .instances(service, Which::Passing)
            .await
            .and_then(led);
    };
    let read = client
        .instances_after(service, Which::Passing, index, wait)
        .await
        .and_then(led)?;
    if read.meta.index < index && !read.consistent {
        // It went back: a restored or a lagging server. Only a consistent read can tell.
        return client
            .instances(service, Which::Passing)
            .await
            .and_then(led);
    }
    Ok(read)
}

fn led(instances: Instances) -> Result<Instances, StoreError> {
    if instances.meta.known_leader {
        Ok(instances)
    } else {
        Err(StoreError::new(
            StoreErrorKind::Status,
            "the Consul server that answered knows no leader",
        ))
    }
}

fn understand(list: &[service::Instance], selection: &Selection) -> Listing {
    let chosen: Vec<_> = list
        .iter()
        .filter(|instance| selection.takes(instance))
        .collect();
    // Consul gives everything weight 1 unless told otherwise; only where somebody told it, the numbers mean something.
    let weighted = chosen.iter().any(|instance| instance.weight != 1);
    let mut by_id: BTreeMap<&str, usize> = BTreeMap::new();
    for instance in &chosen {
        *by_id.entry(&instance.id).or_default() += 1;
    }
    let mut listing = Listing::default();
    for (index, instance) in chosen.into_iter().enumerate() {
        // An id is unique on its node only, and is the service's name where nobody gave one.
        let everywhere_the_same = instance.id == selection.service;
        let twice = by_id
            .get(instance.id.as_str())
            .is_some_and(|count| *count > 1);
        let id = if everywhere_the_same || twice {
            format!("{}@{}", instance.id, instance.node)
        } else {
            instance.id.clone()
        };
        let understood = one(instance, &id, &selection.zone_key, weighted)
            .map_err(|why| format!("{} on {}: {why}", instance.id, instance.node));
        listing.push(Place::Entry(index + 1), understood);
    }
    listing
}

fn one(
    instance: &service::Instance,
    id: &str,
    zone_key: &str,
    weighted: bool,
) -> Result<Instance, String> {
    let address = instance.address.parse();
    let address = address.map_err(|_| format!("{:?} is not an IP address", instance.address))?;
    let port = u16::try_from(instance.port).unwrap_or_default();
    let endpoint = Endpoint::new(address, port).map_err(|error| match error {
        EndpointError::Port(_) => format!("{} is not a port from 1 to 65535", instance.port),
        error => error.to_string(),
    })?;
    let id: InstanceId = id.parse().map_err(|error| format!("{error}"))?;
    let weight =
        weighted.then(|| Percent::new(u16::try_from(instance.weight.clamp(1, 256)).unwrap_or(256)));
    let zone = instance
        .meta
        .get(zone_key)
        .or_else(|| instance.node_meta.get(zone_key));
    Ok(Instance {
        id,
        endpoint,
        zone: zone.cloned(),
        weight: weight.flatten(),
        groups: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registered(id: &str, address: &str, port: i64, weight: i64) -> service::Instance {
        service::Instance {
            id: id.into(),
            node: "n1".into(),
            address: address.into(),
            port,
            tags: vec!["v2".into()],
            meta: BTreeMap::from([("env".into(), "prod".into())]),
            node_meta: BTreeMap::from([("zone".into(), "a".into())]),
            weight,
            checks: Vec::new(),
        }
    }

    fn selection(tags: &[&str], meta: &[(&str, &str)]) -> Selection {
        Selection {
            service: "web".into(),
            zone_key: "zone".into(),
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            meta: meta
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
        }
    }

    #[test]
    fn what_is_no_endpoint_is_refused_and_the_rest_served() {
        let list = [
            registered("a", "10.0.0.1", 80, 1),
            registered("b", "10.0.0.2", 0, 1),
            registered("c", "10.0.0.3", 70_000, 1),
            registered("d", "web.example", 80, 1),
            registered("e e", "10.0.0.4", 80, 1),
            registered("f", "fd00::1", 80, 1),
        ];
        let listing = understand(&list, &selection(&[], &[]));
        let ids: Vec<_> = listing
            .instances
            .iter()
            .map(|instance| instance.id.as_str())
            .collect();
        assert_eq!((ids, listing.refused.len()), (vec!["a", "f"], 4));
        assert_eq!(listing.instances[0].zone.as_deref(), Some("a"));
    }

    #[test]
    fn ids_that_are_not_unique_name_their_node() {
        let mut list = ["web", "a", "b", "a"]
            .map(|id| registered(id, "10.0.0.1", 80, 1))
            .to_vec();
        list[3].node = "n2".into();
        let listing = understand(&list, &selection(&[], &[]));
        let ids: Vec<_> = listing
            .instances
            .iter()
            .map(|instance| instance.id.as_str())
            .collect();
        assert_eq!(ids, ["web@n1", "a@n1", "b", "a@n2"]);
    }

    #[test]
    fn weights_count_once_somebody_set_one() {
        let plain = understand(&[registered("a", "10.0.0.1", 80, 1)], &selection(&[], &[]));
        assert_eq!(plain.instances[0].weight, None);
        let list = [
            registered("a", "10.0.0.1", 80, 1),
            registered("b", "10.0.0.2", 80, 900),
        ];
        let weighted = understand(&list, &selection(&[], &[]));
        let weights: Vec<_> = weighted
            .instances
            .iter()
            .map(|instance| instance.weight.map(Percent::get))
            .collect();
        assert_eq!(weights, [Some(1), Some(256)]);
    }

    #[test]
    fn tags_and_metadata_choose() {
        let list = [registered("a", "10.0.0.1", 80, 1)];
        let count = |tags: &[&str], meta: &[(&str, &str)]| {
            understand(&list, &selection(tags, meta)).instances.len()
        };
        assert_eq!(
            (
                count(&["v2"], &[("env", "prod")]),
                count(&["v1"], &[]),
                count(&[], &[("env", "x")])
            ),
            (1, 0, 0)
        );
    }
}
