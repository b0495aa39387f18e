//! Announces the agent to Consul, so that the fleet commands find it.
//!
//! The service stays registered when the agent stops: a stopped agent must not make a proof of
//! convergence easier. Consul drops it after a day, `haplane forget` at once. A pod's agent is another
//! thing: where `leave` is set, it takes its service back as the last thing that it does.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use haplane_store::consul::service::{HttpCheck, Registration};
use haplane_store::{AnyStore, StoreError};
use tokio_util::sync::CancellationToken;

/// The service's name.
pub const SERVICE: &str = "haplane-agent";

/// Consul forgets services when it loses its data; registering again changes nothing otherwise.
const AGAIN: Duration = Duration::from_mins(1);
/// After a failure.
const RETRY: Duration = Duration::from_secs(10);

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

/// Announces, and again every minute, until stopped. A failure is told once; it changes nothing for
/// HAProxy.
pub async fn keep_registered(
    store: Arc<AnyStore>,
    registration: Registration,
    at_the_end: AtTheEnd,
    stop: CancellationToken,
) {
    let mut told = false;
    let mut welcome = Some(told_of(&registration));
    loop {
        let pause = match announce(&store, &registration).await {
            Ok(()) => {
                told = false;
                if let Some(welcome) = welcome.take() {
                    tracing::info!(service = %registration.id, "{welcome}");
                }
                AGAIN
            }
            Err(error) => {
                if !told {
                    let error = error.story();
                    tracing::warn!(%error, "cannot register in Consul; fleet commands will not find this agent");
                    told = true;
                }
                RETRY
            }
        };
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

async fn announce(store: &AnyStore, registration: &Registration) -> Result<(), StoreError> {
    match store.consul() {
        Some(consul) => consul.register(registration).await,
        None => Ok(()),
    }
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
}
