//! Where desired state lives: Consul's KV store, or a directory of small files.
//!
//! What belongs here: reading, watching and writing the state prefix and its log, and the little of
//! Consul's API that haplane needs. What does not: what a read means (`haplane_core::guard`) and
//! what a value says (`haplane_core::desired`).

pub mod any;
mod blocking;
pub mod consul;
pub mod dir;
pub mod error;
pub mod store;
pub mod watch;

pub use any::{AnyStore, Location, StoreSettings};
pub use error::{CommitError, StoreError, StoreErrorKind};
pub use store::{Change, Committed, Expected, Named, Store, Transaction, read_keys};
pub use watch::{Event, Moment, View, Watch, WatchSettings};
