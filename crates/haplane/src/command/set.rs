//! `haplane set`: one value for all keys of a command, in one transaction.

use std::time::Duration;

use haplane_core::target::{Among, Target};
use haplane_core::{Value, ValueError};
use jiff::{SignedDuration, Timestamp, TimestampRound, Unit};

use crate::cli::{LastingOption, SetOptions};
use crate::command::targets;
use crate::failure::Failure;
use crate::report::Report;
use crate::session::Session;
use crate::writer::Writer;

/// Writes the value.
pub async fn run(session: &Session, options: &SetOptions) -> Result<Report, Failure> {
    let now = Timestamp::now();
    let (targets, value) = understand(options, now)?;
    if !value.holds_at(now) {
        session.output.warn(&format!(
            "{value} is over already: it counts as if the key were absent (`haplane clear` deletes it)"
        ));
    }
    let mut writer = Writer::prepare(session, &options.write, &targets, Among::Rows).await?;
    let outcome = writer.write(&writer.wanted(Some(value))).await?;
    writer.finish(&outcome).await
}

/// The words: targets first, the value last.
fn understand(options: &SetOptions, now: Timestamp) -> Result<(Vec<Target>, Value), Failure> {
    let Some((word, names)) = options.words.split_last() else {
        return Err(Failure::usage("name a TARGET and a VALUE"));
    };
    let value: Value = word
        .parse()
        .map_err(|error| not_a_value(word, names, &error))?;
    let targets = targets(names, &options.zones)?;
    if targets.is_empty() {
        return Err(Failure::usage(format!(
            "name what to set to {word}: a key such as web/srv1 or canary, a quoted glob, or -z ZONE"
        )));
    }
    if value.until.is_some() && options.lasting.lasting.is_some() {
        return Err(Failure::usage(
            "the value already has its until=; leave --for out",
        ));
    }
    let until = value.until.or(options.lasting.end(now)?);
    Ok((targets, Value { until, ..value }))
}

/// What is wrong with the last word, and what was most likely meant.
fn not_a_value(word: &str, names: &[String], error: &ValueError) -> Failure {
    let number: Option<f64> = word.parse().ok();
    // 0.5 is a half, and 50 has lost its sign.
    let percent = number.map(|one| if one < 1.0 { one * 100.0 } else { one });
    let percent = percent.filter(|percent| (0.0..=256.0).contains(percent));
    if let (true, Some((value, keys))) = (word.starts_with("until="), names.split_last()) {
        return Failure::usage(format!(
            "the last word is the value, and its end belongs to it: haplane set {} '{value} {word}', or --for 2h",
            keys.join(" ")
        ));
    }
    let meant = match (percent, names.split_first()) {
        (Some(percent), _) => format!("; did you mean {percent:.0}%?"),
        (None, Some((first, rest))) if first.parse::<Value>().is_ok() => {
            let keys: Vec<&str> = rest.iter().map(String::as_str).chain([word]).collect();
            let keys = keys.join(" ");
            format!("; the keys come first, then the value: haplane set {keys} {first}")
        }
        _ => String::new(),
    };
    Failure::usage(format!("the last word is the value: {error}{meant}"))
}

impl LastingOption {
    /// The time at which what is written now ends, if it ends.
    pub fn end(&self, now: Timestamp) -> Result<Option<Timestamp>, Failure> {
        self.lasting.map(|lasting| end_of(lasting, now)).transpose()
    }
}

/// `--for 2h`, as the time at which it ends, on a whole second.
fn end_of(lasting: Duration, now: Timestamp) -> Result<Timestamp, Failure> {
    let wrong = |why: String| Failure::usage(format!("--for: {why}"));
    if lasting.is_zero() {
        return Err(wrong("0 would end before it begins".to_owned()));
    }
    let end = SignedDuration::try_from(lasting)
        .and_then(|lasting| now.checked_add(lasting))
        .map_err(|_| wrong("that is beyond the year 9999; leave --for out".to_owned()))?;
    let up = TimestampRound::new()
        .smallest(Unit::Second)
        .mode(jiff::RoundMode::Ceil);
    end.round(up).map_err(|error| wrong(error.to_string()))
}
