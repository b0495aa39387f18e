//! `haplane log`: who changed what, when and why.

use haplane_store::Store;
use jiff::Timestamp;
use serde_json::json;

use crate::cli::LogOptions;
use crate::failure::Failure;
use crate::report::{Report, Table};
use crate::session::Session;
use crate::times;

/// Changes named in one line of the table.
const CHANGES_NAMED: usize = 3;

/// Shows the newest entries.
pub async fn run(session: &Session, options: &LogOptions) -> Result<Report, Failure> {
    // An empty log and one that may not be read look the same; the marker tells.
    session.read().await?;
    let entries = session.store.log(options.limit).await?;
    let now = Timestamp::now();
    let mut table = Table::new(&["WHEN", "BY", "CHANGED", "REASON", "COMMAND"]);
    for entry in &entries {
        let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "absent".to_owned());
        let mut changes: Vec<String> = entry
            .changes
            .iter()
            .take(CHANGES_NAMED)
            .map(|one| format!("{}: {} -> {}", one.key, text(&one.before), text(&one.after)))
            .collect();
        if entry.changes.len() > CHANGES_NAMED {
            changes.push(format!("and {} more", entry.changes.len() - CHANGES_NAMED));
        }
        let ticket = entry.ticket.as_ref().map(|ticket| format!("({ticket})"));
        let reason: Vec<String> = entry.reason.iter().cloned().chain(ticket).collect();
        table.push(vec![
            format!("{} ago", times::between(entry.at, now)).into(),
            format!("{}@{}", entry.by, entry.host).into(),
            changes.join(", ").into(),
            reason.join(" ").into(),
            entry.command.clone().into(),
        ]);
    }
    let report = Report::new(json!({"entries": entries}));
    if entries.is_empty() {
        return Ok(report.line("nothing was written by a command yet"));
    }
    Ok(report.table(table))
}
