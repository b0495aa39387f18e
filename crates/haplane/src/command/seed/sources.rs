//! Who can say what is desired: the store, else the agent, else (the next best) the running process.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::time::Duration;

use haplane_core::Key;
use haplane_core::guard::Refusal;
use haplane_core::kv_path::encode;
use haplane_core::resolve::Policy;
use haplane_core::seed::{States, absences, seed};
use haplane_core::snapshot::{Pair, Snapshot};
use haplane_haproxy::cfg::Config;
use haplane_haproxy::server_state::{SeedRow, ServerRow, read_answer};
use haplane_runtime::Socket;
use haplane_store::{AnyStore, Location, Named, Store as _};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{DEADLINE, Known, PATIENCE};
use crate::cli::{Common, SeedOptions};
use crate::config::Place;
use crate::failure::Failure;
use crate::fleet::{AgentAddress, Connection};
use crate::output::Output;
use crate::state::{self, Marker};

/// Where the agent is when nothing is said.
const DEFAULT_AGENT: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9778));
/// Keys whose absence the agent is asked to prove at once.
const KEYS_AT_ONCE: usize = 512;
/// How long the agent gets to hear what the store said, and how often it is asked.
const FOLLOWING: Duration = Duration::from_secs(3);
const FOLLOW_AGAIN: Duration = Duration::from_millis(100);

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

/// Whom to ask about which rows, and until when.
pub(super) struct Asking<'a> {
    config: &'a Config,
    known: &'a Known<'a>,
    environment: Option<&'a str>,
    policy: Policy,
    agent: AgentAddress,
    sockets: Vec<PathBuf>,
    output: &'a Output,
    until: Instant,
}

impl<'a> Asking<'a> {
    /// The clock runs from here on.
    pub(super) fn new(
        config: &'a Config,
        known: &'a Known<'a>,
        common: &'a Common,
        options: &SeedOptions,
        output: &'a Output,
    ) -> Self {
        let settings = known.settings();
        let local = settings.map_or(DEFAULT_AGENT, |settings| settings.http.listen);
        let local = || AgentAddress::new(local.ip().to_string(), local.port());
        let sockets = settings.map(|settings| settings.haproxy.sockets.clone());
        Self {
            config,
            known,
            environment: common.env.as_deref(),
            policy: settings.map_or_else(Policy::default, |settings| Policy {
                absent: settings.agent.absent,
                weights: settings.agent.weights,
            }),
            agent: options.agent.clone().unwrap_or_else(local),
            sockets: options
                .socket
                .clone()
                .map_or_else(|| sockets.unwrap_or_default(), |socket| vec![socket]),
            output,
            until: Instant::now() + DEADLINE,
        }
    }

    /// Asks one after the other; says of each that fails why.
    pub(super) async fn find(&self) -> Found {
        let (policy, output) = (self.policy, self.output);
        match self.within(self.store()).await {
            Ok(snapshot) => return Found::Store { snapshot, policy },
            Err(why) => output.warn(&format!("the store cannot be used: {why}")),
        }
        match self.within(self.agent()).await {
            Ok(snapshot) => return Found::Agent { snapshot, policy },
            Err(why) => output.warn(&format!(
                "the agent at {} cannot be used: {why}",
                self.agent
            )),
        }
        for socket in &self.sockets {
            match self.within(process(&Socket::new(socket))).await {
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

    async fn within<T>(
        &self,
        asking: impl Future<Output = Result<T, String>>,
    ) -> Result<T, String> {
        let patience = PATIENCE.min(self.until.saturating_duration_since(Instant::now()));
        match tokio::time::timeout(patience, asking).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("no answer within {patience:.1?}")),
        }
    }

    async fn store(&self) -> Result<Snapshot, String> {
        let Known::Whole(settings) = self.known else {
            return Err("haplane's own configuration is broken, and names it".to_owned());
        };
        let told = |failure: Failure| failure.message;
        let place = Place::pick(settings, self.environment).map_err(told)?;
        let store = AnyStore::open(&place.store).map_err(|error| error.story())?;
        let marker = Marker::of(&settings.agent);
        let snapshot = state::read(&store, marker, &place.store)
            .await
            .map_err(told)?;
        if store.hides_what_it_denies() {
            none_is_denied(&store, self.absent_from(&snapshot)).await?;
        }
        Ok(snapshot)
    }

    fn absent_from(&self, snapshot: &Snapshot) -> BTreeSet<Key> {
        absences(self.config, snapshot, jiff::Timestamp::now(), self.policy)
    }

    async fn agent(&self) -> Result<Snapshot, String> {
        let node: AgentNode = self.dial().await?.get("/v1/node").await?;
        let store = node.store.unwrap_or_default();
        self.is_of_our_store(&store)?;
        // Other refusals leave the last good list in force. What is denied may be missing from that, too.
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
        let place = Place::pick(settings, self.environment).map_err(|failure| failure.message)?;
        let (kind, address, prefix) = match &place.store.location {
            Location::Consul(_) => {
                let prefix = place.store.state_prefix.to_string();
                (
                    "consul",
                    place.store.consul().address.to_string(),
                    Some(prefix),
                )
            }
            Location::Dir(path) => ("dir", path.display().to_string(), None),
        };
        let differs = |theirs: &Option<String>, ours: &str| {
            theirs.as_ref().is_some_and(|theirs| theirs != ours)
        };
        if differs(&theirs.kind, kind)
            || differs(&theirs.address, &address)
            || prefix
                .as_ref()
                .is_some_and(|ours| differs(&theirs.prefix, ours))
        {
            let word = |text: &Option<String>| text.clone().unwrap_or_default();
            let (theirs, prefix) = (
                format!(
                    "{} {} {}",
                    word(&theirs.kind),
                    word(&theirs.address),
                    word(&theirs.prefix)
                ),
                prefix.unwrap_or_default(),
            );
            return Err(format!(
                "it follows another store: {}, not {}",
                theirs.trim_end(),
                format!("{kind} {address} {prefix}").trim_end()
            ));
        }
        Ok(())
    }

    /// A key that the agent does not have may be one that it is not shown: it asks its store, as it does before it
    /// answers a row.
    async fn proves_absences(&self, absent: BTreeSet<Key>) -> Result<(), String> {
        let absent: Vec<String> = absent.iter().map(ToString::to_string).collect();
        for keys in absent.chunks(KEYS_AT_ONCE) {
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

#[derive(Default, Deserialize)]
#[serde(default)]
struct AgentStore {
    kind: Option<String>,
    address: Option<String>,
    prefix: Option<String>,
    guard: Option<AgentGuard>,
}

#[derive(Deserialize)]
struct AgentGuard {
    reason: String,
    detail: String,
}

async fn process(socket: &Socket) -> Result<Vec<ServerRow>, String> {
    let answer = socket
        .ask("show servers state")
        .await
        .map_err(|error| error.to_string())?;
    read_answer(&answer).map_err(|error| error.to_string())
}
