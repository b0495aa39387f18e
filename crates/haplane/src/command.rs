//! The commands, one module each.

pub mod agent;
pub mod clear;
pub mod init;
pub mod set;
pub mod show;

use haplane_core::target::Target;

use crate::exit::Failure;

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
