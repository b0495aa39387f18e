//! Services: announcing one, and reading who is registered and how each one fares.

use std::collections::BTreeMap;
use std::time::Duration;

use haplane_core::guard::Extent;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::consul::client::{Call, Client, Freshness, Target, decode, denied};
use crate::consul::kv::{Blocking, ReadHow};
use crate::consul::meta::{Meta, is_first_hand};
use crate::consul::settings::Consistency;
use crate::error::{StoreError, StoreErrorKind};

/// A service to announce to the Consul agent that is asked.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Registration {
    /// Unique on its node.
    #[serde(rename = "ID")]
    pub id: String,
    /// The name that others look for.
    pub name: String,
    /// Its address; empty for that of the node.
    pub address: String,
    /// Its port.
    pub port: u16,
    /// What else others may want to know.
    pub meta: BTreeMap<String, String>,
    /// Its health check.
    pub check: HttpCheck,
}

/// A check that Consul makes by HTTP: 2xx is passing.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct HttpCheck {
    /// The address to ask.
    #[serde(rename = "HTTP")]
    pub url: String,
    /// How often, in Go's notation, such as `10s`.
    pub interval: String,
    /// How long an answer may take.
    pub timeout: String,
    /// When Consul drops the service if it stays critical, such as `24h`.
    pub deregister_critical_service_after: String,
}

/// A service as the Consul agent beside us has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Registered {
    /// Its own address; empty for that of the node.
    #[serde(default)]
    pub address: String,
    /// Its port.
    #[serde(default)]
    pub port: i64,
    /// Its metadata.
    #[serde(default)]
    pub meta: BTreeMap<String, String>,
}

/// One registered instance of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Its id, unique on its node.
    pub id: String,
    /// The node that it is registered on.
    pub node: String,
    /// Its own address, else its node's.
    pub address: String,
    /// Its port as it is registered, whatever number that is.
    pub port: i64,
    /// Its tags.
    pub tags: Vec<String>,
    /// Its metadata.
    pub meta: BTreeMap<String, String>,
    /// The metadata of its node.
    pub node_meta: BTreeMap<String, String>,
    /// Its weight while passing.
    pub weight: i64,
    /// Its checks, and those of its node.
    pub checks: Vec<Check>,
}

/// One health check.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Check {
    /// Its id.
    #[serde(rename = "CheckID")]
    pub id: String,
    /// `passing`, `warning` or `critical`.
    pub status: String,
}

impl Instance {
    /// Whether the Consul agent of its node is alive.
    pub fn has_consul(&self) -> bool {
        let of_node = |check: &&Check| check.id == "serfHealth";
        let checks = self.checks.iter();
        checks
            .filter(of_node)
            .any(|check| check.status == "passing")
    }

    /// Whether every check passes.
    pub fn is_passing(&self) -> bool {
        self.checks.iter().all(|check| check.status == "passing")
    }
}

/// Who is registered, as of one index. An empty list is what a missing permission reads as, too, in versions
/// of Consul that do not say that they left something out (facts 8.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instances {
    /// What Consul says about the answer.
    pub meta: Meta,
    /// Whether the leader made sure that it leads before it answered.
    pub consistent: bool,
    /// All of them, or the passing ones where that was asked.
    pub list: Vec<Instance>,
}

/// Which instances are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// All that are registered, in whatever health.
    All,
    /// Those whose checks pass.
    Passing,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct WireInstance {
    node: WireNode,
    service: WireService,
    checks: Vec<Check>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct WireNode {
    node: String,
    address: String,
    #[serde(default)]
    meta: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct WireService {
    #[serde(rename = "ID")]
    id: String,
    address: String,
    port: i64,
    #[serde(default)]
    tags: Option<Vec<String>>,
    #[serde(default)]
    meta: Option<BTreeMap<String, String>>,
    #[serde(default)]
    weights: Option<WireWeights>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct WireWeights {
    passing: i64,
}

impl From<WireInstance> for Instance {
    fn from(wire: WireInstance) -> Self {
        let WireInstance {
            node,
            service,
            checks,
        } = wire;
        let address = if service.address.is_empty() {
            node.address
        } else {
            service.address
        };
        Self {
            id: service.id,
            node: node.node,
            address,
            port: service.port,
            tags: service.tags.unwrap_or_default(),
            meta: service.meta.unwrap_or_default(),
            node_meta: node.meta.unwrap_or_default(),
            weight: service.weights.map_or(1, |weights| weights.passing),
            checks,
        }
    }
}

impl Client {
    /// Reads the instances of a service once, consistent.
    pub async fn instances(&self, service: &str, which: Which) -> Result<Instances, StoreError> {
        self.read_instances(service, which, |_| ReadHow::CONSISTENT)
            .await
    }

    /// Waits until the instances have moved past an index, or for `wait`. On a connection that had
    /// to be made it reads at once, consistent: the index may be from before a loss of data.
    pub async fn instances_after(
        &self,
        service: &str,
        which: Which,
        index: u64,
        wait: Duration,
    ) -> Result<Instances, StoreError> {
        let begun = Instant::now();
        let parked = ReadHow {
            consistency: self.settings().consistency,
            blocking: Some(Blocking { index, wait }),
        };
        let read = self
            .read_instances(service, which, |freshness| match freshness {
                Freshness::New => ReadHow::CONSISTENT,
                Freshness::Reused => parked,
            })
            .await?;
        // A Consul that is restored from a backup ends the queries that wait, with what they knew; the
        // next one would wait for an index that is long to come.
        if !read.consistent && read.meta.index == index && begun.elapsed() < wait {
            return self.instances(service, which).await;
        }
        Ok(read)
    }

    async fn read_instances(
        &self,
        service: &str,
        which: Which,
        how: impl Fn(Freshness) -> ReadHow,
    ) -> Result<Instances, StoreError> {
        let doing = format!("reading the instances of service {service}");
        let target = Target::new("/v1/health/service/", service)
            .with_some("passing", (which == Which::Passing).then_some("1"));
        let (answer, freshness) = self
            .send_with(|freshness| how(freshness).call(target.clone()))
            .await?;
        is_first_hand(&answer.fields)?;
        let permission = format!(
            "service \"{service}\" {{ policy = \"read\" }} and node_prefix \"\" {{ policy = \"read\" }}"
        );
        if answer.status != StatusCode::OK {
            return Err(self.refusal(&answer, &doing, &permission));
        }
        let wire: Vec<WireInstance> = decode(&answer, &doing)?;
        let meta = Meta::from_fields(&answer.fields)?;
        if meta.extent == Extent::Filtered {
            return Err(denied(
                &doing,
                "some were left out of the list",
                &permission,
            ));
        }
        Ok(Instances {
            meta,
            consistent: how(freshness).consistency == Consistency::Consistent,
            list: wire.into_iter().map(Instance::from).collect(),
        })
    }

    /// Announces a service to the Consul agent that is asked; again is the same as once.
    pub async fn register(&self, registration: &Registration) -> Result<(), StoreError> {
        let doing = format!("registering service {}", registration.id);
        let target =
            Target::new("/v1/agent/service/register", "").with("replace-existing-checks", "true");
        let permission = format!("service \"{}\" {{ policy = \"write\" }}", registration.name);
        self.put_json(target, registration, &doing, &permission)
            .await
    }

    /// The metadata and place of a service as the Consul agent that is asked has it, if it has it.
    pub async fn registered(&self, name: &str, id: &str) -> Result<Option<Registered>, StoreError> {
        let doing = format!("reading service {id}");
        let answer = self
            .send(Call::get(Target::new("/v1/agent/service/", id)))
            .await?;
        match answer.status {
            StatusCode::OK => decode(&answer, &doing).map(Some),
            StatusCode::NOT_FOUND => Ok(None),
            _ => {
                let permission = format!("service \"{name}\" {{ policy = \"read\" }}");
                Err(self.refusal(&answer, &doing, &permission))
            }
        }
    }

    /// Takes a service back from the Consul agent that is asked.
    pub async fn deregister(&self, name: &str, id: &str) -> Result<(), StoreError> {
        let doing = format!("deregistering service {id}");
        let permission = format!("service \"{name}\" {{ policy = \"write\" }}");
        let target = Target::new("/v1/agent/service/deregister/", id);
        self.put_json(target, &(), &doing, &permission).await
    }

    /// Takes an instance on another node out of the catalog, for a node that is gone for good. A
    /// Consul agent that still runs there would announce it again.
    pub async fn forget_instance(&self, node: &str, id: &str) -> Result<(), StoreError> {
        #[derive(Serialize)]
        #[serde(rename_all = "PascalCase")]
        struct Gone<'a> {
            node: &'a str,
            #[serde(rename = "ServiceID")]
            service_id: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            datacenter: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            namespace: Option<&'a str>,
        }
        let gone = Gone {
            node,
            service_id: id,
            datacenter: self.settings().datacenter.as_deref(),
            namespace: self.settings().namespace.as_deref(),
        };
        let doing = format!("taking service {id} of node {node} out of the catalog");
        let permission =
            format!("node \"{node}\" {{ policy = \"write\" }} or the same for the service");
        let target = Target::new("/v1/catalog/deregister", "");
        self.put_json(target, &gone, &doing, &permission).await
    }

    async fn put_json(
        &self,
        target: Target,
        body: &impl Serialize,
        doing: &str,
        permission: &str,
    ) -> Result<(), StoreError> {
        let body = serde_json::to_vec(body).map_err(|source| {
            let what = format!("this cannot be written as JSON, {doing}");
            StoreError::new(StoreErrorKind::Config, what).because(source)
        })?;
        let answer = self.send(Call::put(target, body)).await?;
        match answer.status {
            StatusCode::OK => Ok(()),
            _ => Err(self.refusal(&answer, doing, permission)),
        }
    }
}
