//! Why a step is taken.

use std::fmt;

/// Why a step is taken. Its text goes into plans, logs and pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// Discovery lists an instance that has no slot.
    Joined,
    /// Discovery no longer lists the instance.
    Left,
    /// The slot points at an address that discovery does not list, and nothing is remembered about it.
    NotDiscovered,
    /// Another slot already serves this address.
    Duplicate,
    /// The slot is as it should be, but this process has not been told what it sends; it is told again.
    Unfamiliar,
    /// An earlier step was not acknowledged, so it is taken again.
    Unconfirmed,
    /// The instance's id, groups or weight changed.
    WordsChanged,
    /// A person changed the slot.
    ByHand,
    /// Nobody can see what a slot sends, so it is said again from time to time.
    Unseen,
    /// The agent's answer to words from before opened a slot that was taken out.
    OpenedAgain,
    /// The list is held, HAProxy finds this instance down, and another one needs the slot.
    GaveWay,
    /// The slot has the right address, and nothing can open it but us.
    Prepared,
    /// Sessions outlived the grace.
    GraceOver,
    /// A dynamic server that holds no instance any more.
    Unused,
}

impl Reason {
    /// The word for it in JSON and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Joined => "joined",
            Self::Left => "left",
            Self::NotDiscovered => "not-discovered",
            Self::Duplicate => "duplicate",
            Self::Unfamiliar => "unfamiliar",
            Self::Unconfirmed => "unconfirmed",
            Self::WordsChanged => "words-changed",
            Self::ByHand => "by-hand",
            Self::Unseen => "unseen",
            Self::OpenedAgain => "opened-again",
            Self::GaveWay => "gave-way",
            Self::Prepared => "prepared",
            Self::GraceOver => "grace-over",
            Self::Unused => "unused",
        }
    }
}

impl Reason {
    /// Why a step was taken, in the past tense: what follows "filled because …".
    pub const fn past(self) -> &'static str {
        match self {
            Self::Joined => "discovery listed it and it had no slot",
            Self::Left => "discovery no longer listed it",
            Self::NotDiscovered => "discovery did not list this address",
            Self::Duplicate => "another slot already served this address",
            Self::Unfamiliar => "this HAProxy process had to be told again what the slot sends",
            Self::Unconfirmed => "the earlier attempt was not acknowledged",
            Self::WordsChanged => "its id, groups or weight had changed",
            Self::ByHand => "somebody had changed the slot by hand",
            Self::Unseen => "what a slot sends cannot be seen",
            Self::OpenedAgain => "a late answer of the agent had opened it again",
            Self::GaveWay => "the list was held, HAProxy found it down, and its slot was needed",
            Self::Prepared => "its address was read back",
            Self::GraceOver => "its sessions outlived the drain grace",
            Self::Unused => "it held no instance any more",
        }
    }
}

/// A sentence's end: "because …".
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Joined => "discovery lists it and it has no slot",
            Self::Left => "discovery no longer lists it",
            Self::NotDiscovered => "discovery does not list this address",
            Self::Duplicate => "another slot already serves this address",
            Self::Unfamiliar => "this HAProxy process has to be told again what the slot sends",
            Self::Unconfirmed => "the earlier attempt was not acknowledged",
            Self::WordsChanged => "its id, groups or weight changed",
            Self::ByHand => "somebody changed the slot by hand",
            Self::Unseen => "what a slot sends cannot be seen",
            Self::OpenedAgain => "a late answer of the agent opened it again",
            Self::GaveWay => "the list is held, HAProxy finds it down, and its slot is needed",
            Self::Prepared => "its address was read back",
            Self::GraceOver => "its sessions outlived the drain grace",
            Self::Unused => "it holds no instance any more",
        })
    }
}
