//! `haplane ramp`: back in steps of weight, each proven before the next. At 100% nothing is left to say, so the last
//! step deletes the keys, as `haplane ready` does: left there, they would silently win over a later drain behind them.

use std::time::Duration;

use haplane_core::target::Among;
use haplane_core::{Desired, Key, Snapshot, Value};
use haplane_haproxy::Percent;
use jiff::Timestamp;
use tokio::time::{Instant, sleep};

use crate::cli::RampOptions;
use crate::command::{ready, targets};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::report::Report;
use crate::session::Session;
use crate::writer::{Outcome, Writer};

/// Goes through the weights.
pub async fn run(session: &Session, options: &RampOptions) -> Result<Report, Failure> {
    let Some((typed, names)) = options.words.split_last() else {
        return Err(Failure::usage("name a TARGET and the weights"));
    };
    let weights = understand(typed)?;
    let until = options.lasting.end(Timestamp::now())?;
    let targets = targets(names, &options.zones)?;
    if targets.is_empty() {
        return Err(Failure::usage(
            "name what to ramp: a key, a quoted glob, or -z ZONE",
        ));
    }
    let mut writer = Writer::prepare(session, &options.write, &targets, Among::Rows).await?;
    let at_first = writer.snapshot.clone();
    let mut total = Outcome::default();
    for (step, weight) in weights.iter().enumerate() {
        let rest = rest(session, typed, weights.iter().skip(step));
        if step > 0 && !options.write.dry_run {
            still_ours(&mut writer, &at_first, &total)
                .await
                .map_err(|failure| to_go_on(stopped(&writer, &total, failure), &rest))?;
        }
        let is_last = step + 1 == weights.len();
        let is_back = is_last && *weight == Percent::FULL;
        let value = if is_back {
            ready::back(session)
        } else {
            let desired = Desired::Weight(*weight);
            Some(Value { desired, until })
        };
        let outcome = match writer.write(&writer.wanted(value)).await {
            Ok(outcome) => outcome,
            Err(failure) => return Err(to_go_on(stopped(&writer, &total, failure), &rest)),
        };
        total = total.then(outcome);
        if !options.write.dry_run {
            writer.stands(
                &total,
                &format!("{weight} is written and stays; to go on: {rest}"),
            );
        }
        if step == 0 && !is_last && !options.write.dry_run {
            writer.tell_now(&total);
        }
        if !is_last && !options.write.dry_run {
            session.output.note(&format!(
                "{weight} is written ({}/{})",
                step + 1,
                weights.len()
            ));
            if let Err(failure) = hold(&mut writer, &total, options.every).await {
                return Err(to_go_on(stopped(&writer, &total, failure), &rest));
            }
        }
    }
    writer.finish(&total).await
}

/// The command for the rest of the way, with all the options of this one.
fn rest<'w>(session: &Session, typed: &str, weights: impl Iterator<Item = &'w Percent>) -> String {
    let weights: Vec<String> = weights.map(ToString::to_string).collect();
    session.identity.again(typed, &weights.join(","))
}

fn to_go_on(mut failure: Failure, rest: &str) -> Failure {
    failure.message = format!("{}\nto go on: {rest}", failure.message.trim_end());
    failure
}

fn understand(text: &str) -> Result<Vec<Percent>, Failure> {
    let weight = |one: &str| {
        let one = one.trim();
        one.parse().map_err(|_| {
            Failure::usage(format!(
                "the last word is the weights, such as 10%,25%,50%,100%: {one:?} is none, write N% with a \
                 whole number from 0 to 256"
            ))
        })
    };
    text.split(',').map(weight).collect()
}

/// Waits until the next step. Where there are agents, this step must be proven, and must still hold at the end.
async fn hold(writer: &mut Writer<'_>, total: &Outcome, every: Duration) -> Result<(), Failure> {
    let end = Instant::now() + every;
    let can_be_proven = !writer.knowledge.census.nodes.is_empty();
    if can_be_proven {
        proven_within(writer, total, every).await?;
    }
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        writer
            .session
            .output
            .progress(&format!("next step in {}s", left.as_secs()));
        sleep(left.min(Duration::from_secs(1))).await;
    }
    if can_be_proven {
        proven_within(writer, total, Duration::ZERO).await?;
    }
    Ok(())
}

async fn proven_within(
    writer: &mut Writer<'_>,
    total: &Outcome,
    time: Duration,
) -> Result<(), Failure> {
    let waited = writer.prove_within(total, time).await?;
    if waited.converged {
        return Ok(());
    }
    let mut failure = Failure::new(Exit::NotConverged, waited.summary());
    failure.document = Some(writer.document(total, Some(&waited)));
    Err(failure)
}

/// Refuses to go on where somebody changed a key meanwhile: they meant it.
async fn still_ours(
    writer: &mut Writer<'_>,
    at_first: &Snapshot,
    total: &Outcome,
) -> Result<(), Failure> {
    writer.refresh().await?;
    let wrote = |key: &Key| total.written.changed.iter().find(|one| one.key == *key);
    let is_theirs = |key: &&Key| {
        let now = writer.snapshot.get(key);
        match wrote(key) {
            Some(ours) => {
                let is_as_written = now.is_some_and(|s| Some(s.value.to_string()) == ours.after);
                let is_our_entry = now.is_some_and(|s| {
                    s.log_id
                        .is_some_and(|id| total.written.log_ids.contains(&id))
                });
                !(is_as_written && is_our_entry)
            }
            None => now != at_first.get(key),
        }
    };
    let theirs: Vec<Key> = writer.keys.iter().filter(is_theirs).cloned().collect();
    if theirs.is_empty() {
        return Ok(());
    }
    let who = writer.who_changed(&theirs).await;
    Err(Failure::refused(format!(
        "somebody changed a key during the ramp, which stops here\n{who}"
    )))
}

fn stopped(writer: &Writer<'_>, total: &Outcome, mut failure: Failure) -> Failure {
    if !total.written.changed.is_empty() {
        failure
            .document
            .get_or_insert_with(|| writer.document(total, None));
    }
    failure
}
