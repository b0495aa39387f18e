//! Who can say what is desired: the store, else the agent, else (the next best) the running process.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use haplane_core::Key;
use haplane_core::guard::Refusal;
use haplane_core::kv_path::encode;
use haplane_core::resolve::Policy;
use haplane_core::seed::absences;
use haplane_core::snapshot::{Pair, Snapshot};
use haplane_daemon::Settings;
use haplane_haproxy::cfg::Config;
use haplane_haproxy::server_state::{ServerRow, read_answer};
use haplane_runtime::Socket;
use haplane_store::{AnyStore, Named, Store as _};
use serde::Deserialize;

use super::PATIENCE;
use crate::cli::{Common, SeedOptions};
use crate::config::Place;
use crate::failure::Failure;
use crate::fleet::{AgentAddress, Connection};
use crate::output::Output;
use crate::state::{self, Marker};

/// What was found out.
pub(super) enum Found {
    /// Desired state, from the store.
    Store { snapshot: Snapshot, policy: Policy },
    /// Desired state, as the agent has it.
    Agent { snapshot: Snapshot, policy: Policy },
    /// What the running process has.
    Process(Vec<ServerRow>),
    /// Nobody answers.
    Nothing,
}

impl Found {
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Store { .. } => "store",
            Self::Agent { .. } => "agent",
            Self::Process(_) => "process",
            Self::Nothing => "nothing",
        }
    }

    pub(super) fn index(&self) -> Option<u64> {
        match self {
            Self::Store { snapshot, .. } | Self::Agent { snapshot, .. } => Some(snapshot.index),
            Self::Process(_) | Self::Nothing => None,
        }
    }
}

/// Asks one after the other; says of each that fails why.
pub(super) async fn find(
    config: &Config,
    settings: &Settings,
    common: &Common,
    options: &SeedOptions,
    output: &Output,
) -> Found {
    let policy = Policy {
        absent: settings.agent.absent,
        weights: settings.agent.weights,
    };
    match within(store(config, settings, common, policy)).await {
        Ok(snapshot) => return Found::Store { snapshot, policy },
        Err(why) => output.warn(&format!("the store cannot be used: {why}")),
    }
    let local = settings.http.listen;
    let address = options
        .agent
        .clone()
        .unwrap_or_else(|| AgentAddress::new(local.ip().to_string(), local.port()));
    match within(agent(&address)).await {
        Ok(snapshot) => return Found::Agent { snapshot, policy },
        Err(why) => output.warn(&format!("the agent at {address} cannot be used: {why}")),
    }
    let sockets: Vec<PathBuf> = options
        .socket
        .clone()
        .map_or_else(|| settings.haproxy.sockets.clone(), |socket| vec![socket]);
    for socket in &sockets {
        match within(process(&Socket::new(socket))).await {
            Ok(rows) => {
                output.warn(
                    "the running process is asked instead: what it has may not be what is desired",
                );
                return Found::Process(rows);
            }
            Err(why) => output.warn(&format!("the process cannot be used: {why}")),
        }
    }
    output.warn("nobody can say what is desired");
    Found::Nothing
}

async fn within<T>(asking: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    match tokio::time::timeout(PATIENCE, asking).await {
        Ok(answer) => answer,
        Err(_) => Err(format!("no answer within {PATIENCE:?}")),
    }
}

async fn store(
    config: &Config,
    settings: &Settings,
    common: &Common,
    policy: Policy,
) -> Result<Snapshot, String> {
    let told = |failure: Failure| failure.message;
    let place = Place::pick(settings, common.env.as_deref()).map_err(told)?;
    let store = AnyStore::open(&place.store).map_err(|error| error.story())?;
    let marker = Marker::of(&settings.agent);
    let snapshot = state::read(&store, marker, &place.store)
        .await
        .map_err(told)?;
    if store.hides_what_it_denies() {
        let absent = absences(config, &snapshot, jiff::Timestamp::now(), policy);
        none_is_denied(&store, absent).await?;
    }
    Ok(snapshot)
}

/// A key that the token may not read may be a drain that it is not shown.
async fn none_is_denied(store: &AnyStore, absent: BTreeSet<Key>) -> Result<(), String> {
    let paths: Vec<String> = absent.iter().map(encode).collect();
    let named = store
        .read_names(&paths)
        .await
        .map_err(|error| error.story())?;
    let denied = absent
        .iter()
        .zip(named)
        .find(|(_, named)| *named == Named::Denied);
    match denied {
        None => Ok(()),
        Some((key, _)) => Err(format!(
            "it denies the key {key}, which a row asks for: give the token the right to read the whole prefix"
        )),
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

#[derive(Deserialize)]
struct AgentStore {
    guard: Option<AgentGuard>,
}

#[derive(Deserialize)]
struct AgentGuard {
    reason: String,
    detail: String,
}

async fn agent(address: &AgentAddress) -> Result<Snapshot, String> {
    let node: AgentNode = Connection::dial(address).await?.get("/v1/node").await?;
    let guard = node.store.and_then(|store| store.guard);
    // Other refusals leave the last good list in force. What is denied may be missing from that, too.
    if let Some(guard) = guard.filter(|guard| guard.reason == Refusal::Denied.as_str()) {
        return Err(guard.detail);
    }
    let state: AgentState = Connection::dial(address).await?.get("/v1/state").await?;
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

async fn process(socket: &Socket) -> Result<Vec<ServerRow>, String> {
    let answer = socket
        .ask("show servers state")
        .await
        .map_err(|error| error.to_string())?;
    read_answer(&answer).map_err(|error| error.to_string())
}
