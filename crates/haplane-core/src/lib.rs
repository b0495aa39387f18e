//! Every decision that haplane makes, as pure functions over values.
//!
//! Nothing here does I/O, reads a clock or the environment, or logs: time and randomness come in as
//! values, so that a test needs no socket to test a decision.

pub mod ask;
pub mod audit;
pub mod backoff;
pub mod clock;
pub mod converge;
pub mod desired;
pub mod duration;
pub mod enroll;
pub mod floor;
pub mod glob;
pub mod guard;
pub mod key;
pub mod kv_path;
pub mod log;
pub mod marker;
pub mod nearest;
pub mod outlook;
pub mod resolve;
pub mod seed;
pub mod slots;
pub mod snapshot;
pub mod sweep;
pub mod target;
pub mod verdict;

pub use desired::{Desired, Value, ValueError};
pub use key::{Key, KeyError};
pub use snapshot::{Snapshot, Stored};
