//! `haplane why`: every layer of one row.

use haplane_core::log::LogEntry;
use haplane_core::outlook::Outlook;
use haplane_core::target::TargetError;
use haplane_core::{Key, Snapshot};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value as Json, json};

use crate::cli::WhyOptions;
use crate::command::names;
use crate::command::show::{ShownKey, shown_keys};
use crate::failure::Failure;
use crate::fleet::answers::RowAnswer;
use crate::fleet::{Fleet, Node};
use crate::knowledge::Knowledge;
use crate::report::{BAD, Cell, FAINT, GOOD, NOTABLE, Report, Table};
use crate::session::Session;
use crate::times;

/// One key that the row asks for.
#[derive(Debug, Serialize)]
struct AskedKey {
    key: String,
    /// The word, the invalid text, or null where there is nothing.
    value: Option<String>,
    valid: bool,
    decides: bool,
    until: Option<Timestamp>,
    by: Option<String>,
    since: Option<Timestamp>,
}

/// What one node says of the row.
#[derive(Debug, Serialize)]
struct Said {
    node: String,
    keys: Vec<String>,
    answer: Option<String>,
    asked_ms_ago: Option<u64>,
    observed: Option<Json>,
    verdict: String,
    why: Option<String>,
    enrolled: Option<bool>,
}

/// Explains one row.
pub async fn run(session: &Session, options: &WhyOptions) -> Result<Report, Failure> {
    let now = Timestamp::now();
    let row: Key = options
        .row
        .parse()
        .map_err(|error| Failure::usage(format!("{:?} is no row: {error}", options.row)))?;
    let (read, fleet) = session.read_and_fleet(&options.fleet).await?;
    let snapshot = match read {
        Ok(snapshot) => snapshot,
        Err(failure) => return Err(without_store(session, options, fleet, &row, failure).await),
    };
    let fleet = fleet.following(&snapshot);
    let knowledge = Knowledge::gather(&fleet, &options.fleet, &snapshot).await?;
    knowledge.tell_absent(session);
    let Some(keys) = knowledge.known.rows.get(&row) else {
        return Err(unknown(&row, &knowledge));
    };
    let shown = shown_keys(
        session,
        &snapshot,
        |name| keys.iter().any(|key| key.as_str() == name),
        now,
    )
    .await?;
    let present = Outlook::present(&snapshot, now);
    let deciding = present.deciding(keys).map(|(key, _)| key);
    let asked: Vec<AskedKey> = keys
        .iter()
        .map(|key| asked_key(key, deciding, &shown))
        .collect();
    let said = said_of(&row, &knowledge, Some(&present));
    let meta = match deciding {
        Some(key) => origin(session, &snapshot, key).await?,
        None => None,
    };
    let desired = present.desired(keys);
    let report = Report::new(json!({
        "row": row,
        "desired": desired.to_string(),
        "keys": asked,
        "nodes": said,
        "meta": meta.as_ref().map(meta_of),
    }));
    let by = deciding.map_or("no key has a value".to_owned(), |key| format!("by {key}"));
    let report = report.line(format!("{row} is to be {desired}, {by}"));
    let report = match &meta {
        Some(entry) => report.line(told(entry, now)),
        None if deciding.is_some() => report.line("written by hand: nobody left a name"),
        None => report,
    };
    Ok(report
        .table(key_table(&asked, now))
        .table(node_table(&said)))
}

/// The failure to read the store, with the layers that agents know: what the row asks for, what it
/// was answered, what HAProxy shows.
async fn without_store(
    session: &Session,
    options: &WhyOptions,
    fleet: Fleet,
    row: &Key,
    failure: Failure,
) -> Failure {
    let fleet = session.or_local(fleet);
    let asked = Knowledge::gather(&fleet, &options.fleet, &Snapshot::default()).await;
    let knowledge = match asked {
        Ok(knowledge) => knowledge,
        // The words of the command line are wrong: that comes first.
        Err(worse) => return worse,
    };
    knowledge.tell_absent(session);
    let said = said_of(row, &knowledge, None);
    let deciding = decided_at(row, &knowledge);
    let keys = knowledge.known.rows.get(row).into_iter().flatten();
    let keys: Vec<AskedKey> = keys
        .map(|key| asked_key(key, deciding.as_ref(), &[]))
        .collect();
    let report = Report::new(json!({
        "row": row,
        "desired": null,
        "keys": keys,
        "nodes": said,
        "meta": null,
    }));
    if said.is_empty() {
        return failure.telling(report.line(format!("no agent that answers knows {row}")));
    }
    let names: Vec<&str> = keys.iter().map(|key| key.key.as_str()).collect();
    let report = report.line(format!(
        "the store cannot be read, so what {row} is to be is unknown; it asks for {}{}",
        names.join(", "),
        deciding.map_or_else(String::new, |key| format!(
            ", and was last answered by {key}"
        ))
    ));
    failure.telling(report.table(node_table(&said)))
}

/// The key that decided the last answer, where all agents agree.
fn decided_at(row: &Key, knowledge: &Knowledge) -> Option<Key> {
    let nodes = knowledge.census.nodes.iter();
    let answers = nodes.flat_map(|node| &node.rows);
    let mut deciding = answers
        .filter(|answer| answer.row == row.as_str())
        .map(|answer| answer.decided_by.as_deref());
    let first = deciding.next()??;
    let agreed = deciding.all(|other| other == Some(first));
    first.parse().ok().filter(|_| agreed)
}

fn said_of(row: &Key, knowledge: &Knowledge, present: Option<&Outlook<'_>>) -> Vec<Said> {
    let nodes = knowledge.census.nodes.iter();
    nodes.flat_map(|node| said_by(node, row, present)).collect()
}

fn unknown(row: &Key, knowledge: &Knowledge) -> Failure {
    if knowledge.out_of_reach.contains(row) {
        return Failure::refused(format!(
            "{row} is not enrolled: its server line has no agent-check, so nothing in the store reaches it"
        ));
    }
    if !knowledge.known.rows_are_known {
        return TargetError::NobodyToAsk(row.to_string()).into();
    }
    let rows = &knowledge.known.rows;
    let asking: Vec<&Key> = rows
        .iter()
        .filter(|(_, keys)| keys.contains(row))
        .map(|(name, _)| name)
        .collect();
    if !asking.is_empty() {
        return Failure::refused(format!(
            "{row} is a group, not a row; the rows that ask for it: {}",
            names(asking.into_iter())
        ));
    }
    let names = rows.keys().map(Key::as_str);
    let near = haplane_core::nearest::nearest_or_alike(row.as_str(), names);
    let advice = if near.is_empty() {
        String::new()
    } else {
        format!("; did you mean {}?", near.join(" or "))
    };
    Failure::refused(format!("no HAProxy asks for {row}{advice}"))
}

fn asked_key(key: &Key, deciding: Option<&Key>, shown: &[ShownKey]) -> AskedKey {
    let shown = shown.iter().find(|one| one.key == key.as_str());
    AskedKey {
        key: key.to_string(),
        value: shown.map(|one| one.value.clone()),
        valid: shown.is_some_and(|one| one.valid),
        decides: deciding == Some(key),
        until: shown.and_then(|one| one.until),
        by: shown.and_then(|one| one.by.clone()),
        since: shown.and_then(|one| one.since),
    }
}

fn said_by(node: &Node, row: &Key, present: Option<&Outlook<'_>>) -> Vec<Said> {
    let judged = |answer: &RowAnswer| match present {
        Some(present) => {
            let (verdict, why) = answer.verdict_on(present);
            (verdict.as_str().to_owned(), why)
        }
        None => (answer.verdict.clone(), answer.why.clone()),
    };
    let said = |answer: &RowAnswer| said_with(node, answer, judged(answer));
    let of_row = node.rows.iter().filter(|answer| answer.row == row.as_str());
    of_row.map(said).collect()
}

fn said_with(node: &Node, answer: &RowAnswer, (verdict, why): (String, Option<String>)) -> Said {
    Said {
        node: node.answer.node.clone(),
        keys: answer.keys.clone(),
        answer: answer.answer.clone(),
        asked_ms_ago: answer.asked_ms_ago,
        observed: answer.observed.clone(),
        verdict,
        why,
        enrolled: answer.enrolled,
    }
}

async fn origin(
    session: &Session,
    snapshot: &Snapshot,
    key: &Key,
) -> Result<Option<LogEntry>, Failure> {
    use haplane_store::Store as _;
    let log_id = snapshot.get(key).and_then(|stored| stored.log_id);
    match log_id {
        Some(id) => Ok(session.store.log_entry(id).await?),
        None => Ok(None),
    }
}

fn meta_of(entry: &LogEntry) -> Json {
    json!({
        "by": entry.by,
        "host": entry.host,
        "command": entry.command,
        "reason": entry.reason,
        "ticket": entry.ticket,
        "since": entry.at,
    })
}

fn told(entry: &LogEntry, now: Timestamp) -> String {
    let reason = entry
        .reason
        .as_ref()
        .map(|reason| format!(": {reason}"))
        .unwrap_or_default();
    let ticket = entry
        .ticket
        .as_ref()
        .map(|ticket| format!(" ({ticket})"))
        .unwrap_or_default();
    format!(
        "{}@{}, {} ago{reason}{ticket}; {}",
        entry.by,
        entry.host,
        times::between(entry.at, now),
        entry.command
    )
}

fn key_table(asked: &[AskedKey], now: Timestamp) -> Table {
    let mut table = Table::new(&["KEY", "VALUE", "DECIDES", "BY", "SINCE"]);
    for one in asked {
        let value = match &one.value {
            None => Cell::styled("absent", FAINT),
            Some(text) if one.valid => text.clone().into(),
            Some(text) => Cell::styled(format!("{text:?} is no value"), BAD),
        };
        let since = one
            .since
            .map(|since| format!("{} ago", times::between(since, now)));
        table.push(vec![
            one.key.clone().into(),
            value,
            if one.decides {
                Cell::styled("yes", GOOD)
            } else {
                "".into()
            },
            one.by.clone().unwrap_or_default().into(),
            since.unwrap_or_default().into(),
        ]);
    }
    table
}

fn node_table(said: &[Said]) -> Table {
    let mut table = Table::new(&[
        "NODE",
        "ANSWERED",
        "ASKED",
        "HAPROXY SHOWS",
        "VERDICT",
        "WHY",
    ]);
    for one in said {
        let shows = one.observed.as_ref().map(shown_state).unwrap_or_default();
        let style = match one.verdict.as_str() {
            "converged" => GOOD,
            "pending" | "unobserved" => NOTABLE,
            _ => BAD,
        };
        let answer = match one.answer.as_deref() {
            None => "never asked",
            Some("") => "(nothing: left as it is)",
            Some(answer) => answer,
        };
        let asked = one.asked_ms_ago.map(|ago| format!("{ago} ms ago"));
        table.push(vec![
            one.node.clone().into(),
            answer.into(),
            asked.unwrap_or_default().into(),
            shows.into(),
            Cell::styled(one.verdict.clone(), style),
            one.why.clone().unwrap_or_default().into(),
        ]);
    }
    table
}

/// What HAProxy shows of a row, in a few words.
fn shown_state(observed: &Json) -> String {
    let word = |name: &str| observed.get(name).and_then(Json::as_str).map(str::to_owned);
    let number = |name: &str| observed.get(name).and_then(Json::as_u64);
    let state = word("status").or_else(|| word("admin"));
    let weight = number("weight").map(|weight| format!("weight {weight}"));
    let sessions = number("sessions").map(|sessions| format!("{sessions} sessions"));
    let parts: Vec<String> = state.into_iter().chain(weight).chain(sessions).collect();
    parts.join(", ")
}
