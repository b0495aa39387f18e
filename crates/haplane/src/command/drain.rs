//! `haplane drain`: out of rotation in two steps, `drain` until the sessions are gone, then `maint`.
//!
//! The command can be interrupted at any moment and run again: what it left in the store says where it
//! was, and since when.

mod sessions;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use haplane_core::log::LogId;
use haplane_core::target::{Among, Target};
use haplane_core::{Desired, Key, Value};
use jiff::Timestamp;
use tokio::time::{Instant, sleep};

use crate::cli::{DrainOptions, DrainSteps, LastingOption, WriteOptions};
use crate::command::targets;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::report::Report;
use crate::session::Session;
use crate::state::Origins;
use crate::write::Wanted;
use crate::writer::{Outcome, Writer};

/// How long to wait for a store that went away before the second step is given up.
const STORE_PATIENCE: Duration = Duration::from_mins(1);
const STORE_PAUSE: Duration = Duration::from_secs(1);

/// How to drain, understood.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// How long sessions may take.
    pub grace: Duration,
    /// Whether to stay at drain.
    pub drain_only: bool,
    /// When what is written now ends by itself.
    pub until: Option<Timestamp>,
}

impl How {
    /// The options, understood.
    pub fn understand(steps: &DrainSteps, lasting: &LastingOption) -> Result<Self, Failure> {
        Ok(Self {
            grace: steps.grace,
            drain_only: steps.drain_only,
            until: lasting.end(Timestamp::now())?,
        })
    }
}

/// A key that says drain on our account.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    value: Value,
    log_id: Option<LogId>,
    /// Since when; the grace counts from here.
    since: Timestamp,
}

/// Drains what the targets name.
pub async fn run(session: &Session, options: &DrainOptions) -> Result<Report, Failure> {
    let targets = targets(&options.selection.targets, &options.selection.zones)?;
    if targets.is_empty() {
        return Err(Failure::usage(
            "name what to drain: a key, a quoted glob, or -z ZONE",
        ));
    }
    let how = How::understand(&options.steps, &options.lasting)?;
    drain(session, &options.write, &targets, &how).await
}

/// Both steps, and the proof with `--wait`.
pub async fn drain(
    session: &Session,
    options: &WriteOptions,
    targets: &[Target],
    how: &How,
) -> Result<Report, Failure> {
    let mut writer = Writer::prepare(session, options, targets, Among::Rows).await?;
    if options.dry_run {
        let end = if how.drain_only {
            Desired::DRAIN
        } else {
            Desired::MAINT
        };
        let outcome = writer.write(&first_step(&writer, how, end)).await?;
        return writer.finish(&outcome).await;
    }
    let first = writer
        .write(&first_step(&writer, how, Desired::DRAIN))
        .await?;
    if how.drain_only {
        return writer.finish(&first).await;
    }
    if !first.written.changed.is_empty() {
        writer.tell_now(&first);
    }
    let finished = second_step(&mut writer, &first, how).await;
    match finished {
        Ok(outcome) => writer.finish(&outcome).await,
        Err(mut failure) => {
            // What the first step wrote is written.
            failure
                .document
                .get_or_insert_with(|| writer.document(&first, None));
            Err(failure)
        }
    }
}

/// `drain` for every key that is not out of rotation by drain or maint already.
fn first_step(writer: &Writer<'_>, how: &How, desired: Desired) -> Vec<Wanted> {
    let now = Timestamp::now();
    let wanted = |key: &Key| {
        let present = writer.snapshot.get(key).map(|stored| stored.value);
        let present = present.filter(|value| value.holds_at(now));
        let is_on_the_way = |value: &Value| {
            let is_out = value.desired == desired || value.desired == Desired::MAINT;
            is_out && (how.until.is_none() || how.until == value.until)
        };
        let until = how.until;
        let value = present
            .filter(is_on_the_way)
            .unwrap_or(Value { desired, until });
        Wanted {
            key: key.clone(),
            value: Some(value),
        }
    };
    writer.keys.iter().map(wanted).collect()
}

async fn second_step(
    writer: &mut Writer<'_>,
    first: &Outcome,
    how: &How,
) -> Result<Outcome, Failure> {
    let held = held_patiently(writer).await?;
    if held.is_empty() {
        return Ok(first.clone());
    }
    let waited_for: BTreeSet<Key> = held.keys().cloned().collect();
    let index = first.written.index.unwrap_or(writer.snapshot.index);
    let began = held
        .values()
        .map(|one| one.since)
        .max()
        .unwrap_or_else(Timestamp::now);
    let names = crate::command::names(waited_for.iter());
    // Asked before the grace, not after it.
    writer.confirm(&format!("take {names} to maint"), first)?;
    let back: Vec<&str> = waited_for.iter().map(Key::as_str).collect();
    writer.stands(
        first,
        &format!(
            "{names} stays at drain; run the same command again for the step to maint, \
             or `haplane ready {}` to bring it back",
            back.join(" ")
        ),
    );
    let gone = Timestamp::now().duration_since(began);
    let left = how
        .grace
        .saturating_sub(Duration::try_from(gone).unwrap_or(Duration::ZERO));
    sessions::wait_until_gone(writer, &waited_for, index, left).await;
    to_maint(writer, first, &held).await
}

/// The keys that say drain now, with their owners. One that says maint already is done.
async fn held(writer: &Writer<'_>) -> Result<BTreeMap<Key, Held>, Failure> {
    let now = Timestamp::now();
    let draining = writer.keys.iter().filter_map(|key| {
        let stored = writer.snapshot.get(key)?;
        let is_draining = stored.value.desired == Desired::DRAIN && stored.value.holds_at(now);
        is_draining.then_some((key, stored))
    });
    let draining: Vec<_> = draining.collect();
    let ids = draining.iter().filter_map(|(_, stored)| stored.log_id);
    let origins = Origins::of(&writer.session.store, ids).await?;
    let held = draining.into_iter().map(|(key, stored)| {
        let since = origins.get(stored.log_id).map_or(now, |entry| entry.at);
        let held = Held {
            value: stored.value,
            log_id: stored.log_id,
            since,
        };
        (key.clone(), held)
    });
    Ok(held.collect())
}

/// Writes `maint` for the keys that are still as this command left them. A store that is away is
/// waited for; a key that somebody else changed is left to them.
async fn to_maint(
    writer: &mut Writer<'_>,
    first: &Outcome,
    held: &BTreeMap<Key, Held>,
) -> Result<Outcome, Failure> {
    let give_up = Instant::now() + STORE_PATIENCE;
    loop {
        match attempt(writer, first, held).await {
            Err(failure) => be_patient(writer, failure, give_up).await?,
            done => return done,
        }
    }
}

/// The same for what is read between the two steps.
async fn held_patiently(writer: &mut Writer<'_>) -> Result<BTreeMap<Key, Held>, Failure> {
    let give_up = Instant::now() + STORE_PATIENCE;
    loop {
        let read = match writer.refresh().await {
            Ok(()) => held(writer).await,
            Err(failure) => Err(failure),
        };
        match read {
            Err(failure) => be_patient(writer, failure, give_up).await?,
            read => return read,
        }
    }
}

/// Pauses when the store is away, until it is time to give up.
async fn be_patient(
    writer: &Writer<'_>,
    mut failure: Failure,
    give_up: Instant,
) -> Result<(), Failure> {
    if failure.exit != Exit::Unreachable {
        return Err(failure);
    }
    if Instant::now() >= give_up {
        failure
            .message
            .push_str("\nthe keys stay at drain; run the same command again for the step to maint");
        return Err(failure);
    }
    let output = &writer.session.output;
    output.progress(&format!("waiting for the store: {}", failure.message));
    sleep(STORE_PAUSE).await;
    Ok(())
}

async fn attempt(
    writer: &mut Writer<'_>,
    first: &Outcome,
    held: &BTreeMap<Key, Held>,
) -> Result<Outcome, Failure> {
    writer.refresh().await?;
    let mut wanted = Vec::new();
    let mut lost = Vec::new();
    for (key, held) in held {
        let stored = writer.snapshot.get(key);
        let is_ours = stored.is_some_and(|s| s.value == held.value && s.log_id == held.log_id);
        let is_done = stored.is_some_and(|s| s.value.desired == Desired::MAINT);
        if is_ours {
            let value = Value {
                desired: Desired::MAINT,
                ..held.value
            };
            wanted.push(Wanted {
                key: key.clone(),
                value: Some(value),
            });
        } else if !is_done {
            lost.push(key.clone());
        }
    }
    let second = writer.write(&wanted).await?;
    let outcome = first.clone().then(second);
    if lost.is_empty() {
        return Ok(outcome);
    }
    let names: Vec<&str> = lost.iter().map(Key::as_str).collect();
    let who = writer.who_changed(&lost).await;
    let mut failure = Failure::refused(format!(
        "somebody changed {} during the drain, so there it stays as it is, without the step to maint\n{who}",
        names.join(", ")
    ));
    failure.document = Some(writer.document(&outcome, None));
    Err(failure)
}
