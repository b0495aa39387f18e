//! The fleet: where the agents are, and asking them, all at once and each with a deadline.

pub mod answers;
pub(crate) mod http;
mod rows;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use haplane_core::clock;
use haplane_core::converge::{Absentee, NodeReport};
use haplane_core::{Key, Snapshot};
use haplane_store::consul::Client;
use haplane_store::consul::service::{Instance, Which};
use haplane_store::{AnyStore, StoreError};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

pub use self::http::AgentAddress;
pub(crate) use self::http::Connection;
use answers::{NodeAnswer, RowAnswer};
pub use rows::rows_of_files;

/// The Consul service that agents register as.
pub const SERVICE: &str = "haplane-agent";
/// How long one agent may take for all that it is asked.
pub const DEADLINE: Duration = Duration::from_secs(5);
/// Agents asked at the same time.
const AT_ONCE: usize = 64;

/// One agent that should answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// The name that it registered with.
    pub name: Option<String>,
    /// Where it answers.
    pub address: AgentAddress,
}

/// All agents that should answer.
#[derive(Clone, Debug, Default)]
pub struct Fleet {
    agents: Vec<Agent>,
    /// The marker of the store that they have to follow, where it has one.
    marker: Option<String>,
    /// Why nobody can be asked, when that is so.
    nobody: Option<String>,
}

/// How much of an agent is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// The node and its rows.
    Rows,
    /// The rows only when its snapshot has come this far: before that they prove nothing.
    RowsFrom(u64),
}

/// One agent's answer.
#[derive(Clone, Debug)]
pub struct Node {
    /// Where it was asked.
    pub address: AgentAddress,
    /// What it says of itself.
    pub answer: NodeAnswer,
    /// How far its host's clock is ahead, where it is another than ours.
    pub ahead: Option<SignedDuration>,
    /// Its rows, those that still ask.
    pub rows: Vec<RowAnswer>,
}

/// One agent that did not answer, or the reason why there is none to be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The name that it registered with.
    pub name: Option<String>,
    /// Where it was asked, or where agents were looked for.
    pub address: String,
    /// Why it gave no answer.
    pub why: String,
}

impl Missing {
    /// The node as the proof names it.
    pub fn absentee(&self) -> Absentee {
        Absentee {
            node: self.name.clone().unwrap_or_else(|| self.address.clone()),
            why: self.why.clone(),
        }
    }
}

/// What all said.
#[derive(Clone, Debug, Default)]
pub struct Census {
    /// Those who answered, by name.
    pub nodes: Vec<Node>,
    /// Those who did not.
    pub absent: Vec<Missing>,
}

impl Fleet {
    /// The agents at these addresses. One that is named twice is one agent, and proves itself once.
    pub fn at(addresses: impl IntoIterator<Item = AgentAddress>) -> Self {
        let mut seen = BTreeSet::new();
        let agents = addresses
            .into_iter()
            .filter(|address| seen.insert(address.clone()))
            .map(|address| Agent {
                name: None,
                address,
            })
            .collect();
        Self {
            agents,
            nobody: None,
            ..Self::default()
        }
    }

    /// The agents that are registered in Consul, whatever their checks say: a stopped agent must not
    /// make a proof easier.
    pub async fn registered(client: &Client) -> Result<Self, StoreError> {
        let instances = client.instances(SERVICE, Which::All).await?;
        let agents: Vec<Agent> = instances.list.iter().map(agent_of).collect();
        let nobody = agents.is_empty().then(|| {
            format!(
                "no agent is registered in Consul as service {SERVICE} (or the token may not see it: \
                 it needs service \"{SERVICE}\" and node_prefix \"\" read)"
            )
        });
        Ok(Self {
            agents,
            nobody,
            ..Self::default()
        })
    }

    /// The agents that stand beside this store: registered in its Consul, or the local one of a
    /// directory.
    pub async fn beside(store: &AnyStore, local: AgentAddress) -> Self {
        let Some(client) = store.consul() else {
            return Self::at([local]);
        };
        Self::registered(client).await.unwrap_or_else(|error| Self {
            agents: Vec::new(),
            nobody: Some(format!("the agents cannot be looked up: {}", error.story())),
            ..Self::default()
        })
    }

    /// Those of them that follow the store of this snapshot. One that follows another store, because the address or the
    /// prefix is mistyped here or there, proves nothing.
    #[must_use]
    pub fn following(mut self, snapshot: &Snapshot) -> Self {
        self.marker = snapshot.marker.as_ref().map(ToString::to_string);
        self
    }

    /// With this agent added when none was found: an agent answers, whatever happens to the store that would lead to
    /// it.
    #[must_use]
    pub fn or_at(mut self, address: AgentAddress) -> Self {
        if self.agents.is_empty() {
            let name = None;
            self.agents.push(Agent { name, address });
        }
        self
    }

    /// Asks all of them.
    pub async fn ask(&self, depth: Depth) -> Census {
        self.ask_within(depth, DEADLINE).await
    }

    /// Asks all of them; none gets longer than this.
    pub async fn ask_within(&self, depth: Depth, deadline: Duration) -> Census {
        let gate = Arc::new(Semaphore::new(AT_ONCE));
        let mut asking = JoinSet::new();
        for agent in &self.agents {
            let agent = agent.clone();
            let gate = Arc::clone(&gate);
            let marker = self.marker.clone();
            asking.spawn(async move {
                // The semaphore is never closed; even without a permit the agent would be asked.
                let _permit = gate.acquire_owned().await;
                let node = ask_one(&agent, depth, deadline).await?;
                match marker.and_then(|ours| node.answer.store.other_than(&ours)) {
                    Some(why) => Err(agent.missing(why)),
                    None => Ok(node),
                }
            });
        }
        let mut census = Census::default();
        while let Some(joined) = asking.join_next().await {
            match joined {
                Ok(Ok(node)) => census.nodes.push(node),
                Ok(Err(missing)) => census.absent.push(missing),
                Err(error) => census.absent.push(Missing {
                    name: None,
                    address: "(an agent)".to_owned(),
                    why: error.to_string(),
                }),
            }
        }
        if let Some(why) = &self.nobody {
            census.absent.push(Missing {
                name: None,
                address: format!("service {SERVICE}"),
                why: why.clone(),
            });
        }
        census
            .nodes
            .sort_by(|a, b| (&a.answer.node, &a.address).cmp(&(&b.answer.node, &b.address)));
        census
            .absent
            .sort_by(|a, b| (&a.name, &a.address).cmp(&(&b.name, &b.address)));
        census
    }

    /// Only these agents of it, by address.
    #[must_use]
    pub fn only(&self, wanted: impl Fn(&AgentAddress) -> bool) -> Self {
        Self {
            agents: self
                .agents
                .iter()
                .filter(|agent| wanted(&agent.address))
                .cloned()
                .collect(),
            marker: self.marker.clone(),
            nobody: self.nobody.clone(),
        }
    }
}

/// One that is registered with a port that is none cannot be asked, and counts all the same: at port 0 nobody
/// answers.
fn agent_of(instance: &Instance) -> Agent {
    let port = u16::try_from(instance.port).unwrap_or(0);
    Agent {
        name: Some(instance.meta.get("node").unwrap_or(&instance.node).clone()),
        address: AgentAddress::new(instance.address.clone(), port),
    }
}

impl Agent {
    fn missing(&self, why: String) -> Missing {
        Missing {
            name: self.name.clone(),
            address: self.address.to_string(),
            why,
        }
    }
}

async fn ask_one(agent: &Agent, depth: Depth, deadline: Duration) -> Result<Node, Missing> {
    let asked = tokio::time::timeout(deadline, converse(agent, depth)).await;
    let said = asked.unwrap_or_else(|_| Err(format!("no whole answer within {deadline:?}")));
    said.map_err(|why| {
        agent.missing(format!(
            "its agent at {} does not answer: {why}",
            agent.address
        ))
    })
}

async fn converse(agent: &Agent, depth: Depth) -> Result<Node, String> {
    let mut connection = Connection::dial(&agent.address).await?;
    let asked = Timestamp::now();
    let answer: NodeAnswer = connection.get("/v1/node").await?;
    let answered = Timestamp::now();
    // An agent elsewhere that registered a loopback address leads to whoever listens on this machine.
    if let Some(name) = agent.name.as_ref().filter(|name| **name != answer.node) {
        return Err(format!(
            "{} answers there instead; is {name}'s [http] listen a loopback address?",
            answer.node
        ));
    }
    let wants_rows = match depth {
        Depth::Rows => true,
        Depth::RowsFrom(index) => answer.store.index.is_some_and(|own| own >= index),
    };
    let rows = if wants_rows {
        connection.get("/v1/rows").await?
    } else {
        Vec::new()
    };
    Ok(Node {
        address: agent.address.clone(),
        rows: answers::current(rows),
        ahead: (answer.now).and_then(|theirs| clock::ahead(theirs, asked, answered)),
        answer,
    })
}

impl Node {
    /// What the proof needs of it.
    pub fn report(&self) -> NodeReport {
        answers::report(&self.answer, &self.rows)
    }
}

impl Census {
    /// Every row that asks, with all keys that any node's HAProxy sends for it, its own first.
    pub fn rows(&self) -> BTreeMap<Key, Vec<Key>> {
        let mut rows: BTreeMap<Key, Vec<Key>> = BTreeMap::new();
        let mut seen: BTreeSet<(Key, Key)> = BTreeSet::new();
        let answers = self.nodes.iter().flat_map(|node| &node.rows);
        for (row, keys) in answers.filter_map(RowAnswer::keys) {
            let known = rows.entry(row.clone()).or_default();
            known.extend(
                keys.into_iter()
                    .filter(|key| seen.insert((row.clone(), key.clone()))),
            );
        }
        rows
    }
}
