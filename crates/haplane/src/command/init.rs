//! `haplane init`: the marker, and nothing else.

use std::error::Error;
use std::io;

use haplane_core::marker;
use haplane_store::{Store, StoreError, StoreErrorKind, Transaction};
use serde_json::json;

use crate::cli::InitOptions;
use crate::exit::Failure;
use crate::output::Report;
use crate::session::Session;

/// Makes the marker if it is truly absent.
pub async fn run(session: &Session, options: &InitOptions) -> Result<Report, Failure> {
    let state = session.place.store.state_prefix.as_str();
    let existing = match session.store.read_path(marker::PATH).await {
        Err(error) if is_absent(&error) => None,
        read => read?,
    };
    if existing.is_none() && !options.dry_run {
        session.confirm(options.yes, "create the marker")?;
    }
    let (index, made) = if options.dry_run {
        (existing.as_ref().map(|pair| pair.version), false)
    } else {
        let nothing_but_the_marker = Transaction {
            changes: Vec::new(),
            log: None,
        };
        let committed = session.store.commit(&nothing_but_the_marker).await?;
        (Some(committed.index), committed.made_marker)
    };
    let told = match (existing.is_some(), made) {
        (true, _) | (false, false) if !options.dry_run => "is already initialised",
        (true, _) => "is already initialised; nothing would be written",
        (false, true) => "is initialised",
        (false, false) => "would be initialised; nothing was written",
    };
    let document = json!({
        "index": index,
        "changed": [],
        "rows": [],
        "waited": null,
        "made_marker": made,
        "dry_run": options.dry_run,
    });
    Ok(Report::new(document).line(format!("{} ({state}) {told}", session.place.store.location)))
}

/// Whether the store's folder is not there yet: making it is part of the job.
fn is_absent(error: &StoreError) -> bool {
    error.kind == StoreErrorKind::Io
        && error
            .source()
            .and_then(|source| source.downcast_ref::<io::Error>())
            .is_some_and(|source| source.kind() == io::ErrorKind::NotFound)
}
