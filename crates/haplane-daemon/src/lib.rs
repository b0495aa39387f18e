//! What every haplane process does the same way: one configuration file, logs, metrics, a small
//! HTTP server, signals and systemd's protocol.
//!
//! What belongs here: the process kit. What does not: anything about rows, keys or slots.

pub mod config_file;
pub mod settings;

pub use config_file::{ConfigError, Document, Override};
pub use settings::Settings;
