//! What a plan is made from: instances, slots as HAProxy reports them, and the rules of one pool.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU16;
use std::ops::Add;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use haplane_haproxy::{AdminState, BackendName, Percent, ServerName};

use crate::key::Key;

/// A time on the caller's own monotonic clock, which starts at zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Moment(pub Duration);

impl Moment {
    /// How long ago `earlier` was; zero when it is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}

/// Where an instance listens. Two slots of one pool never share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoint {
    /// An address, never a name: HAProxy resolves names on its own terms.
    pub address: IpAddr,
    /// HAProxy accepts port 0 and takes 70000 for 4464 (facts 7.1); neither can be said here.
    pub port: NonZeroU16,
}

impl Endpoint {
    /// An endpoint of one machine, an IPv4 address in the clothes of an IPv6 one as what it is.
    ///
    /// # Errors
    ///
    /// Port 0, and addresses that are nobody's own: HAProxy takes all of them. It connects to `0.0.0.0` as to the
    /// address that the client asked for, which is its own.
    pub fn new(address: IpAddr, port: u16) -> Result<Self, EndpointError> {
        let address = address.to_canonical();
        let port = NonZeroU16::new(port).ok_or(EndpointError::Port(0))?;
        let is_broadcast = address == IpAddr::V4(Ipv4Addr::BROADCAST);
        if address.is_unspecified() || address.is_multicast() || is_broadcast {
            return Err(EndpointError::Nobody(address));
        }
        Ok(Self { address, port })
    }
}

/// Why there is no endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// Not of the form.
    #[error(
        "{0:?} is not ADDRESS:PORT with an IP address (IPv6 in brackets) and a port from 1 to 65535"
    )]
    Form(String),
    /// A port out of range.
    #[error("{0} is not a port from 1 to 65535")]
    Port(u64),
    /// An address that no single machine has.
    #[error("{0} is not the address of one machine")]
    Nobody(IpAddr),
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let wrong = || EndpointError::Form(text.to_owned());
        let socket: SocketAddr = text.parse().map_err(|_| wrong())?;
        // A scope such as %eth0 is lost in HAProxy.
        match socket {
            SocketAddr::V6(v6) if v6.scope_id() != 0 => Err(wrong()),
            _ => Self::new(socket.ip(), socket.port()).map_err(|error| match error {
                EndpointError::Port(_) => wrong(),
                error => error,
            }),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::new(self.address, self.port.get()).fmt(f)
    }
}

/// The name under which discovery knows an instance; with the backend before it, the key of its desired state.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InstanceId(Arc<str>);

/// Why a text cannot name an instance.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InstanceIdError {
    /// Nothing, or too long to stand in a key.
    #[error("an id has 1 to {MAX_ID_BYTES} bytes, this one has {0}")]
    Length(usize),
    /// What a key cannot hold.
    #[error("the id {id:?} cannot hold {character:?}: it becomes part of a key")]
    Character {
        /// The whole id.
        id: String,
        /// The first bad character.
        character: char,
    },
}

/// Leaves room for a backend's name and a `/` in a key.
const MAX_ID_BYTES: usize = 180;

impl InstanceId {
    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for InstanceId {
    type Err = InstanceIdError;

    fn from_str(text: &str) -> Result<Self, InstanceIdError> {
        if text.is_empty() || text.len() > MAX_ID_BYTES {
            return Err(InstanceIdError::Length(text.len()));
        }
        let wrong = |c: &char| c.is_whitespace() || c.is_control() || matches!(c, ',' | '#' | '"');
        let bad = text
            .chars()
            .find(wrong)
            .or_else(|| text.ends_with('/').then_some('/'));
        match bad {
            Some(character) => Err(InstanceIdError::Character {
                id: text.to_owned(),
                character,
            }),
            None => Ok(Self(text.into())),
        }
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One endpoint that discovery reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Its name.
    pub id: InstanceId,
    /// Where it listens.
    pub endpoint: Endpoint,
    /// Where it runs.
    pub zone: Option<String>,
    /// Its share of the configured weight; none for all of it.
    pub weight: Option<Percent>,
    /// Groups that its desired state also follows, in order of precedence.
    pub groups: Vec<Key>,
}

/// The agent check of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Agent {
    /// The server line has none: its admin state is ours alone.
    Absent,
    /// It runs, and whatever it answers overrides us within one interval.
    On,
    /// Switched off through the Runtime API, or a dynamic server that was never opened.
    Off,
}

/// What HAProxy's own health check makes of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Health {
    /// The server has no health check: it counts as up whenever it is in rotation.
    Unchecked,
    /// Its health check is switched off, or, for a dynamic server, not started yet.
    Off,
    /// Checked, and up or coming up.
    Up,
    /// Checked, and down.
    Down,
}

/// What took an agent check down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DownBy {
    /// `agent down`, or nothing yet: a dynamic server begins so.
    Command,
    /// The agent's last answer: `down`, or a word like it.
    Answer,
}

/// One slot as HAProxy reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedSlot {
    /// The server's name.
    pub server: ServerName,
    /// Where it points; none for a port of 0 or an unresolved name.
    pub endpoint: Option<Endpoint>,
    /// Ready, drain or maint.
    pub admin: AdminState,
    /// Sessions and queued requests at this moment.
    pub sessions: u64,
    /// Its agent check.
    pub agent: Agent,
    /// An ask of the agent check is under way: its answer may still change `admin` (facts 12.2).
    pub asking: bool,
    /// Its agent check is down, as a retired slot's is: it takes no traffic, whatever `admin` is. Never while the agent
    /// check is off; only seen where sessions are counted.
    pub agent_down: Option<DownBy>,
    /// Its health check.
    pub health: Health,
    /// A health check is under way: its result counts for whatever address the slot has by then.
    pub checking: bool,
    /// The weight in force.
    pub weight: u16,
    /// The weight that the configuration gave.
    pub configured_weight: u16,
    /// An explicit check port, if there is one.
    pub check_port: Option<u16>,
}

impl ObservedSlot {
    /// In maintenance, without sessions, and nothing under way.
    pub(crate) fn is_quiet(&self) -> bool {
        self.admin == AdminState::Maint && self.sessions == 0 && !self.has_under_way()
    }

    /// Something is under way whose outcome counts although it began before: an ask, or a check of whatever address.
    pub(crate) fn has_under_way(&self) -> bool {
        self.asking || self.checking
    }

    /// Out of maintenance: takes traffic of some kind, if only that of persistent sessions, unless a check holds it down.
    pub fn in_rotation(&self) -> bool {
        self.admin != AdminState::Maint
    }
}

/// Which process answered: after a reload or a restart it is another one, which has forgotten everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcessId {
    /// Its number.
    pub pid: u32,
    /// When it started, in seconds since 1970; numbers are used again.
    pub started_at: u64,
}

/// The slots of one pool in one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The process that answered.
    pub process: ProcessId,
    /// The slots in HAProxy's order.
    pub slots: Vec<ObservedSlot>,
}

/// May what is missing from the list be taken out?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Removal {
    /// Yes: the list is trusted.
    Allowed,
    /// No: the list is held. Only what HAProxy finds down may go, and only when its slot is needed.
    Held,
}

/// What shall be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The instances, without duplicates.
    pub serve: Vec<Instance>,
    /// What to do with slots whose instance is not among them.
    pub removal: Removal,
    /// Instances that come and go too often to be given a slot now.
    pub damped: Vec<InstanceId>,
}

/// What the responder says of an instance before its slot is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Opening {
    /// The state to open with.
    pub admin: AdminState,
    /// The share of the configured weight, when the responder named one.
    pub weight: Option<Percent>,
}

impl Opening {
    /// In maintenance.
    pub const KEPT_OUT: Self = Self {
        admin: AdminState::Maint,
        weight: None,
    };
    /// In rotation at the configured weight.
    pub const READY: Self = Self {
        admin: AdminState::Ready,
        weight: Some(Percent::FULL),
    };
}

/// How a pool's servers come to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// `server-template` lines of the configuration.
    Slots,
    /// `add server` and `del server` (HAProxy 2.6 and later).
    Dynamic {
        /// What every server of ours is called, followed by the instance's id.
        prefix: String,
        /// How many there may be.
        most: usize,
        /// Parameters of `add server`, such as `check inter 1s weight 100`.
        parameters: String,
        /// Whether those parameters ask for an agent check.
        enrolled: bool,
    },
}

impl Mode {
    /// Whether a server is one of the pool's, whose servers begin with `prefix`: `server-template web- 1-40` makes `web-1`
    /// to `web-40`, and a pool `web-` must not take the slots of a pool `web-1a-`.
    pub fn claims(&self, prefix: &str, server: &str) -> bool {
        server.strip_prefix(prefix).is_some_and(|rest| match self {
            Self::Slots => !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()),
            Self::Dynamic { .. } => !rest.is_empty(),
        })
    }
}

/// What to do about a slot that a person changed by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ByHand {
    /// Put it right.
    Repair,
    /// Leave it as it is, and say so.
    Leave,
}

/// Which port health checks go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CheckPort {
    /// What the server line says: the server's own port unless it has `port N`.
    AsConfigured,
    /// The instance's port, also where the line or an earlier tool set another one.
    OfInstance,
    /// This one.
    Fixed(NonZeroU16),
}

/// The rules of one pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The backend that the slots are in.
    pub backend: BackendName,
    /// Where slots come from.
    pub mode: Mode,
    /// Groups that every instance of the pool follows after its own.
    pub groups: Vec<Key>,
    /// How long sessions may go on in a slot whose instance left.
    pub drain_grace: Duration,
    /// Whether changes by hand are put right.
    pub by_hand: ByHand,
    /// Where health checks go.
    pub check_port: CheckPort,
}

/// The responder's answers about instances whose slot cannot be told free from in maintenance on purpose.
pub type Answers = BTreeMap<Endpoint, Opening>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_by_prefix() {
        let dynamic = Mode::Dynamic {
            prefix: String::new(),
            most: 1,
            parameters: String::new(),
            enrolled: false,
        };
        for (server, slots, dynamically) in [
            ("web-1", true, true),
            ("web-", false, false),
            ("web-1a-3", false, true),
            ("api-1", false, false),
        ] {
            assert_eq!(Mode::Slots.claims("web-", server), slots, "{server}");
            assert_eq!(dynamic.claims("web-", server), dynamically, "{server}");
        }
    }
}
