//! Announces the agent to Consul, so that the fleet commands find it.
//!
//! The service stays registered when the agent stops: a stopped agent must not make a proof of
//! convergence easier. Consul drops it after a day, `haplane forget` at once. A pod's agent is another
//! thing: where `leave` is set, it takes its service back as the last thing that it does.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use haplane_store::AnyStore;
use haplane_store::consul::service::{HttpCheck, Registered, Registration};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The service's name.
pub const SERVICE: &str = "haplane-agent";

/// Consul forgets services when it loses its data; registering again changes nothing otherwise.
const AGAIN: Duration = Duration::from_mins(1);
/// How often it is looked whether the registration is still ours.
const LOOK: Duration = Duration::from_secs(5);
/// As many looks without a rival, and it is gone.
const LOOKS_ALONE: u32 = 3;

/// Tells this process from any other that registers by the same name.
const INSTANCE: &str = "instance";

/// Whether another agent registers by this node's name, and where it is. Behind one Consul agent the later
/// registration replaces the earlier, and whoever looks for the fleet finds one of the two.
#[derive(Clone, Debug, Default)]
pub struct Rival(Arc<Mutex<Option<String>>>);

impl Rival {
    /// What is to be said of it.
    pub fn get(&self) -> Option<String> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set(&self, rival: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = rival;
    }
}

/// The agent as Consul is to know it.
pub fn registration(node: &str, version: &str, http: SocketAddr) -> Registration {
    let probed = if http.ip().is_unspecified() {
        SocketAddr::new(loopback_of(http), http.port())
    } else {
        http
    };
    // Bound to every address: others reach it at the node's own.
    let address = if http.ip().is_unspecified() {
        String::new()
    } else {
        http.ip().to_string()
    };
    Registration {
        id: format!("{SERVICE}-{node}"),
        name: SERVICE.to_owned(),
        address,
        port: http.port(),
        meta: BTreeMap::from([
            ("node".to_owned(), node.to_owned()),
            ("version".to_owned(), version.to_owned()),
            (INSTANCE.to_owned(), format!("{:016x}", fastrand::u64(..))),
        ]),
        check: HttpCheck {
            url: format!("http://{probed}/readyz"),
            interval: "10s".to_owned(),
            timeout: "2s".to_owned(),
            deregister_critical_service_after: "24h".to_owned(),
        },
    }
}

fn loopback_of(address: SocketAddr) -> IpAddr {
    if address.is_ipv4() {
        Ipv4Addr::LOCALHOST.into()
    } else {
        Ipv6Addr::LOCALHOST.into()
    }
}

/// How long leaving may take: the agent ends within five seconds, whatever Consul does.
const LEAVE_WITHIN: Duration = Duration::from_secs(2);

/// What becomes of the registration when the agent stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtTheEnd {
    /// It stays: the node is still one that has to follow.
    Stay,
    /// It goes: the node has ended for good.
    Leave,
}

/// Announces, and again every minute or when another one took its place, until stopped. A failure is told
/// once; it changes nothing for HAProxy.
pub async fn keep_registered(
    store: Arc<AnyStore>,
    registration: Registration,
    rival: Rival,
    at_the_end: AtTheEnd,
    stop: CancellationToken,
) {
    let mut announcer = Announcer {
        registration: &registration,
        rival,
        announced: None,
        looks_alone: 0,
        told: false,
        welcome: Some(told_of(&registration)),
    };
    loop {
        let pause = announcer.turn(&store).await;
        if stop
            .run_until_cancelled(tokio::time::sleep(pause))
            .await
            .is_none()
        {
            break;
        }
    }
    if at_the_end == AtTheEnd::Leave {
        leave(&store, &registration).await;
    }
}

/// What there is to say of it once. A fleet whose agents all name loopback cannot be asked from one place.
fn told_of(registration: &Registration) -> String {
    let port = registration.port;
    match registration.address.parse::<IpAddr>() {
        Ok(ip) if ip.is_loopback() => format!(
            "registered in Consul at {}; commands on other machines do not reach this agent there: see [http] listen \
             and allow_remote",
            SocketAddr::new(ip, port)
        ),
        Ok(ip) => format!("registered in Consul at {}", SocketAddr::new(ip, port)),
        Err(_) => format!("registered in Consul at port {port} of this node"),
    }
}

struct Announcer<'r> {
    registration: &'r Registration,
    rival: Rival,
    /// When it was announced last.
    announced: Option<Instant>,
    looks_alone: u32,
    /// Whether it was told that it fails.
    told: bool,
    /// What there is to say when it is there for the first time.
    welcome: Option<String>,
}

impl Announcer<'_> {
    /// Looks, and announces where that is due. Gives the time until the next turn.
    async fn turn(&mut self, store: &AnyStore) -> Duration {
        let Some(consul) = store.consul() else {
            return AGAIN;
        };
        // Before the first time, whoever stands there may be we ourselves, before a restart.
        if let Some(announced) = self.announced {
            let registered = consul.registered(SERVICE, &self.registration.id).await;
            let is_in_place = match registered {
                Ok(Some(there)) => self.is_ours(&there),
                Ok(None) => false,
                // What cannot be read says nothing.
                Err(_) => true,
            };
            if is_in_place && announced.elapsed() < AGAIN {
                return LOOK;
            }
        }
        match consul.register(self.registration).await {
            Ok(()) => {
                self.announced = Some(Instant::now());
                self.told = false;
                if let Some(welcome) = self.welcome.take() {
                    tracing::info!(service = %self.registration.id, "{welcome}");
                }
            }
            Err(error) => {
                if !self.told {
                    let error = error.story();
                    tracing::warn!(%error, "cannot register in Consul; fleet commands will not find this agent");
                    self.told = true;
                }
            }
        }
        LOOK
    }

    /// Whether it is us who stands in our place. Takes note of a rival.
    fn is_ours(&mut self, there: &Registered) -> bool {
        let before = self.rival.get();
        if let Some(rival) = rival_in(there, self.registration) {
            self.looks_alone = 0;
            if before.is_none() {
                tracing::error!("{rival}");
            }
            self.rival.set(Some(rival));
            return false;
        }
        self.looks_alone += 1;
        if before.is_some() && self.looks_alone >= LOOKS_ALONE {
            tracing::info!("no other agent registers by the name of this node any more");
            self.rival.set(None);
        }
        true
    }
}

/// What is to be said of a registration in our place that is not ours.
fn rival_in(registered: &Registered, ours: &Registration) -> Option<String> {
    if registered.meta.get(INSTANCE) == ours.meta.get(INSTANCE) {
        return None;
    }
    let node = ours.meta.get("node").map_or("", String::as_str);
    let Registered { address, port, .. } = registered;
    let place = if address.is_empty() {
        format!("port {port} of the same Consul node")
    } else {
        format!("{address}:{port}")
    };
    Some(format!(
        "another agent registers as node {node} too, at {place}, and takes the place of this one: only one of \
         them is found; give each its own `node`"
    ))
}

async fn leave(store: &AnyStore, registration: &Registration) {
    let Some(consul) = store.consul() else { return };
    let left = consul.deregister(&registration.name, &registration.id);
    let trouble = match tokio::time::timeout(LEAVE_WITHIN, left).await {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error.story(),
        Err(_) => format!("no answer within {LEAVE_WITHIN:?}"),
    };
    tracing::warn!(error = %trouble, "cannot leave the fleet; `haplane forget` takes this node out");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_means_all_is_left_to_the_node() {
        let all = registration("lb-01", "1.0.0", "0.0.0.0:9778".parse().unwrap());
        assert_eq!(all.address, "");
        assert_eq!(all.check.url, "http://127.0.0.1:9778/readyz");
        assert_eq!(
            told_of(&all),
            "registered in Consul at port 9778 of this node"
        );
        let one = registration("lb-01", "1.0.0", "[::1]:9778".parse().unwrap());
        assert_eq!(one.address, "::1");
        assert!(told_of(&one).contains("at [::1]:9778; commands on other machines do not"));
        let fleet = registration("lb-01", "1.0.0", "192.0.2.1:9778".parse().unwrap());
        assert_eq!(told_of(&fleet), "registered in Consul at 192.0.2.1:9778");
        assert_eq!(one.check.url, "http://[::1]:9778/readyz");
        assert_eq!(one.id, "haplane-agent-lb-01");
    }

    #[test]
    fn only_another_process_is_a_rival() {
        let registration = |node| registration(node, "1.0.0", "10.0.0.1:9778".parse().unwrap());
        let (ours, other) = (registration("lb-01"), registration("lb-01"));
        let as_registered = |one: &Registration| Registered {
            address: one.address.clone(),
            port: i64::from(one.port),
            meta: one.meta.clone(),
        };
        assert_eq!(rival_in(&as_registered(&ours), &ours), None);
        let told = rival_in(&as_registered(&other), &ours).unwrap();
        assert!(
            told.contains("lb-01") && told.contains("10.0.0.1:9778"),
            "{told}"
        );
    }
}
