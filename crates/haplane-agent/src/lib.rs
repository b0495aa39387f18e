//! The daemon beside each HAProxy: it follows the store and answers agent checks.
//!
//! Parts that wait for nobody: the *watcher* replaces the snapshot whenever the store changes, the
//! *responder* answers from it on a thread of its own, the *observer* looks at what HAProxy makes of
//! the answers, and the HTTP side tells people and other programs. The agent does not know which servers exist; HAProxy tells
//! it at every check.

pub mod http;
pub mod last_good;
pub mod metrics;
pub mod observer;
pub mod page;
pub mod parts;
pub mod pulse;
pub mod readable;
pub mod registration;
pub mod responder;
pub mod rows;
pub mod run;
pub mod served;
pub mod standing;
pub mod watcher;

pub use run::{AgentError, run};
