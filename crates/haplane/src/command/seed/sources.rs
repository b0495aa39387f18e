//! Who can say what is desired: the store, else the agent, else (the next best) the running process.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;

use haplane_core::Key;
use haplane_core::resolve::Policy;
use haplane_core::seed::absences;
use haplane_core::snapshot::Snapshot;
use haplane_daemon::Settings;
use haplane_haproxy::cfg::Config;
use haplane_haproxy::server_state::{ServerRow, read_answer};
use haplane_runtime::Socket;
use haplane_store::{AnyStore, Named, Store as _, StoreSettings, read_keys};
use tokio::time::Instant;

use super::{DEADLINE, Known, PATIENCE};
use crate::cli::{Common, SeedOptions};
use crate::config::Place;
use crate::fleet::AgentAddress;
use crate::output::Output;
use crate::state::{self, Marker};

/// Where the agent is when nothing is said.
const DEFAULT_AGENT: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9778));

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
    pub(super) config: &'a Config,
    pub(super) known: &'a Known<'a>,
    environment: Option<&'a str>,
    policy: Policy,
    pub(super) agent: AgentAddress,
    sockets: Vec<PathBuf>,
    pub(super) output: &'a Output,
    pub(super) until: Instant,
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
        let (store, settings_of_it) = self.open(settings)?;
        let marker = Marker::of(&settings.agent);
        let snapshot = state::read(&store, marker, &settings_of_it)
            .await
            .map_err(|failure| failure.message)?;
        if store.hides_what_it_denies() {
            none_is_denied(&store, self.absent_from(&snapshot)).await?;
        }
        Ok(snapshot)
    }

    /// The store that this configuration and the environment name.
    pub(super) fn open(&self, settings: &Settings) -> Result<(AnyStore, StoreSettings), String> {
        let place = Place::pick(settings, self.environment).map_err(|failure| failure.message)?;
        let store = AnyStore::open(&place.store).map_err(|error| error.story())?;
        Ok((store, place.store))
    }

    pub(super) fn absent_from(&self, snapshot: &Snapshot) -> BTreeSet<Key> {
        absences(self.config, snapshot, jiff::Timestamp::now(), self.policy)
    }
}

/// A key that the token may not read may be a drain that it is not shown.
async fn none_is_denied(store: &AnyStore, absent: BTreeSet<Key>) -> Result<(), String> {
    let absent: Vec<Key> = absent.into_iter().collect();
    let named = read_keys(store, &absent)
        .await
        .map_err(|error| error.story())?;
    let mut named = absent.iter().zip(named);
    match named.find(|(_, named)| *named == Named::Denied) {
        None => Ok(()),
        Some((key, _)) => Err(format!(
            "it denies the key {key}, which a row asks for: give the token the right to read the whole prefix"
        )),
    }
}

async fn process(socket: &Socket) -> Result<Vec<ServerRow>, String> {
    let answer = socket
        .ask("show servers state")
        .await
        .map_err(|error| error.to_string())?;
    read_answer(&answer).map_err(|error| error.to_string())
}
