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

use std::path::Path;

use haplane_core::Key;
use haplane_core::target::{Known, Target, TargetError};

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

/// Refuses unknown keys. Where they are names of files here, the shell has expanded a glob that was meant
/// for us.
pub fn refuse_unknown(known: &Known, keys: &[Key]) -> Result<(), Failure> {
    known.refuse_unknown(keys).map_err(|error| {
        let is_file = |name: &String| Path::new(name).exists();
        let expanded = match &error {
            TargetError::Unknown { keys, .. } => keys.iter().find(|name| is_file(name)).cloned(),
            _ => None,
        };
        let mut failure = Failure::from(error);
        if let Some(name) = expanded {
            let hint =
                format!("; {name} is a file here: did the shell expand a glob? Quote it: 'web/*'");
            failure.message.push_str(&hint);
        }
        failure
    })
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
