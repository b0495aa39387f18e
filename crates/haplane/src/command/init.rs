//! `haplane init`: the marker, and nothing else.

use haplane_core::marker;
use haplane_store::{Location, Store, Transaction};
use serde_json::json;

use crate::cli::InitOptions;
use crate::failure::Failure;
use crate::report::Report;
use crate::session::Session;
use crate::state::place_of;

/// Makes the marker if it is truly absent; of a directory, the folder too.
pub async fn run(session: &Session, options: &InitOptions) -> Result<Report, Failure> {
    if options.dry_run {
        let is_there = is_initialised(session).await?;
        let told = if is_there {
            "is initialised; nothing would be written"
        } else {
            "would be initialised; nothing was written"
        };
        return Ok(report(None, !is_there, true).line(sentence(session, told)));
    }
    session.confirm(options.yes, "create the marker")?;
    let nothing_but_the_marker = Transaction {
        changes: Vec::new(),
        log: None,
    };
    let committed = session.store.commit(&nothing_but_the_marker).await?;
    let told = if committed.made_marker {
        "is initialised"
    } else {
        "was initialised already"
    };
    let report = report(Some(committed.index), committed.made_marker, false);
    Ok(report.line(sentence(session, told)))
}

async fn is_initialised(session: &Session) -> Result<bool, Failure> {
    if let Location::Dir(folder) = &session.place.store.location
        && !folder.exists()
    {
        return Ok(false);
    }
    Ok(session.store.read_path(marker::PATH).await?.is_some())
}

fn sentence(session: &Session, told: &str) -> String {
    format!("{} {told}", place_of(&session.place.store))
}

fn report(index: Option<u64>, made: bool, dry_run: bool) -> Report {
    Report::new(json!({
        "index": index,
        "changed": [],
        "rows": [],
        "waited": null,
        "made_marker": made,
        "dry_run": dry_run,
    }))
}
