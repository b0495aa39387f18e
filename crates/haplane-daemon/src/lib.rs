//! What every haplane process does the same way: one configuration file, logs, metrics, a small
//! HTTP server, signals and systemd's protocol.
//!
//! What belongs here: the process kit. What does not: anything about rows, keys or slots.

pub mod admin_http;
pub mod config_file;
pub mod connections;
pub mod limits;
pub mod logs;
pub mod metrics;
pub mod parts;
pub mod profiles;
pub mod settings;
pub mod shutdown;
pub mod supervisor;
mod unstalled;

pub use config_file::{ConfigError, Document, Override};
pub use settings::Settings;
