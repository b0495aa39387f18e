//! `haplane show`: desired state in the store, with who, why and since when.

use std::collections::BTreeSet;
use std::time::Duration;

use haplane_core::log::{LogEntry, LogId};
use haplane_core::target::{Among, Target};
use haplane_core::{Desired, Key, Snapshot, Value};
use haplane_haproxy::AdminState;
use haplane_store::StoreErrorKind;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;

use crate::cli::ShowOptions;
use crate::command::targets;
use crate::failure::Failure;
use crate::knowledge::Knowledge;
use crate::report::{BAD, Cell, FAINT, GOOD, NOTABLE, Report, Table};
use crate::session::{Session, stored_names};
use crate::state::Origins;
use crate::times;

const COLUMNS: [&str; 6] = ["KEY", "VALUE", "ENDS", "SINCE", "BY", "REASON"];

/// One key as `show` and `status` tell it.
#[derive(Clone, Debug, Serialize)]
pub struct ShownKey {
    /// The key, or the path where it is not even a key.
    pub key: String,
    /// The word alone, or the invalid text.
    pub value: String,
    /// Whether it counts as a value.
    pub valid: bool,
    /// From when on it counts as absent.
    pub until: Option<Timestamp>,
    /// Whether that time is over.
    pub expired: bool,
    /// Who wrote it; `None` when it was written by hand.
    pub by: Option<String>,
    /// Why.
    pub reason: Option<String>,
    /// The ticket.
    pub ticket: Option<String>,
    /// When it was written.
    pub since: Option<Timestamp>,
    /// Whether it keeps rows out of rotation for longer than `forgotten_after`, without an end.
    pub forgotten: bool,
    #[serde(skip)]
    log_id: Option<LogId>,
    #[serde(skip)]
    desired: Option<Desired>,
}

impl ShownKey {
    fn valid(key: &Key, value: Value, log_id: Option<LogId>, now: Timestamp) -> Self {
        Self {
            value: value.desired.to_string(),
            valid: true,
            until: value.until,
            expired: !value.holds_at(now),
            desired: Some(value.desired),
            ..Self::unknown(key.to_string(), log_id)
        }
    }

    fn unknown(key: String, log_id: Option<LogId>) -> Self {
        Self {
            key,
            value: String::new(),
            valid: false,
            until: None,
            expired: false,
            by: None,
            reason: None,
            ticket: None,
            since: None,
            forgotten: false,
            log_id,
            desired: None,
        }
    }

    /// A key that has kept rows out for long without saying until when.
    pub fn notice_if_forgotten(&mut self, after: Duration, now: Timestamp) {
        let is_old = self.since.is_some_and(|since| {
            Duration::try_from(now.duration_since(since)).is_ok_and(|age| age > after)
        });
        let is_out = self.desired.is_some_and(|desired| !desired.in_rotation());
        self.forgotten = is_old && is_out && self.until.is_none();
    }

    fn with_origin(mut self, entry: Option<&LogEntry>) -> Self {
        if let Some(entry) = entry {
            self.by = Some(entry.by.clone());
            self.reason.clone_from(&entry.reason);
            self.ticket.clone_from(&entry.ticket);
            self.since = Some(entry.at);
        }
        self
    }

    fn value_cell(&self) -> Cell {
        let style = match self.desired {
            None => BAD,
            Some(_) if self.expired => FAINT,
            Some(Desired::Admin(AdminState::Ready)) => GOOD,
            Some(_) => NOTABLE,
        };
        match self.desired {
            // A valid value at a path that is no key's, or that another path of the same key takes
            // precedence over.
            None if self.value.parse::<Value>().is_ok() => {
                Cell::styled(format!("{} (not the path of a key)", self.value), style)
            }
            None => Cell::styled(format!("{:?} is no value", self.value), style),
            Some(_) => Cell::styled(self.value.clone(), style),
        }
    }

    fn until_cell(&self, now: Timestamp) -> Cell {
        match self.until {
            None => Cell::from(""),
            Some(_) if self.expired => Cell::styled("expired", FAINT),
            Some(until) => format!("in {}", times::between(now, until)).into(),
        }
    }
}

/// Every key of a snapshot in the order of their names, with its origin.
pub async fn shown_keys(
    session: &Session,
    snapshot: &Snapshot,
    select: impl Fn(&str) -> bool,
    now: Timestamp,
) -> Result<Vec<ShownKey>, Failure> {
    let valid = snapshot
        .keys()
        .map(|(key, stored)| ShownKey::valid(key, stored.value, stored.log_id, now));
    let invalid = snapshot.invalid().map(|(name, bad)| ShownKey {
        value: bad.text.trim().to_owned(),
        ..ShownKey::unknown(name.to_owned(), bad.log_id)
    });
    let mut keys: Vec<ShownKey> = valid
        .chain(invalid)
        .filter(|one| select(&one.key))
        .collect();
    keys.sort_by(|a, b| a.key.cmp(&b.key));
    let origins = match Origins::of(&session.store, keys.iter().filter_map(|one| one.log_id)).await
    {
        // The state is worth seeing without its log.
        Err(error) if error.kind == StoreErrorKind::Denied => {
            session
                .output
                .warn(&format!("who and why cannot be told: {}", error.story()));
            Origins::default()
        }
        read => read?,
    };
    Ok(keys
        .into_iter()
        .map(|one| {
            let entry = origins.get(one.log_id);
            one.with_origin(entry)
        })
        .collect())
}

/// The keys as a table.
pub fn table(keys: &[ShownKey], now: Timestamp) -> Table {
    let mut table = Table::new(&COLUMNS);
    for key in keys {
        let since = key
            .since
            .map(|since| format!("{} ago", times::between(since, now)));
        let by = match &key.by {
            Some(by) => Cell::from(by.clone()),
            None if key.log_id.is_some() => Cell::styled("not in the log", FAINT),
            None => Cell::styled("by hand", FAINT),
        };
        let ticket = key.ticket.as_ref().map(|ticket| format!("({ticket})"));
        let reason: Vec<String> = key.reason.iter().cloned().chain(ticket).collect();
        table.push(vec![
            key.key.clone().into(),
            key.value_cell(),
            key.until_cell(now),
            since.unwrap_or_default().into(),
            by,
            reason.join(" ").into(),
        ]);
    }
    table
}

/// Shows all keys, or those that the targets name.
pub async fn run(session: &Session, options: &ShowOptions) -> Result<Report, Failure> {
    let now = Timestamp::now();
    let targets = targets(&options.selection.targets, &options.selection.zones)?;
    let snapshot = session.read().await?;
    let forgotten_after = session.settings.forgotten_after;
    let mut absent: Vec<String> = Vec::new();
    let mut keys = if targets.is_empty() {
        shown_keys(session, &snapshot, |_| true, now).await?
    } else {
        let wanted = names(session, options, &snapshot, &targets).await?;
        session.sure_of_absence(&snapshot, &wanted).await?;
        let wanted: BTreeSet<&str> = wanted.iter().map(Key::as_str).collect();
        let shown = shown_keys(session, &snapshot, |name| wanted.contains(name), now).await?;
        let is_absent = |name: &&str| shown.iter().all(|one| one.key != *name);
        // Of a pattern nobody typed the names: those that are there are the answer.
        let typed = targets.iter().filter_map(|target| match target {
            Target::Key(key) => Some(key.as_str()),
            Target::Glob(_) | Target::Zone(_) => None,
        });
        absent.extend(typed.filter(is_absent).map(str::to_owned));
        shown
    };
    for key in &mut keys {
        key.notice_if_forgotten(forgotten_after, now);
    }
    let report = Report::new(json!({"index": snapshot.index, "keys": keys, "absent": absent}));
    if keys.is_empty() && absent.is_empty() {
        return Ok(report.line(if targets.is_empty() {
            "no keys: every row is ready"
        } else {
            "no key of these rows is there: their groups decide, else they are ready"
        }));
    }
    let mut table = table(&keys, now);
    for name in absent {
        // That a key is not there is an answer.
        let mut row = vec![Cell::from(name), Cell::styled("absent", FAINT)];
        row.resize_with(COLUMNS.len(), || Cell::from(""));
        table.push(row);
    }
    Ok(report.table(table))
}

/// The names that the targets stand for. What the store has answers most; else the agents say which rows a
/// glob or a zone means.
async fn names(
    session: &Session,
    options: &ShowOptions,
    snapshot: &Snapshot,
    targets: &[Target],
) -> Result<Vec<Key>, Failure> {
    if let Ok(names) = stored_names(snapshot).expand(targets, Among::RowsAndKeys) {
        return Ok(names);
    }
    let fleet = session.fleet(&options.fleet).await?.following(snapshot);
    let knowledge = Knowledge::gather(&fleet, &options.fleet, snapshot).await?;
    knowledge.tell_absent(session);
    Ok(knowledge.known.expand(targets, Among::RowsAndKeys)?)
}
