//! Consul: a thin typed client for the few paths that haplane calls, and the store on top of it.
//!
//! What belongs here: what travels to and from Consul's HTTP API, and the care that its traps
//! require (facts 8). What does not: whether a read is believed (`haplane_core::guard`).

pub mod address;
mod client;
mod connection;
mod kv;
mod meta;
mod named;
pub mod service;
pub mod settings;
mod several;
mod store;
mod tls;
pub mod token;
mod txn;
mod writing;

pub use address::Address;
pub use client::Client;
pub use kv::KvPair;
pub use meta::Meta;
pub use settings::{Consistency, ConsulSettings, Prefix};
pub use store::ConsulStore;
pub use tls::TlsSettings;
pub use token::{Secret, TokenSettings};
