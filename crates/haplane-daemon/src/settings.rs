//! Every key of the configuration file, typed and validated.
//!
//! The file is one for all commands. `[sync]` and `[[pool]]` are read by the synchroniser.

mod keys;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use haplane_core::resolve::{Absent, Weights};
use haplane_store::consul::token::TokenSettings;
use haplane_store::consul::{Consistency, ConsulSettings, Prefix};
use haplane_store::{Location, StoreSettings};

use crate::config_file::{Document, Given, Section, given};

pub use keys::{KEYS, KeyDoc, overrides};

/// All settings but those of the synchroniser.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where desired state lives.
    pub store: StoreSettings,
    /// Whether somebody said so, or it is only the default.
    pub store_is_named: bool,
    /// This node's name; `None` means the host name.
    pub node: Option<String>,
    /// A drain older than this stands out and is counted for alerts.
    pub forgotten_after: Duration,
    /// `[agent]`.
    pub agent: AgentSettings,
    /// `[http]`.
    pub http: HttpSettings,
    /// `[haproxy]`.
    pub haproxy: HaproxySettings,
    /// `[env.NAME]`.
    pub environments: BTreeMap<String, Environment>,
}

/// `[agent]`.
#[derive(Clone, Debug)]
pub struct AgentSettings {
    /// Where HAProxy asks.
    pub listen: SocketAddr,
    /// Whether a prefix without marker is refused.
    pub require_marker: bool,
    /// How long to try for the first snapshot.
    pub sync_timeout: Duration,
    /// `restate` or `leave`.
    pub weights: Weights,
    /// `ready` or `keep`.
    pub absent: Absent,
    /// Whether to register in Consul.
    pub register: bool,
    /// Whether to take that back when it stops.
    pub leave: bool,
    /// Connections at once.
    pub max_connections: usize,
    /// Where to keep the last good snapshot.
    pub last_good: Option<PathBuf>,
    /// How old it may be at start.
    pub last_good_max_age: Duration,
}

/// `[http]`.
#[derive(Clone, Debug)]
pub struct HttpSettings {
    /// Where people, probes and Prometheus ask.
    pub listen: SocketAddr,
    /// Profiles also when not bound to loopback.
    pub pprof: bool,
}

/// `[haproxy]`.
#[derive(Clone, Debug, Default)]
pub struct HaproxySettings {
    /// Runtime API sockets, one for each HAProxy.
    pub sockets: Vec<PathBuf>,
    /// The master CLI's socket.
    pub master_socket: Option<PathBuf>,
    /// Whether to set changed rows through the socket at once.
    pub push: bool,
}

/// `[env.NAME]`: another fleet that writers can be pointed at.
#[derive(Clone, Debug)]
pub struct Environment {
    /// Its store.
    pub store: StoreSettings,
    /// Whether somebody said so, here or at the top, or it is only the default.
    pub store_is_named: bool,
    /// Whether writes ask for confirmation.
    pub confirm: bool,
    /// A link to show beside its state.
    pub dashboard: Option<String>,
    /// Its agents' HTTP addresses, when they are not to be found by Consul.
    pub agents: Vec<String>,
}

/// The store when nothing else is said.
const DEFAULT_STORE: &str = "dir:/var/lib/haplane/state";
const DEFAULT_PREFIX: &str = "haplane";

impl Settings {
    /// Reads the whole document; `variable` looks up Consul's own environment variables. Problems
    /// are noted in the document; `None` if a value that is needed could not be read.
    pub fn read(
        document: &Document<'_>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Option<Self> {
        let root = document.root();
        let consul = ConsulSettings::from_environment(variable);
        let mut store = read_store(&root, &defaults(consul.as_ref().ok())?);
        if let (Some(store), Ok(variables)) = (&mut store, &consul) {
            whose_token(store, variables);
        }
        // A directory needs nothing of Consul: a broken variable of Consul's must not stop anybody
        // who uses one.
        if let (Some(Location::Consul(_)), Err(error)) =
            (store.as_ref().map(|s| &s.location), consul)
        {
            root.report_outside("environment", error.story());
        }
        let store_is_named = root.is_given("store");
        let node = root.optional("node", node_name);
        let forgotten_after = root.or("forgotten_after", "24h", given::duration);
        let agent = read_agent(&root.section("agent"));
        let http = read_http(&root.section("http"));
        if let (Some(agent), Some(http)) = (&agent, &http) {
            refuse_one_port_for_two(&root.section("http"), agent.listen, http.listen);
        }
        let haproxy = read_haproxy(&root.section("haproxy"));
        let mut environments = BTreeMap::new();
        for (name, section) in root.sections("env") {
            let read = store
                .as_ref()
                .and_then(|store| read_environment(&section, store, store_is_named));
            environments.extend(read.map(|environment| (name, environment)));
        }
        root.leave("sync");
        root.leave("pool");
        root.finish();
        Some(Self {
            store: store?,
            store_is_named,
            node,
            forgotten_after: forgotten_after?,
            agent: agent?,
            http: http?,
            haproxy,
            environments,
        })
    }
}

/// The store when nothing is said in the file.
fn defaults(consul: Option<&ConsulSettings>) -> Option<StoreSettings> {
    Some(StoreSettings {
        location: DEFAULT_STORE.parse().ok()?,
        consul: consul.cloned().unwrap_or_default(),
        state_prefix: prefix_of(&format!("{DEFAULT_PREFIX}/state")).ok()?,
        log_prefix: prefix_of(&format!("{DEFAULT_PREFIX}/log")).ok()?,
    })
}

/// Somebody who brings their own token means it, even where the file names the agent's. A token file
/// of `[env.NAME.consul]` stays: it is another store's.
fn whose_token(store: &mut StoreSettings, variables: &ConsulSettings) {
    if variables.token != TokenSettings::None {
        store.consul.token = variables.token.clone();
    }
}

/// Reads the store's keys of a section; what is not given there is as in `base`.
fn read_store(section: &Section<'_>, base: &StoreSettings) -> Option<StoreSettings> {
    let location = section.or("store", &base.location.to_string(), |given| {
        given::nonempty(given)?
            .parse::<Location>()
            .map_err(|error| error.to_string())
    });
    let below = |part: &'static str| {
        move |given: &Given<'_>| {
            let root = given::nonempty(given)?;
            prefix_of(&format!("{}/{part}", root.trim_matches('/')))
        }
    };
    let whole = |given: &Given<'_>| prefix_of(&given::nonempty(given)?);
    let state = section.optional("prefix", below("state"));
    let log = section.optional("prefix", below("log"));
    let state = state.unwrap_or_else(|| base.state_prefix.clone());
    let log = log.unwrap_or_else(|| base.log_prefix.clone());
    let state = section.or("state_prefix", state.as_str(), whole);
    let log = section.or("log_prefix", log.as_str(), whole);
    let consul = read_consul(&section.section("consul"), &base.consul);
    let store = StoreSettings {
        location: location?,
        consul,
        state_prefix: state?,
        log_prefix: log?,
    };
    if store.state_prefix.overlaps(&store.log_prefix) {
        section.report(
            "state_prefix",
            "the state prefix and the log prefix cannot lie within each other",
            "give each its own place, e.g. haplane/state and haplane/log",
        );
    }
    Some(store)
}

/// Reads `[consul]` on top of what is known.
fn read_consul(section: &Section<'_>, base: &ConsulSettings) -> ConsulSettings {
    let mut consul = base.clone();
    if let Some(file) = section.optional("token_file", given::path) {
        consul.token = TokenSettings::File(file);
    }
    let tls = &mut consul.tls;
    tls.ca_file = section
        .optional("ca_file", given::path)
        .or(tls.ca_file.take());
    tls.cert_file = section
        .optional("cert_file", given::path)
        .or(tls.cert_file.take());
    tls.key_file = section
        .optional("key_file", given::path)
        .or(tls.key_file.take());
    if tls.cert_file.is_some() != tls.key_file.is_some() {
        let key = if tls.cert_file.is_some() {
            "cert_file"
        } else {
            "key_file"
        };
        section.report(
            key,
            "a certificate and its key go together",
            "give cert_file and key_file, or neither",
        );
    }
    let datacenter = section.optional("datacenter", given::nonempty);
    consul.datacenter = datacenter.or(consul.datacenter.take());
    let consistency = section.optional("consistency", |given| {
        given::one_of(
            given,
            &[
                ("default", Consistency::Default),
                ("stale", Consistency::Stale),
                ("consistent", Consistency::Consistent),
            ],
        )
    });
    consul.consistency = consistency.unwrap_or(consul.consistency);
    section.finish();
    consul
}

fn read_agent(section: &Section<'_>) -> Option<AgentSettings> {
    let listen = section.or("listen", "127.0.0.1:9777", given::socket_address);
    let allow_remote = section.or("allow_remote", "false", given::boolean);
    refuse_remote(section, listen, allow_remote);
    let require_marker = section.or("require_marker", "true", given::boolean);
    let sync_timeout = section.or("sync_timeout", "30s", given::duration);
    let weights = section.or("weights", "restate", |given| {
        given::one_of(
            given,
            &[("restate", Weights::Restate), ("leave", Weights::Leave)],
        )
    });
    let absent = section.or("absent", "ready", |given| {
        given::one_of(given, &[("ready", Absent::Ready), ("keep", Absent::Keep)])
    });
    let register = section.or("register", "true", given::boolean);
    let leave = section.or("leave", "false", given::boolean);
    let max_connections = section.or("max_connections", "4096", given::count);
    let last_good = section.optional("last_good", given::path);
    let last_good_max_age = section.or("last_good_max_age", "24h", given::duration);
    section.finish();
    Some(AgentSettings {
        listen: listen?,
        require_marker: require_marker?,
        sync_timeout: sync_timeout?,
        weights: weights?,
        absent: absent?,
        register: register?,
        leave: leave?,
        max_connections: max_connections?,
        last_good,
        last_good_max_age: last_good_max_age?,
    })
}

fn read_http(section: &Section<'_>) -> Option<HttpSettings> {
    let listen = section.or("listen", "127.0.0.1:9778", given::socket_address);
    let allow_remote = section.or("allow_remote", "false", given::boolean);
    refuse_remote(section, listen, allow_remote);
    let pprof = section.or("pprof", "false", given::boolean);
    section.finish();
    Some(HttpSettings {
        listen: listen?,
        pprof: pprof?,
    })
}

/// Loopback by default: whoever can reach the port can read every row, so a wider one is opened
/// only by somebody who says so.
fn refuse_remote(section: &Section<'_>, listen: Option<SocketAddr>, allow_remote: Option<bool>) {
    if let (Some(listen), Some(false)) = (listen, allow_remote)
        && !listen.ip().is_loopback()
    {
        section.report(
            "listen",
            format!("{listen} can be reached from other machines"),
            "bind a loopback address, or set allow_remote = true beside it",
        );
    }
}

fn refuse_one_port_for_two(section: &Section<'_>, checks: SocketAddr, http: SocketAddr) {
    let (one, other) = (checks.ip(), http.ip());
    let meet = one == other || one.is_unspecified() || other.is_unspecified();
    if meet && checks.port() == http.port() && http.port() != 0 {
        section.report(
            "listen",
            format!("{http} is where HAProxy asks already, agent.listen"),
            "give each a port of its own, such as 9777 and 9778",
        );
    }
}

fn read_haproxy(section: &Section<'_>) -> HaproxySettings {
    let sockets = section.optional("socket", given::texts).unwrap_or_default();
    let settings = HaproxySettings {
        sockets: sockets.into_iter().map(PathBuf::from).collect(),
        master_socket: section.optional("master_socket", given::path),
        push: section.or("push", "false", given::boolean).unwrap_or(false),
    };
    if settings.push && settings.sockets.is_empty() {
        section.report(
            "push",
            "there is no socket to push through",
            "set socket, or push = false",
        );
    }
    section.finish();
    settings
}

fn read_environment(
    section: &Section<'_>,
    base: &StoreSettings,
    base_is_named: bool,
) -> Option<Environment> {
    let environment = Environment {
        store: read_store(section, base)?,
        store_is_named: base_is_named || section.is_given("store"),
        confirm: section
            .or("confirm", "false", given::boolean)
            .unwrap_or(true),
        dashboard: section.optional("dashboard", given::nonempty),
        agents: section.optional("agents", given::texts).unwrap_or_default(),
    };
    section.finish();
    Some(environment)
}

fn prefix_of(text: &str) -> Result<Prefix, String> {
    text.parse::<Prefix>().map_err(|error| error.to_string())
}

fn node_name(given: &Given<'_>) -> Result<String, String> {
    let text = given::nonempty(given)?;
    let usual = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if text.len() <= 128 && text.chars().all(usual) {
        Ok(text)
    } else {
        Err(format!(
            "{text:?} is no node name; use up to 128 letters, digits, . _ -"
        ))
    }
}
