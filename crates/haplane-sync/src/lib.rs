//! `haplane sync`: keeps HAProxy's slots in line with service discovery.
//!
//! What belongs here: reading sources, looking at processes, taking steps. What does not: deciding which steps (that is
//! `haplane_core::slots`).

pub mod board;
pub mod clock;
pub mod http;
pub mod keep;
pub mod metrics;
pub mod observe;
pub mod once;
pub mod pool;
pub mod process;
pub mod responder;
pub mod run;
pub mod settings;
pub mod source;
pub mod view;

pub use process::RoundError;
pub use run::SyncError;
pub use settings::SyncSettings;
