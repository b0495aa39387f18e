//! `haplane ready`: back into rotation.

use haplane_core::resolve::Absent;
use haplane_core::target::{Among, Target};
use haplane_core::{Desired, Value};
use jiff::Timestamp;

use crate::cli::{LastingOption, ReadyOptions, WriteOptions};
use crate::command::targets;
use crate::failure::Failure;
use crate::report::Report;
use crate::session::Session;
use crate::writer::{Outcome, Writer};

/// Brings back what the targets name.
pub async fn run(session: &Session, options: &ReadyOptions) -> Result<Report, Failure> {
    let targets = targets(&options.selection.targets, &options.selection.zones)?;
    if targets.is_empty() {
        return Err(Failure::usage(
            "name what to bring back: a key, a quoted glob, or -z ZONE",
        ));
    }
    let word = word(options.explicit, &options.lasting)?;
    ready(session, &options.write, &targets, word).await
}

/// What the keys are to say: nothing, so that what is behind them decides, or the word `ready`.
pub fn word(explicit: bool, lasting: &LastingOption) -> Result<Option<Value>, Failure> {
    let until = lasting.end(Timestamp::now())?;
    if until.is_some() && !explicit {
        return Err(Failure::usage(
            "--for: ready deletes the key, and a key that is gone has no end; --explicit writes the word ready, \
             which can end by itself",
        ));
    }
    let desired = Desired::READY;
    Ok(explicit.then_some(Value { desired, until }))
}

/// The value of a row's key when the row is back for good: none, unless `absent = "keep"` leaves rows
/// without a key as they are.
pub fn back(session: &Session) -> Option<Value> {
    (session.settings.agent.absent == Absent::Keep).then_some(Value::lasting(Desired::READY))
}

/// Writes and proves.
pub async fn ready(
    session: &Session,
    options: &WriteOptions,
    targets: &[Target],
    word: Option<Value>,
) -> Result<Report, Failure> {
    let mut writer = Writer::prepare(session, options, targets, Among::Rows).await?;
    let wanted = writer.wanted(word);
    let outcome = writer.write(&wanted).await?;
    advise(session, &outcome, word);
    writer.finish(&outcome).await
}

/// Whether a key that says this keeps rows draining by now.
fn is_draining(text: &str) -> bool {
    let value: Result<Value, _> = text.parse();
    value.is_ok_and(|value| value.desired == Desired::DRAIN && value.holds_at(Timestamp::now()))
}

fn advise(session: &Session, outcome: &Outcome, word: Option<Value>) {
    let from_drain: Vec<&str> = outcome
        .written
        .changed
        .iter()
        .filter(|one| one.before.as_deref().is_some_and(is_draining))
        .map(|one| one.key.as_str())
        .collect();
    if !from_drain.is_empty() {
        session.output.note(&format!(
            "from drain, traffic comes back at once: HAProxy's slowstart ramps only what leaves maint ({})",
            from_drain.join(", ")
        ));
    }
    if word.is_none() && session.settings.agent.absent == Absent::Keep {
        session.output.warn(
            "absent = \"keep\": without a key rows stay as they are; --explicit writes ready and brings them back",
        );
    }
}
