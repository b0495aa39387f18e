//! The way that every write takes: read, expand the targets, guard, confirm, write, report.

use haplane_core::log::Changed;
use haplane_core::target::{Among, Target};
use haplane_core::{Key, Snapshot};
use haplane_store::{CommitError, Store};
use serde_json::{Value as Json, json};

use crate::cli::WriteOptions;
use crate::exit::Failure;
use crate::output::{Cell, FAINT, Report, Table};
use crate::session::{Session, stored_names};
use crate::write::{self, Author, Interrupted, Wanted, Written};

/// One write of one command.
pub struct Writer<'s> {
    session: &'s Session,
    options: &'s WriteOptions,
    snapshot: Snapshot,
    keys: Vec<Key>,
}

impl<'s> Writer<'s> {
    /// Reads the state and finds the keys that the targets stand for.
    pub async fn prepare(
        session: &'s Session,
        options: &'s WriteOptions,
        targets: &[Target],
        among: Among,
    ) -> Result<Self, Failure> {
        let snapshot = session.read_to_write().await?;
        let known = stored_names(&snapshot);
        let keys = known.expand(targets, among)?;
        if !options.force {
            known.refuse_unknown(&keys)?;
        }
        Ok(Self {
            session,
            options,
            snapshot,
            keys,
        })
    }

    /// The keys, in the order of the command.
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// Writes what is wanted, or with `--dry-run` says what would be written.
    pub async fn write(&self, wanted: &[Wanted]) -> Result<Report, Failure> {
        let steps = write::plan(&self.snapshot, wanted);
        if self.options.dry_run || steps.is_empty() {
            let changed = steps.iter().map(write::Step::changed).collect();
            let written = Written {
                index: Some(self.snapshot.index),
                changed,
                ..Written::default()
            };
            return Ok(self.report(&written));
        }
        self.session
            .confirm(self.options.yes, &format!("write {}", count(steps.len())))?;
        let author = Author {
            identity: self.session.identity.clone(),
            reason: self.options.reason.clone(),
            ticket: self.options.ticket.clone(),
        };
        let written = match write::commit(&self.session.store, &steps, &author).await {
            Ok(written) => written,
            Err(interrupted) => return Err(self.interrupted(interrupted).await),
        };
        if let Err(error) = write::trim_log(&self.session.store).await {
            self.session
                .output
                .warn(&format!("the log was not trimmed: {}", error.story()));
        }
        Ok(self.report(&written))
    }

    fn document(&self, written: &Written) -> Json {
        json!({
            "index": written.index,
            "changed": written.changed,
            "rows": [],
            "waited": null,
            "dry_run": self.options.dry_run,
        })
    }

    fn report(&self, written: &Written) -> Report {
        let report = Report::new(self.document(written));
        let report = match (written.changed.len(), self.options.dry_run) {
            (0, _) => report.line("nothing to change"),
            (n, true) => report.line(format!("would change {}; nothing was written", count(n))),
            (n, false) => report.line(format!("changed {}", count(n))),
        };
        report.table(table(&written.changed))
    }

    /// What stopped a write, and which keys were written before.
    async fn interrupted(&self, interrupted: Interrupted) -> Failure {
        let Interrupted {
            written,
            missing,
            error,
        } = interrupted;
        let culprits = match &error {
            CommitError::Conflict { keys } => self.who_changed(keys).await,
            _ => None,
        };
        let mut failure = Failure::from(error);
        if let Some(culprits) = culprits {
            failure.message = format!("{}\n{culprits}", failure.message);
        }
        if !written.changed.is_empty() {
            let names: Vec<&str> = written.changed.iter().map(|one| one.key.as_str()).collect();
            failure.message = format!(
                "{}\nwritten before that: {} ({}); not written: {}; the same command again writes the rest",
                failure.message,
                count(names.len()),
                names.join(", "),
                count(missing.len()),
            );
        }
        failure.document = Some(self.document(&written));
        failure
    }

    /// Who changed these keys since they were read, and when, as far as the log tells.
    async fn who_changed(&self, keys: &[Key]) -> Option<String> {
        let now = self.session.read_to_write().await.ok()?;
        let mut lines = Vec::new();
        for key in keys {
            let stored = now.get(key);
            let log_id = stored
                .and_then(|s| s.log_id)
                .or_else(|| now.get_invalid(key)?.log_id);
            let entry = match log_id {
                Some(id) => self.session.store.log_entry(id).await.ok().flatten(),
                None => None,
            };
            let value =
                stored.map_or_else(|| "absent".to_owned(), |stored| stored.value.to_string());
            lines.push(match entry {
                Some(entry) => format!(
                    "{key} is now {value}, by {} at {} ({})",
                    entry.by, entry.at, entry.command
                ),
                None => format!(
                    "{key} is now {value}, changed by hand or deleted: the log names nobody"
                ),
            });
        }
        lines.push("look at it, then run the command again".to_owned());
        Some(lines.join("\n"))
    }
}

fn count(keys: usize) -> String {
    match keys {
        1 => "1 key".to_owned(),
        n => format!("{n} keys"),
    }
}

fn table(changed: &[Changed]) -> Table {
    let mut table = Table::new(&["KEY", "BEFORE", "AFTER"]);
    let cell = |text: &Option<String>| match text {
        Some(text) => Cell::from(text.clone()),
        None => Cell::styled("absent", FAINT),
    };
    for one in changed {
        table.push(vec![
            one.key.to_string().into(),
            cell(&one.before),
            cell(&one.after),
        ]);
    }
    table
}
