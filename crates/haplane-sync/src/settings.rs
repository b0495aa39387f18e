//! `[sync]` and `[[pool]]` of the configuration file.

use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::time::Duration;

use haplane_core::key::Key;
use haplane_core::slots::flap::Damping;
use haplane_core::slots::hold::Limits;
use haplane_core::slots::{ByHand, CheckPort, Mode, Policy};
use haplane_daemon::config_file::{Document, Given, Section, given};
use haplane_daemon::settings::Settings;
use haplane_haproxy::{BackendName, ServerName};
use haplane_store::consul::ConsulSettings;
use haplane_store::consul::address::Address;

/// A slot sends the instance's key and these in one line, of which the responder takes no more.
const MOST_GROUPS: usize = 15;

/// A socket of HAProxy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SocketPath {
    /// A `stats socket` of level admin.
    Process(PathBuf),
    /// `master:PATH`: the socket of a master (`haproxy -W -S`); its current worker is meant.
    Master(PathBuf),
}

impl fmt::Display for SocketPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(path) => path.display().fmt(f),
            Self::Master(path) => write!(f, "master:{}", path.display()),
        }
    }
}

#[cfg(test)]
impl From<&str> for SocketPath {
    fn from(path: &str) -> Self {
        Self::Process(path.into())
    }
}

/// Where a pool's list comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// `consul:SERVICE`: the passing instances of a service.
    Consul(String),
    /// `file:PATH`: a host list.
    File(PathBuf),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Consul(service) => write!(f, "consul:{service}"),
            Self::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

/// `[sync]` and all pools.
#[derive(Clone, Debug)]
pub struct SyncSettings {
    /// The sockets, one for each HAProxy.
    pub sockets: Vec<SocketPath>,
    /// Where probes, Prometheus and `haplane slots` ask.
    pub http: SocketAddr,
    /// How often everything is compared even when nothing changed.
    pub reconcile: Duration,
    /// The responder to ask before a slot is opened.
    pub agent: Option<SocketAddr>,
    /// The Consul that services are read from.
    pub consul: ConsulSettings,
    /// The pools.
    pub pools: Vec<PoolSettings>,
}

/// `[[pool]]`.
#[derive(Clone, Debug)]
pub struct PoolSettings {
    /// Its name.
    pub name: String,
    /// Where its list comes from.
    pub source: Source,
    /// Only instances of this zone.
    pub zone: Option<String>,
    /// The key of a Consul service's or node's metadata that names the zone.
    pub zone_key: String,
    /// Only instances with all of these Consul tags.
    pub tags: Vec<String>,
    /// Only instances whose Consul metadata has all of these values.
    pub meta: Vec<(String, String)>,
    /// What the names of its servers begin with.
    pub prefix: String,
    /// What its guard allows.
    pub limits: Limits,
    /// When its instances count as flapping.
    pub damping: Damping,
    /// The planner's rules.
    pub policy: Policy,
}

impl SyncSettings {
    /// Reads `[sync]` and `[[pool]]`; problems are noted in the document.
    pub fn read(document: &Document<'_>, settings: &Settings) -> Option<Self> {
        let root = document.root();
        let section = root.section("sync");
        let sockets = section.optional("socket", sockets);
        let none = sockets.as_ref().is_some_and(Vec::is_empty);
        if none || !section.is_given("socket") {
            section.report(
                "socket",
                "there is no socket to keep slots through",
                "set socket = \"/run/haproxy/admin.sock\" to a `stats socket … level admin`",
            );
        }
        let http = section.or("http", "127.0.0.1:9779", given::socket_address);
        let allow_remote = section.or("allow_remote", "false", given::boolean);
        if let (Some(address), Some(false)) = (http, allow_remote)
            && !address.ip().is_loopback()
        {
            section.report(
                "http",
                format!("{address} can be reached from other machines"),
                "bind a loopback address, or set allow_remote = true beside it",
            );
        }
        let reconcile = section.or("reconcile", "5s", |given| {
            at_least(given, Duration::from_millis(100))
        });
        let agent = section.or("agent", "127.0.0.1:9777", |given| {
            match given::text(given)?.as_str() {
                "" => Ok(None),
                text => match given::socket_address(given)? {
                    address if address.port() == 0 => Err(format!("{text:?} has no port")),
                    address => Ok(Some(address)),
                },
            }
        });
        let mut consul = settings.store.consul.clone();
        if let Some(address) = section.optional("consul", |given| {
            given::nonempty(given)?
                .parse::<Address>()
                .map_err(|error| error.to_string())
        }) {
            consul.address = address;
        }
        section.finish();
        let sections = root.list("pool");
        if sections.is_empty() {
            root.report(
                "pool",
                "there is no pool to keep",
                "add a [[pool]] with name, backend, source and slots",
            );
        }
        let pools: Vec<_> = sections
            .iter()
            .filter_map(|section| Some((section, read_pool(section)?)))
            .collect();
        refuse_overlaps(&pools);
        let pools = pools.into_iter().map(|(_, pool)| pool).collect();
        Some(Self {
            sockets: sockets?,
            http: http?,
            reconcile: reconcile?,
            agent: agent?,
            consul,
            pools,
        })
    }
}

fn sockets(given: &Given<'_>) -> Result<Vec<SocketPath>, String> {
    let mut sockets = Vec::new();
    for text in given::texts(given)? {
        let socket = socket(&text)?;
        if sockets.contains(&socket) {
            return Err(format!("{text:?} is named twice"));
        }
        sockets.push(socket);
    }
    Ok(sockets)
}

fn socket(text: &str) -> Result<SocketPath, String> {
    let master = text.strip_prefix("master:");
    let path = PathBuf::from(master.unwrap_or(text));
    if path.is_relative() {
        return Err(format!("{text:?} is neither /PATH nor master:/PATH"));
    }
    Ok(match master {
        Some(_) => SocketPath::Master(path),
        None => SocketPath::Process(path),
    })
}

fn at_least(given: &Given<'_>, least: Duration) -> Result<Duration, String> {
    let duration = given::duration(given)?;
    if duration < least {
        Err(format!("this cannot be less than {least:?}"))
    } else {
        Ok(duration)
    }
}

fn read_pool(section: &Section<'_>) -> Option<PoolSettings> {
    let name = required(section, "name", pool_name);
    let backend = required(section, "backend", |given| {
        given::nonempty(given)?
            .parse::<BackendName>()
            .map_err(|error| error.to_string())
    });
    let source = required(section, "source", source);
    let prefix = required(section, "slots", prefix);
    let zone = section.optional("zone", given::nonempty);
    let zone_key = section.or("zone_key", "zone", given::nonempty);
    let tags = section.optional("tags", given::texts).unwrap_or_default();
    let meta = section.optional("meta", |given| {
        given::texts(given)?.iter().map(|text| pair(text)).collect()
    });
    let limits = read_limits(section);
    let damping = read_damping(section);
    let mode = read_mode(section, prefix.as_deref().unwrap_or_default());
    let groups = section.optional("groups", |given| {
        let parse = |text: &String| {
            text.parse::<Key>()
                .map_err(|error| format!("{text:?} is no key: {error}"))
        };
        let texts = given::texts(given)?;
        if texts.len() > MOST_GROUPS {
            return Err(format!(
                "a slot cannot send more than {MOST_GROUPS} of them"
            ));
        }
        texts.iter().map(parse).collect::<Result<Vec<_>, _>>()
    });
    let drain_grace = section.or("drain_grace", "30s", given::duration);
    let by_hand = section.or("by_hand", "repair", |given| {
        given::one_of(
            given,
            &[("repair", ByHand::Repair), ("leave", ByHand::Leave)],
        )
    });
    let check_port = section.or("check_port", "configured", check_port);
    refuse_idle_keys(section, source.as_ref(), mode.as_ref());
    section.finish();
    Some(PoolSettings {
        name: name?,
        source: source?,
        zone,
        zone_key: zone_key?,
        tags,
        meta: meta.unwrap_or_default(),
        prefix: prefix?,
        limits: limits?,
        damping: damping?,
        policy: Policy {
            backend: backend?,
            mode: mode?,
            groups: groups.unwrap_or_default(),
            drain_grace: drain_grace?,
            by_hand: by_hand?,
            check_port: check_port?,
        },
    })
}

/// Keys that would be read and never looked at: who wrote them expects something of them.
fn refuse_idle_keys(section: &Section<'_>, source: Option<&Source>, mode: Option<&Mode>) {
    let refuse = |keys: &[&str], why: &str, help: &str| {
        for key in keys.iter().filter(|key| section.is_given(key)) {
            section.report(key, why, help);
        }
    };
    if matches!(source, Some(Source::File(_))) {
        refuse(
            &["tags", "meta", "zone_key"],
            "a host list has none of this",
            "it chooses among the instances of a Consul service",
        );
    }
    match mode {
        Some(Mode::Slots) => refuse(
            &["max_servers", "server_parameters"],
            "slots are as haproxy.cfg has them",
            "it needs mode = \"dynamic\"",
        ),
        Some(Mode::Dynamic { .. }) => refuse(
            &["check_port"],
            "a dynamic server is born with its parameters",
            "write `port N` behind `check` in server_parameters",
        ),
        None => {}
    }
}

/// A key without which a pool is none.
fn required<T>(
    section: &Section<'_>,
    key: &str,
    read: impl Fn(&Given<'_>) -> Result<T, String>,
) -> Option<T> {
    if !section.is_given(key) {
        section.report(
            key,
            "a pool needs this key",
            "docs/sync.md of haplane has an example",
        );
    }
    section.optional(key, read)
}

fn read_limits(section: &Section<'_>) -> Option<Limits> {
    let max_removal = section.or("max_removal", "50%", share);
    let hold = section.or("hold", "5m", given::duration);
    let settle = section.or("settle", "10s", given::duration);
    let allow_empty = section.or("allow_empty", "false", given::boolean);
    Some(Limits {
        max_removal: max_removal?,
        hold: hold?,
        settle: settle?,
        allow_empty: allow_empty?,
    })
}

fn read_damping(section: &Section<'_>) -> Option<Damping> {
    let times = section.or("flap_times", "4", given::count);
    let window = section.or("flap_window", "5m", |given| {
        match given::text(given).as_deref() {
            Ok("off") => Ok(Duration::ZERO),
            _ => given::duration(given),
        }
    });
    let stay = section.or("flap_stay", "1m", given::duration);
    Some(Damping {
        times: times?,
        window: window?,
        stay: stay?,
    })
}

fn read_mode(section: &Section<'_>, prefix: &str) -> Option<Mode> {
    #[derive(Clone, Copy)]
    enum Word {
        Slots,
        Dynamic,
    }
    let word = section.or("mode", "slots", |given| {
        given::one_of(given, &[("slots", Word::Slots), ("dynamic", Word::Dynamic)])
    })?;
    let most = section.or("max_servers", "1000", given::count);
    let parameters = section.or("server_parameters", "check weight 100", given::text);
    if let Some(parameters) = &parameters
        && (parameters.contains(|c: char| c == ';' || c.is_control()) || parameters.contains("<<"))
    {
        section.report(
            "server_parameters",
            "a semicolon, a line end or << would begin something else",
            "write only what may stand behind the address in `add server`",
        );
        return None;
    }
    match word {
        Word::Slots => Some(Mode::Slots),
        Word::Dynamic => {
            let parameters = parameters?;
            let enrolled = parameters
                .split_whitespace()
                .any(|word| word == "agent-check");
            Some(Mode::Dynamic {
                prefix: prefix.to_owned(),
                most: most?,
                parameters,
                enrolled,
            })
        }
    }
}

/// Two pools that claim the same servers would fight over them for ever.
fn refuse_overlaps(pools: &[(&Section<'_>, PoolSettings)]) {
    for (index, (section, pool)) in pools.iter().enumerate() {
        let before = || pools.iter().take(index).map(|(_, pool)| pool);
        if before().any(|other| other.name == pool.name) {
            section.report(
                "name",
                format!("another pool is named {:?} too", pool.name),
                "give each its own name",
            );
        }
        let twice = before().find_map(|other| Some((other, claimed_by_both(pool, other)?)));
        if let Some((other, server)) = twice {
            section.report(
                "slots",
                format!(
                    "the pool {:?} keeps {}/{server} too",
                    other.name, pool.policy.backend
                ),
                "give each pool servers of its own: no prefix may go on as another pool's servers are called",
            );
        }
    }
}

/// The name of a server that both pools take for theirs.
fn claimed_by_both(a: &PoolSettings, b: &PoolSettings) -> Option<String> {
    let (long, short) = if a.prefix.len() >= b.prefix.len() {
        (a, b)
    } else {
        (b, a)
    };
    let server = format!("{}1", long.prefix);
    let same_backend = a.policy.backend == b.policy.backend;
    (same_backend && short.policy.mode.claims(&short.prefix, &server)).then_some(server)
}

fn prefix(given: &Given<'_>) -> Result<String, String> {
    let text = given::nonempty(given)?;
    match format!("{text}1").parse::<ServerName>() {
        Ok(_) => Ok(text),
        Err(_) => Err(format!(
            "{text:?} begins no server's name: letters, digits and . : _ -"
        )),
    }
}

fn pool_name(given: &Given<'_>) -> Result<String, String> {
    let text = given::nonempty(given)?;
    let usual = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
    if text.len() <= 128 && text.chars().all(usual) {
        Ok(text)
    } else {
        Err(format!(
            "{text:?}: a pool's name has up to 128 letters, digits and . _ - /"
        ))
    }
}

fn source(given: &Given<'_>) -> Result<Source, String> {
    let text = given::nonempty(given)?;
    match text.split_once(':') {
        Some(("consul", service)) if !service.is_empty() => Ok(Source::Consul(service.to_owned())),
        Some(("file", path)) if path.starts_with('/') => Ok(Source::File(path.into())),
        _ => Err(format!("{text:?} is neither consul:SERVICE nor file:/PATH")),
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("{text:?} is not KEY=VALUE")),
    }
}

fn share(given: &Given<'_>) -> Result<u8, String> {
    let text = given::text(given)?;
    let number = text
        .strip_suffix('%')
        .and_then(|digits| digits.parse().ok());
    number
        .filter(|share| *share <= 100)
        .ok_or_else(|| format!("{text:?} is not a share from \"0%\" to \"100%\""))
}

fn check_port(given: &Given<'_>) -> Result<CheckPort, String> {
    match given::text(given)?.as_str() {
        "configured" => Ok(CheckPort::AsConfigured),
        "instance" => Ok(CheckPort::OfInstance),
        number => number
            .parse::<NonZeroU16>()
            .map(CheckPort::Fixed)
            .map_err(|_| {
                format!("{number:?} is neither \"configured\", \"instance\" nor a port in quotes")
            }),
    }
}

#[cfg(test)]
pub(crate) mod tests;
