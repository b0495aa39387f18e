//! `haplane sync`: keeps HAProxy's slots in line with service discovery.
//!
//! What belongs here: reading sources, looking at processes, taking steps. What does not: deciding which steps (that is
//! `haplane_core::slots`).

#![expect(
    unreachable_pub,
    reason = "`pub` below means: for the other parts of the daemon"
)]

mod board;
mod clock;
mod hands;
mod http;
mod keep;
mod metrics;
mod observe;
pub mod once;
mod pool;
mod process;
mod responder;
mod run;
mod settings;
mod source;
mod view;

pub use process::RoundError;
pub use run::{SyncError, run};
pub use settings::SyncSettings;
