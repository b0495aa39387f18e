//! The daemon beside each HAProxy: it follows the store and answers agent checks.
//!
//! Its parts do not wait for each other: the *watcher* replaces the snapshot whenever the store changes, the
//! *responder* answers from it on a thread of its own, the *observer* looks at what HAProxy makes of the answers, and
//! the HTTP side reports to people and other programs. The agent does not know which servers exist; HAProxy tells it at
//! every check.

#![expect(
    unreachable_pub,
    reason = "`pub` below means: for the other parts of the daemon"
)]

mod http;
mod last_good;
mod metrics;
mod observer;
pub mod page;
mod pulse;
mod readable;
mod registration;
mod responder;
mod rows;
mod run;
mod served;
mod standing;
mod watcher;

pub use http::ABSENT_AT_ONCE;
pub use run::{AgentError, run};
