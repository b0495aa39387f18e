//! Where lists of instances come from. A source hands over whole lists or failures, never a part of a list.

pub mod consul;
pub mod file;
pub mod hosts;

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

/// A whole list, with what was left out of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The instances.
    pub instances: Vec<Instance>,
    /// What could not be understood, with its place: it is not served, the rest is.
    pub refused: Vec<Refused>,
}

/// A line or an entry that is not an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The line's number in a file, from 1; the entry's in a list.
    pub number: usize,
    /// What is wrong with it.
    pub why: String,
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
