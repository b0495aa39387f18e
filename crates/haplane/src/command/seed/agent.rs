//! The agent: a source for a seed, and afterwards the one that must not undo it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use haplane_agent::ABSENT_AT_ONCE;
use haplane_core::Key;
use haplane_core::guard::Refusal;
use haplane_core::kv_path::encode;
use haplane_core::resolve::Policy;
use haplane_core::seed::{States, seed};
use haplane_core::snapshot::{Pair, Snapshot};
use haplane_haproxy::server_state::SeedRow;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Known;
use super::sources::Asking;
use crate::fleet::Connection;

/// How long the agent gets to hear what the store said, and how often it is asked.
const FOLLOWING: Duration = Duration::from_secs(3);
const FOLLOW_AGAIN: Duration = Duration::from_millis(100);

impl Asking<'_> {
    /// What the agent follows, if that is our store and nothing of it may be hidden.
    pub(super) async fn agent(&self) -> Result<Snapshot, String> {
        let node: AgentNode = self.dial().await?.get("/v1/node").await?;
        let store = node.store.unwrap_or_default();
        self.is_of_our_store(&store)?;
        // Under other refusals the agent's last good list is right. What is denied may be missing even from that.
        if let Some(guard) = store.guard
            && guard.reason == Refusal::Denied.as_str()
        {
            return Err(guard.detail);
        }
        let snapshot = self.agents_snapshot().await?;
        self.proves_absences(self.absent_from(&snapshot)).await?;
        Ok(snapshot)
    }

    async fn dial(&self) -> Result<Connection, String> {
        Connection::dial(&self.agent).await
    }

    /// The agent of another store knows nothing of our rows. What it does not say is not held against it.
    fn is_of_our_store(&self, theirs: &AgentStore) -> Result<(), String> {
        let Known::Whole(settings) = self.known else {
            return Ok(());
        };
        let (store, settings) = self.open(settings)?;
        let in_consul = store.consul().is_some();
        let ours = AgentStore {
            kind: Some(store.kind().to_owned()),
            address: Some(store.address()),
            prefix: in_consul.then(|| settings.state_prefix.to_string()),
            guard: None,
        };
        if ours.may_be(theirs) {
            return Ok(());
        }
        Err(format!("it follows another store: {theirs}, not {ours}"))
    }

    /// A key that the agent does not have may be one that it is not shown: it asks its store, as it does before it
    /// answers a row.
    async fn proves_absences(&self, absent: BTreeSet<Key>) -> Result<(), String> {
        let absent: Vec<String> = absent.iter().map(ToString::to_string).collect();
        for keys in absent.chunks(ABSENT_AT_ONCE) {
            loop {
                let (status, said) = self.dial().await?.post("/v1/absent", &json!(keys)).await?;
                match said.get("absent").and_then(Value::as_bool) {
                    Some(true) => break,
                    // It waited for its store already.
                    Some(false) if said.get("why") == Some(&json!("unproven_key")) => {}
                    Some(false) => {
                        return Err(
                            "its store denies it a key which a row asks for: give its token \
                                    the right to read the whole prefix"
                                .to_owned(),
                        );
                    }
                    None => {
                        return Err(format!(
                            "it does not say which keys are truly absent (/v1/absent: status {}): is it of an older version?",
                            status.as_u16()
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    async fn agents_snapshot(&self) -> Result<Snapshot, String> {
        let state: AgentState = self.dial().await?.get("/v1/state").await?;
        let index = state.index.ok_or("it has no snapshot itself yet")?;
        let mut pairs = Vec::with_capacity(state.keys.len());
        for (key, value) in state.keys {
            let key = key
                .parse()
                .map_err(|error| format!("it names a key that is none: {error}"))?;
            pairs.push(Pair {
                path: encode(&key),
                value: value.into_bytes(),
                version: index,
                log_id: None,
            });
        }
        Ok(Snapshot::new(index, pairs))
    }

    /// After a seed from the store: an agent that has not heard yet what the seed says would undo it at the first
    /// check. It gets a moment to hear it.
    pub(super) async fn wait_for_agent(&self, snapshot: &Snapshot, policy: Policy) {
        // Nobody there undoes nothing.
        if self.dial().await.is_err() {
            return;
        }
        let until = self.until.min(Instant::now() + FOLLOWING);
        let mut why = "it has not said what it knows".to_owned();
        while let Ok(theirs) = tokio::time::timeout_at(until, self.agents_snapshot()).await {
            match theirs {
                Ok(theirs) if self.rows_by(&theirs, policy) == self.rows_by(snapshot, policy) => {
                    return;
                }
                Ok(theirs) => {
                    why = format!(
                        "it is at index {}, this seed at {}",
                        theirs.index, snapshot.index
                    );
                }
                Err(error) => why = error,
            }
            if Instant::now() + FOLLOW_AGAIN >= until {
                break;
            }
            tokio::time::sleep(FOLLOW_AGAIN).await;
        }
        self.output.warn(&format!(
            "the agent at {} does not answer as this seed says, and may undo it at the first check: {why}",
            self.agent
        ));
    }

    fn rows_by(&self, snapshot: &Snapshot, policy: Policy) -> Vec<SeedRow> {
        let now = jiff::Timestamp::now();
        let states = States::Desired {
            snapshot,
            now,
            policy,
        };
        seed(self.config, states).rows
    }
}

/// `/v1/state`, as far as a seed needs it.
#[derive(Deserialize)]
struct AgentState {
    index: Option<u64>,
    keys: BTreeMap<String, String>,
}

/// `/v1/node`, as far as a seed needs it.
#[derive(Deserialize)]
struct AgentNode {
    store: Option<AgentStore>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AgentStore {
    kind: Option<String>,
    address: Option<String>,
    prefix: Option<String>,
    guard: Option<AgentGuard>,
}

impl AgentStore {
    /// Whether both may be the same store; what either leaves unsaid counts neither way.
    fn may_be(&self, other: &Self) -> bool {
        let agree = |one: &Option<String>, other: &Option<String>| {
            one.is_none() || other.is_none() || one == other
        };
        agree(&self.kind, &other.kind)
            && agree(&self.address, &other.address)
            && agree(&self.prefix, &other.prefix)
    }
}

impl fmt::Display for AgentStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<&str> = [&self.kind, &self.address, &self.prefix]
            .into_iter()
            .flatten()
            .map(String::as_str)
            .collect();
        f.write_str(&words.join(" "))
    }
}

#[derive(Deserialize)]
struct AgentGuard {
    reason: String,
    detail: String,
}
