//! `haplane slots`: what the running synchroniser says of every slot.

use haplane_core::slots::hold::HeldReason;
use haplane_daemon::Settings;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cli::SlotsOptions;
use crate::command::sync::{running, sync_settings};
use crate::config::Source;
use crate::daemon::on_a_runtime;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Output;
use crate::report::{BAD, Cell, FAINT, GOOD, NOTABLE, Report, Table};
use crate::times;

/// Shows the slots of all pools, or of some.
pub fn run(settings: &Settings, source: &Source, options: &SlotsOptions, output: &Output) -> Exit {
    let report = sync_settings(settings, source)
        .and_then(|sync| on_a_runtime(running::pools(&sync))?)
        .and_then(|pools| choose(pools, &options.pools))
        .map(|pools| tell(&pools, options.history));
    match report {
        Ok(report) => output.report(&report),
        Err(failure) => output.failure(&failure),
    }
}

fn choose(pools: Vec<Value>, names: &[String]) -> Result<Vec<Value>, Failure> {
    let known: Vec<String> = pools
        .iter()
        .filter_map(|pool| pool["pool"].as_str().map(str::to_owned))
        .collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
        return Err(Failure::refused(format!(
            "there is no pool {unknown:?}; there are: {}",
            known.join(", ")
        )));
    }
    let wanted =
        |pool: &Value| names.is_empty() || names.iter().any(|name| pool["pool"] == name.as_str());
    Ok(pools.into_iter().filter(wanted).collect())
}

fn tell(pools: &[Value], history: bool) -> Report {
    let now = Timestamp::now();
    let mut report = Report::new(json!({ "pools": pools })).table(slots(pools, now));
    for pool in pools {
        for line in about(pool, now) {
            report = report.line(line);
        }
    }
    if history {
        report.table(transitions(pools, now))
    } else {
        report
    }
}

fn slots(pools: &[Value], now: Timestamp) -> Table {
    let several = are_several(pools);
    let mut table = Table::new(&head(
        several,
        &[
            "SLOT", "STATE", "INSTANCE", "ADDRESS", "ADMIN", "HEALTH", "SINCE", "WHY",
        ],
    ));
    for Placed {
        pool,
        process,
        slot,
    } in each_slot(pools)
    {
        let state = text(slot, "state");
        let style = match state {
            "active" => GOOD,
            "free" => FAINT,
            _ => NOTABLE,
        };
        let mut row = place(several, pool, process);
        row.extend([
            text(slot, "slot").into(),
            Cell::styled(state, style),
            text(slot, "instance").into(),
            text(slot, "address").into(),
            text(slot, "admin").into(),
            text(slot, "health").into(),
            ago(slot, "since", now).into(),
            text(slot, "why").into(),
        ]);
        table.push(row);
    }
    table
}

fn transitions(pools: &[Value], now: Timestamp) -> Table {
    let several = are_several(pools);
    let mut table = Table::new(&head(
        several,
        &["SLOT", "WHEN", "STATE", "INSTANCE", "WHY"],
    ));
    for Placed {
        pool,
        process,
        slot,
    } in each_slot(pools)
    {
        for transition in list(slot, "transitions") {
            let mut row = place(several, pool, process);
            row.extend([
                text(slot, "slot").into(),
                ago(transition, "at", now).into(),
                text(transition, "state").into(),
                text(transition, "instance").into(),
                text(transition, "why").into(),
            ]);
            table.push(row);
        }
    }
    table
}

/// Several HAProxy processes have slots of the same names; one alone needs no column.
fn are_several(pools: &[Value]) -> bool {
    pools.iter().any(|pool| list(pool, "processes").len() > 1)
}

fn head<'a>(several: bool, rest: &[&'a str]) -> Vec<&'a str> {
    let mut head = vec!["POOL"];
    head.extend(several.then_some("PROCESS"));
    head.extend(rest);
    head
}

fn place(several: bool, pool: &Value, process: &Value) -> Vec<Cell> {
    let mut place: Vec<Cell> = vec![text(pool, "pool").into()];
    place.extend(several.then(|| text(process, "socket").into()));
    place
}

/// What is not as it should be with a pool.
fn about(pool: &Value, now: Timestamp) -> Vec<String> {
    let name = text(pool, "pool");
    let mut lines = Vec::new();
    let held = &pool["held"];
    if !held.is_null() {
        lines.push(format!(
            "{BAD}{name}: {}{BAD:#}",
            about_held(held, name, now)
        ));
    }
    for line in list(pool, "refused") {
        lines.push(format!(
            "{NOTABLE}{name}: {} {} is refused: {}{NOTABLE:#}",
            text(line, "place"),
            line["number"],
            text(line, "why")
        ));
    }
    for twin in list(pool, "duplicates") {
        let twin = twin.as_str().unwrap_or_default();
        lines.push(format!("{NOTABLE}{name}: left out: {twin}{NOTABLE:#}"));
    }
    for flapping in list(pool, "flapping") {
        let came = list(flapping, "transitions")
            .iter()
            .filter(|flap| flap["came"] == true)
            .count();
        lines.push(format!(
            "{NOTABLE}{name}: {} came {came} times of late, and waits until it stays{NOTABLE:#}",
            text(flapping, "instance")
        ));
    }
    let several = are_several(std::slice::from_ref(pool));
    for process in list(pool, "processes") {
        let socket = text(process, "socket");
        let here = if several {
            format!("{name} in {socket}")
        } else {
            name.to_owned()
        };
        if let Some(error) = process["error"].as_str() {
            lines.push(format!("{BAD}{name} in {socket}: {error}{BAD:#}"));
        }
        for id in list(process, "failing") {
            let id = id.as_str().unwrap_or_default();
            lines.push(format!(
                "{BAD}{here}: HAProxy would not take {id}; it is tried again{BAD:#}"
            ));
        }
        if let Some(rounds) = process["contested"].as_u64() {
            lines.push(format!(
                "{BAD}{here}: its slots were changed from outside and put right {rounds} times within ten minutes: does another \
                 synchroniser, a script or a person work on them?{BAD:#}"
            ));
        }
        for homeless in list(process, "homeless") {
            lines.push(format!(
                "{BAD}{here}: no slot for {} ({}) since {}{BAD:#}",
                text(homeless, "instance"),
                text(homeless, "address"),
                ago(homeless, "since", now)
            ));
        }
        if let Some(seconds) = process["time_to_full_s"]
            .as_u64()
            .filter(|_| list(process, "homeless").is_empty())
        {
            let time = times::span_of(std::time::Duration::from_secs(seconds));
            lines.push(format!("{NOTABLE}{here}: its slots run out in {time} at the growth of the last hour{NOTABLE:#}"));
        }
    }
    lines
}

/// A failed read is no list that anybody could confirm: its cause is what helps.
fn about_held(held: &Value, pool: &str, now: Timestamp) -> String {
    let reason = text(held, "reason");
    let since = ago(held, "since", now);
    let time = since.trim_end_matches(" ago");
    let (had, has) = (&held["had"], &held["has"]);
    let numbers = format!("held ({reason}) for {time}: the list had {had} instances and has {has}");
    if reason == HeldReason::Failed.as_str() {
        let cause = text(held, "detail");
        format!(
            "held ({reason}) for {time}: the source cannot be read, {had} instances stay: {cause}"
        )
    } else if held["until"].is_null() {
        format!("{numbers}; if that is right: haplane sync confirm {pool}")
    } else {
        let left = times::between(now, until(held).unwrap_or(now));
        format!("{numbers}; it is accepted in {left}, or at once by haplane sync confirm {pool}")
    }
}

fn until(held: &Value) -> Option<Timestamp> {
    held["until"].as_str()?.parse().ok()
}

/// A slot and where it is.
struct Placed<'a> {
    pool: &'a Value,
    process: &'a Value,
    slot: &'a Value,
}

fn each_slot(pools: &[Value]) -> impl Iterator<Item = Placed<'_>> {
    pools.iter().flat_map(|pool| {
        list(pool, "processes").iter().flat_map(move |process| {
            let placed = move |slot| Placed {
                pool,
                process,
                slot,
            };
            list(process, "slots").iter().map(placed)
        })
    })
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn ago(value: &Value, key: &str, now: Timestamp) -> String {
    let at = value[key].as_str().and_then(|text| text.parse().ok());
    at.map(|at| format!("{} ago", times::between(at, now)))
        .unwrap_or_default()
}
