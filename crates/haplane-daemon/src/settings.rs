//! Every key of the configuration file, typed and validated.
//!
//! The file is one for all commands. `[sync]` and `[[pool]]` are read by the synchroniser.

mod keys;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use haplane_core::resolve::{Absent, Weights};

use crate::config_file::{Document, Given, Section, given};

pub use keys::{KEYS, KeyDoc, overrides};

/// All settings but those of the synchroniser.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where desired state lives.
    pub store: StoreSettings,
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

/// Where desired state lives, and how to get at it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreSettings {
    /// `consul`, `consul:http://…`, `consul:https://…`, `consul:unix:///…` or `dir:/…`.
    pub location: String,
    /// The state prefix; ends in `/`.
    pub state_prefix: String,
    /// The log prefix; ends in `/`.
    pub log_prefix: String,
    /// `[consul] token_file`.
    pub token_file: Option<PathBuf>,
    /// `[consul] ca_file`.
    pub ca_file: Option<PathBuf>,
    /// `[consul] cert_file`.
    pub cert_file: Option<PathBuf>,
    /// `[consul] key_file`.
    pub key_file: Option<PathBuf>,
    /// `[consul] datacenter`.
    pub datacenter: Option<String>,
    /// `[consul] consistency`.
    pub consistency: Consistency,
}

/// How reads that wait for a change are made; the first read is always consistent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consistency {
    /// Consul's default mode.
    #[default]
    Default,
    /// Any server may answer.
    Stale,
    /// The leader confirms each answer.
    Consistent,
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
    /// Reads the whole document. Problems are noted in it; `None` if a value that is needed could
    /// not be read.
    pub fn read(document: &Document<'_>) -> Option<Self> {
        let root = document.root();
        let base = StoreSettings {
            location: DEFAULT_STORE.to_owned(),
            state_prefix: format!("{DEFAULT_PREFIX}/state/"),
            log_prefix: format!("{DEFAULT_PREFIX}/log/"),
            ..StoreSettings::default()
        };
        let store = read_store(&root, &base);
        let node = root.optional("node", node_name);
        let forgotten_after = root.or("forgotten_after", "24h", given::duration);
        let agent = read_agent(&root.section("agent"));
        let http = read_http(&root.section("http"));
        let haproxy = read_haproxy(&root.section("haproxy"));
        let environments = root
            .sections("env")
            .into_iter()
            .map(|(name, section)| (name, read_environment(&section, &store)))
            .collect();
        root.leave("sync");
        root.leave("pool");
        root.finish();
        Some(Self {
            store,
            node,
            forgotten_after: forgotten_after?,
            agent: agent?,
            http: http?,
            haproxy,
            environments,
        })
    }
}

/// Reads the store's keys of a section; what is not given there is as in `base`.
fn read_store(section: &Section<'_>, base: &StoreSettings) -> StoreSettings {
    let mut store = base.clone();
    if let Some(location) = section.or("store", &base.location, location) {
        store.location = location;
    }
    if let Some(prefix) = section.optional("prefix", prefix) {
        store.state_prefix = format!("{prefix}/state/");
        store.log_prefix = format!("{prefix}/log/");
    }
    if let Some(prefix) = section.optional("state_prefix", prefix) {
        store.state_prefix = format!("{prefix}/");
    }
    if let Some(prefix) = section.optional("log_prefix", prefix) {
        store.log_prefix = format!("{prefix}/");
    }
    let one_in_other = store.log_prefix.starts_with(&store.state_prefix)
        || store.state_prefix.starts_with(&store.log_prefix);
    if one_in_other {
        let message = "the state prefix and the log prefix cannot lie within each other";
        section.report(
            "state_prefix",
            message,
            "give each its own place, e.g. haplane/state and haplane/log",
        );
    }
    let consul = section.section("consul");
    let given = StoreSettings {
        token_file: consul.optional("token_file", given::path),
        ca_file: consul.optional("ca_file", given::path),
        cert_file: consul.optional("cert_file", given::path),
        key_file: consul.optional("key_file", given::path),
        datacenter: consul.optional("datacenter", given::nonempty),
        ..StoreSettings::default()
    };
    let consistency = consul.optional("consistency", |given| {
        given::one_of(
            given,
            &[
                ("default", Consistency::Default),
                ("stale", Consistency::Stale),
                ("consistent", Consistency::Consistent),
            ],
        )
    });
    if given.cert_file.is_some() != given.key_file.is_some() {
        let key = if given.cert_file.is_some() {
            "cert_file"
        } else {
            "key_file"
        };
        consul.report(
            key,
            "a certificate and its key go together",
            "give cert_file and key_file, or neither",
        );
    }
    consul.finish();
    store.token_file = given.token_file.or(store.token_file);
    store.ca_file = given.ca_file.or(store.ca_file);
    store.cert_file = given.cert_file.or(store.cert_file);
    store.key_file = given.key_file.or(store.key_file);
    store.datacenter = given.datacenter.or(store.datacenter);
    store.consistency = consistency.unwrap_or(store.consistency);
    store
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

fn read_environment(section: &Section<'_>, base: &StoreSettings) -> Environment {
    let environment = Environment {
        store: read_store(section, base),
        confirm: section
            .or("confirm", "false", given::boolean)
            .unwrap_or(true),
        dashboard: section.optional("dashboard", given::nonempty),
        agents: section.optional("agents", given::texts).unwrap_or_default(),
    };
    section.finish();
    environment
}

fn location(given: &Given<'_>) -> Result<String, String> {
    let text = given::nonempty(given)?;
    let known = text == "consul"
        || text
            .strip_prefix("dir:")
            .is_some_and(|path| !path.is_empty())
        || ["consul:http://", "consul:https://", "consul:unix:/"]
            .iter()
            .any(|form| text.strip_prefix(form).is_some_and(|rest| !rest.is_empty()));
    if known {
        Ok(text)
    } else {
        Err(format!(
            "{text:?} is no store; write consul, consul:http://HOST:PORT, consul:https://HOST:PORT, \
             consul:unix:///PATH or dir:/PATH"
        ))
    }
}

/// A prefix without the slashes around it: Consul's prefixes are string prefixes, so the slash that
/// ends one is always ours.
fn prefix(given: &Given<'_>) -> Result<String, String> {
    let text = given::nonempty(given)?;
    let trimmed = text.trim_matches('/');
    let usual = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
    if trimmed.is_empty()
        || !trimmed.chars().all(usual)
        || trimmed.contains("//")
        || trimmed.contains("..")
    {
        return Err(format!(
            "{text:?} is no prefix; use letters, digits, . _ - and single /"
        ));
    }
    Ok(trimmed.to_owned())
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
