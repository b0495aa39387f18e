//! What a write says of itself.

use haplane_core::Key;
use haplane_core::log::Changed;
use serde_json::{Value as Json, json};

use super::{Outcome, Writer};
use crate::report::{Cell, FAINT, NOTABLE, Report, Table};
use crate::wait::Waited;

/// Rows named one by one; more are a number.
const ROWS_NAMED: usize = 10;

/// Whether a write that is told of has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tense {
    /// It is about to, if somebody says yes.
    Future,
    /// It has.
    Past,
    /// It would: a dry run.
    Conditional,
}

/// The document of a write that failed before it came to anything.
pub fn nothing_written(dry_run: bool) -> Json {
    document(&Outcome::default(), None, dry_run)
}

fn document(outcome: &Outcome, waited: Option<&Waited>, dry_run: bool) -> Json {
    json!({
        "index": outcome.written.index,
        "changed": outcome.written.changed,
        "rows": outcome.moved,
        "waited": waited,
        "dry_run": dry_run,
        "backends": outcome.shares,
        "kept_in": outcome.kept_in,
        "kept_out": outcome.kept_out,
        "brought_in": outcome.brought_in,
    })
}

impl Writer<'_> {
    /// The document of every write.
    pub fn document(&self, outcome: &Outcome, waited: Option<&Waited>) -> Json {
        document(outcome, waited, self.options.dry_run)
    }

    /// Tells people what was written, before something takes its time.
    pub fn tell_now(&self, outcome: &Outcome) {
        let report = self.told(outcome, None);
        self.session.output.part(&report);
        self.told.replace(Some(outcome.written.changed.clone()));
    }

    /// What a write is going to be, for whoever is asked whether it may.
    pub(super) fn foretold(outcome: &Outcome) -> Report {
        let report = Self::tell_changes(Report::new(Json::Null), outcome, Tense::Future);
        Self::tell_rows(report, outcome, Tense::Future)
    }

    /// Whether what is told of has happened.
    fn tense(&self) -> Tense {
        if self.options.dry_run {
            Tense::Conditional
        } else {
            Tense::Past
        }
    }

    /// The report of a write that went well, without what was told already.
    pub fn told(&self, outcome: &Outcome, waited: Option<&Waited>) -> Report {
        let report = Report::new(self.document(outcome, waited));
        let told = self.told.borrow();
        let report = match told.as_ref() {
            None => {
                let report = Self::tell_changes(report, outcome, self.tense());
                Self::tell_rows(report, outcome, self.tense())
            }
            Some(told) if *told == outcome.written.changed => report,
            Some(_) if outcome.written.changed.is_empty() => {
                report.line("every key is what it was before")
            }
            Some(_) => Self::tell_changes(report, outcome, self.tense()),
        };
        match waited {
            Some(waited) => waited.tell(report),
            None => report,
        }
    }

    fn tell_changes(report: Report, outcome: &Outcome, tense: Tense) -> Report {
        let changed = &outcome.written.changed;
        let keys = count(changed.len(), "key");
        let report = match (changed.len(), tense) {
            (0, _) => report.line("nothing to change"),
            (_, Tense::Conditional) => {
                report.line(format!("would change {keys}; nothing was written"))
            }
            (_, Tense::Future) => report.line(format!("changes {keys}")),
            (_, Tense::Past) => report.line(format!("changed {keys}")),
        };
        report.table(changes(changed))
    }

    fn tell_rows(report: Report, outcome: &Outcome, tense: Tense) -> Report {
        let moved = &outcome.moved;
        if moved.is_empty() {
            return report;
        }
        let names: Vec<&str> = moved.iter().take(ROWS_NAMED).map(Key::as_str).collect();
        let more = moved.len().saturating_sub(ROWS_NAMED);
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        let verb = match tense {
            Tense::Conditional => "would move",
            Tense::Future | Tense::Past => "moves",
        };
        let report = report.line(format!(
            "{verb} {}: {}{more}",
            count(moved.len(), "row"),
            names.join(", ")
        ));
        let mut table = Table::new(&["BACKEND", "IN ROTATION", "AFTER"]);
        for share in &outcome.shares {
            let after = format!("{}%", share.after);
            let after = if share.after < share.before {
                Cell::styled(after, NOTABLE)
            } else {
                after.into()
            };
            table.push(vec![
                share.backend.clone().into(),
                format!("{}%", share.before).into(),
                after,
            ]);
        }
        report.table(table)
    }
}

/// `1 key`, `2 keys`.
pub(super) fn count(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

fn changes(changed: &[Changed]) -> Table {
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
