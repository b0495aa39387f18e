//! Where lists of instances come from. A source hands over whole lists or failures, never a part of a list.

pub mod consul;
pub mod file;
pub mod hosts;

use std::fmt;
use std::path::PathBuf;

use haplane_core::slots::Instance;

/// One look at a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// The whole list.
    List(Listing),
    /// There is none now.
    Failed(Failure),
}

/// What became of a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// What it says is done.
    Taken,
    /// It is held: another one may settle it.
    Held,
}

/// A whole list, with what was left out of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The instances.
    pub instances: Vec<Instance>,
    /// Where each of them stands, in the same order.
    pub places: Vec<Place>,
    /// What could not be understood, with its place: it is not served, the rest is.
    pub refused: Vec<Refused>,
}

/// A line or an entry that is not an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Where it stands.
    pub place: Place,
    /// What is wrong with it.
    pub why: String,
}

/// Where something stands in a list, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a line of a file.
    Line(usize),
    /// In an entry of a JSON list, or of the answer of Consul.
    Entry(usize),
}

impl Place {
    /// `line` or `entry`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Line(_) => "line",
            Self::Entry(_) => "entry",
        }
    }

    /// Which one.
    pub const fn number(self) -> usize {
        match self {
            Self::Line(number) | Self::Entry(number) => number,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.word(), self.number())
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, why } = self;
        write!(f, "{place} is refused: {why}")
    }
}

impl Listing {
    /// Adds what a place was understood as.
    fn push(&mut self, place: Place, understood: Result<Instance, String>) {
        match understood {
            Ok(instance) => {
                self.instances.push(instance);
                self.places.push(place);
            }
            Err(why) => self.refused.push(Refused { place, why }),
        }
    }
}

/// Why there is no list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The file cannot be read.
    #[error("cannot read {}: {why}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the machine says.
        why: String,
    },
    /// The file holds no list.
    #[error("{}: {why}", path.display())]
    NoList {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Consul did not give an answer that can be trusted.
    #[error("Consul gives no list of service {service}: {why}")]
    Consul {
        /// The service.
        service: String,
        /// What is wrong.
        why: String,
    },
}

impl Failure {
    /// One word for metrics.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } => "unreadable",
            Self::NoList { .. } => "no-list",
            Self::Consul { .. } => "consul",
        }
    }
}
