//! Why a verdict is what it is, in words for an operator.

use std::fmt;
use std::time::Duration;

use haplane_haproxy::AdminState;

use super::sight::Difference;
use crate::duration;

/// One thing that explains a verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// No socket is configured.
    NoSocket,
    /// HAProxy cannot be looked at; why.
    NoLook(String),
    /// It asks, but no HAProxy that is looked at has a row of this name.
    UnknownRow,
    /// It does not ask any more, and no HAProxy that is looked at has it.
    Gone,
    /// The asks of free slots: HAProxy does not tell which.
    FreeSlots,
    /// A slot of its backend, which may hold it, does not ask as it should; its name, and why.
    InSlot(Box<str>, Box<Cause>),
    /// Its server line has no `agent-check`.
    NotEnrolled,
    /// Its agent check is answered, but not under the row's own name.
    OtherName,
    /// Its agent check asks another port than this agent's.
    OtherPort(u16),
    /// Its agent check is disabled through the socket.
    SwitchedOff,
    /// HAProxy's agent check fails: its word for that, and its explanation.
    CheckFails(Box<str>, Box<str>),
    /// The agent closes its asks without an answer.
    AsksRefused,
    /// Asked once, but has not for this long.
    NoAskFor(Duration),
    /// The HAProxy process, or this agent, is this young, and the row has not asked since.
    NotAskedYet(Duration),
    /// Enrolled in a process of this age, and never asked.
    NeverAsked(Duration),
    /// The store has changed since the last ask.
    StoreChanged,
    /// The store has changed, HAProxy does so already, and has not asked since.
    AheadOfAsk,
    /// Answered, and not looked at since.
    NotLookedSince,
    /// What HAProxy shows instead.
    Shows(Difference),
    /// HAProxy had shown what was answered, and then somebody changed it.
    SetByHand,
    /// HAProxy asks and does otherwise, for this long.
    NotTaken(Duration),
    /// The backend's algorithm refuses weights.
    StaticAlgorithm,
    /// The row's state is that of the one it tracks, or its name does not resolve: HAProxy's word.
    Inherited(Box<str>),
    /// Down by its health checks.
    Down,
    /// Down because an agent once said `down`, or because it started so.
    DownByAgent,
    /// The weight in force is 0.
    NoWeight {
        /// What 100% are.
        configured: u16,
    },
    /// `slowstart` has come this far, in percent.
    Ramp(u32),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSocket => f.write_str("no HAProxy socket is configured"),
            Self::NoLook(trouble) => write!(f, "HAProxy cannot be looked at: {trouble}"),
            Self::UnknownRow => f.write_str(
                "asks, but no HAProxy that is looked at has a row of this name: another HAProxy \
                 asks, a slot holds it, or an agent-send is wrong",
            ),
            Self::Gone => f.write_str("HAProxy does not have this row any more"),
            Self::FreeSlots => f.write_str("free slots ask; which ones, an ask does not tell"),
            Self::InSlot(slot, cause) => write!(f, "it may sit in {slot}: {cause}"),
            Self::NotEnrolled => {
                f.write_str("not enrolled: its server line has no agent-check, no write reaches it")
            }
            Self::OtherName => f.write_str(
                "its agent check is answered, but not under this name: it is a slot, another agent \
                 answers, or its agent-send names another row",
            ),
            Self::OtherPort(port) => {
                write!(f, "its agent check asks port {port}, not this agent")
            }
            Self::SwitchedOff => f.write_str(
                "its agent check is disabled on HAProxy's socket; `enable agent` lets it ask again",
            ),
            Self::CheckFails(word, said) => {
                write!(f, "HAProxy's agent check fails: {word}")?;
                if said.is_empty() {
                    Ok(())
                } else {
                    write!(f, " ({said})")
                }
            }
            Self::AsksRefused => f.write_str(
                "its asks are refused (L7RSP): the agent does not understand its agent-send",
            ),
            Self::NoAskFor(silence) => write!(f, "has not asked for {}", seconds(*silence)),
            Self::NotAskedYet(age) => {
                write!(
                    f,
                    "has not asked yet: HAProxy, or this agent, started {} ago",
                    seconds(*age)
                )
            }
            Self::NeverAsked(age) => {
                write!(f, "enrolled, but has not asked for {}", seconds(*age))
            }
            Self::StoreChanged => f.write_str("the store changed, HAProxy has not asked since"),
            Self::AheadOfAsk => f.write_str(
                "the store changed and HAProxy does so already, but has not asked since",
            ),
            Self::NotLookedSince => f.write_str("answered, not looked at since"),
            Self::Shows(difference) => difference.fmt(f),
            Self::SetByHand => {
                f.write_str("changed on HAProxy's own socket after it had taken the answer")
            }
            Self::NotTaken(lasting) => {
                write!(
                    f,
                    "HAProxy asks and does otherwise, for {}",
                    seconds(*lasting)
                )
            }
            Self::StaticAlgorithm => f.write_str(
                "the backend's balance algorithm is static and takes no weights but 0% and 100%",
            ),
            Self::Inherited(word) => write!(f, "not by its own state: {word}"),
            Self::Down => f.write_str("down by its health check"),
            Self::DownByAgent => {
                f.write_str("down by an agent: only the word @up in its agent-send lifts that")
            }
            Self::NoWeight { configured } => write!(
                f,
                "weight 0 of {configured}: no new traffic, although HAProxy calls it up"
            ),
            Self::Ramp(percent) => write!(f, "slowstart has come to {percent}%"),
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Admin {
                wanted: AdminState::Ready,
                shown,
            } => write!(f, "HAProxy keeps it in {shown}"),
            Self::Admin { wanted, shown } => write!(f, "HAProxy has it {shown}, not {wanted}"),
            Self::Weight {
                wanted,
                shown,
                configured,
            } => write!(
                f,
                "HAProxy gives it weight {shown}, not {wanted} of {configured}"
            ),
        }
    }
}

fn seconds(duration: Duration) -> String {
    if duration < Duration::from_secs(1) {
        return duration::print(duration);
    }
    format!("{}s", duration.as_secs())
}
