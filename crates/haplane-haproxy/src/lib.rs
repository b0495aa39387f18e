//! HAProxy's own vocabulary and texts, both directions, without I/O.
//!
//! What belongs here: types for HAProxy's names and states, and readers and writers for every
//! text that HAProxy speaks (the agent-check line, `show servers state`, `show stat`,
//! haproxy.cfg). What does not: decisions (those are in `haplane-core`) and sockets.

pub mod admin_state;
pub mod agent_check;
pub mod cfg;
pub mod duration;
pub mod forecast;
pub mod names;
pub mod runtime_cmd;
pub mod server_state;
pub mod show_info;
pub mod stat_csv;
pub mod version;
pub mod weight;

pub use admin_state::AdminState;
pub use names::{BackendName, NameError, RowKey, ServerName};
pub use version::HaproxyVersion;
pub use weight::{Percent, PercentError};
