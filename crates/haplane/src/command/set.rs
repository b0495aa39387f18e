//! `haplane set`: one value for all keys of a command, in one transaction.

use haplane_core::target::{Among, Target};
use haplane_core::{Value, duration};
use jiff::{SignedDuration, Timestamp, TimestampRound, Unit};

use crate::cli::SetOptions;
use crate::command::targets;
use crate::exit::Failure;
use crate::output::Report;
use crate::session::Session;
use crate::write::Wanted;
use crate::writer::Writer;

/// Writes the value.
pub async fn run(session: &Session, options: &SetOptions) -> Result<Report, Failure> {
    let (targets, value) = understand(options, Timestamp::now())?;
    let writer = Writer::prepare(session, &options.write, &targets, Among::Rows).await?;
    let wanted = |key| Wanted {
        key,
        value: Some(value),
    };
    let wanted: Vec<Wanted> = writer.keys().iter().cloned().map(wanted).collect();
    writer.write(&wanted).await
}

/// The words: targets first, the value last.
fn understand(options: &SetOptions, now: Timestamp) -> Result<(Vec<Target>, Value), Failure> {
    let Some((word, names)) = options.words.split_last() else {
        return Err(Failure::usage("name a TARGET and a VALUE"));
    };
    let value: Value = word
        .parse()
        .map_err(|error| Failure::usage(format!("the last word is the value: {error}")))?;
    let targets = targets(names, &options.zones)?;
    if targets.is_empty() {
        return Err(Failure::usage(format!(
            "name what to set to {word}: a key such as web/srv1 or canary, a quoted glob, or -z ZONE"
        )));
    }
    let until = match &options.lasting {
        None => return Ok((targets, value)),
        Some(_) if value.until.is_some() => {
            return Err(Failure::usage(
                "the value already has its until=; leave --for out",
            ));
        }
        Some(lasting) => end_of(lasting, now)?,
    };
    let until = Some(until);
    Ok((targets, Value { until, ..value }))
}

/// `--for 2h`, as the time at which it ends, on a whole second.
pub fn end_of(lasting: &str, now: Timestamp) -> Result<Timestamp, Failure> {
    let wrong = |why: String| Failure::usage(format!("--for: {why}"));
    let lasting = duration::parse(lasting).map_err(|error| wrong(error.to_string()))?;
    if lasting.is_zero() {
        return Err(wrong("0 would end before it begins".to_owned()));
    }
    let end = SignedDuration::try_from(lasting)
        .and_then(|lasting| now.checked_add(lasting))
        .map_err(|error| wrong(error.to_string()))?;
    let up = TimestampRound::new()
        .smallest(Unit::Second)
        .mode(jiff::RoundMode::Ceil);
    end.round(up).map_err(|error| wrong(error.to_string()))
}
