//! The commands, one module each.

pub mod agent;
pub mod audit;
pub mod canary;
pub mod clear;
pub mod completions;
pub mod drain;
pub mod enroll;
pub mod forget;
pub mod heartbeat;
pub mod init;
pub mod log;
pub mod man;
pub mod ramp;
pub mod ready;
pub mod seed;
pub mod set;
pub mod show;
pub mod slots;
pub mod status;
pub mod sync;
pub mod ui;
pub mod wait;
pub mod why;

use haplane_core::Key;
use haplane_core::target::Target;

use crate::failure::Failure;

/// The targets as typed, all wrong ones at once.
pub fn targets(names: &[String], zones: &[String]) -> Result<Vec<Target>, Failure> {
    let mut targets = Vec::new();
    let mut wrong = Vec::new();
    for name in names {
        match name.parse() {
            Ok(target) => targets.push(target),
            Err(error) => wrong.push(format!("{name:?} is no target: {error}")),
        }
    }
    targets.extend(zones.iter().cloned().map(Target::Zone));
    if wrong.is_empty() {
        Ok(targets)
    } else {
        Err(Failure::usage(wrong.join("\n")))
    }
}

/// Keys in a message: a few by name.
pub fn names<'k>(keys: impl ExactSizeIterator<Item = &'k Key>) -> String {
    const NAMED: usize = 5;
    let more = keys.len().saturating_sub(NAMED);
    let mut names: Vec<String> = keys.take(NAMED).map(Key::to_string).collect();
    if more > 0 {
        names.push(format!("{more} more"));
    }
    names.join(", ")
}
