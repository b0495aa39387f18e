//! `haplane status`: the fleet at a glance.

mod summary;

use std::time::Duration;

use haplane_core::Snapshot;
use jiff::Timestamp;
use serde_json::json;

use crate::cli::StatusOptions;
use crate::command::show::shown_keys;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::fleet::Fleet;
use crate::knowledge::Knowledge;
use crate::report::Report;
use crate::session::Session;
use summary::Summary;

/// Between two looks of `--watch`.
const AGAIN: Duration = Duration::from_secs(2);

/// Shows it once, or again and again.
pub async fn run(session: &Session, options: &StatusOptions) -> Result<Report, Failure> {
    loop {
        let report = look(session, options).await.and_then(somebody_answers);
        if !options.watch {
            return report;
        }
        session.output.start_over();
        match report {
            Ok(report) => session.output.report(&report),
            // What cannot be seen now may be seen in a moment.
            Err(failure) => session.output.failure(&failure),
        };
        tokio::time::sleep(AGAIN).await;
    }
}

/// What there is to be seen; it ends with status 5 when nobody answers.
pub async fn look(session: &Session, options: &StatusOptions) -> Result<Report, Failure> {
    let now = Timestamp::now();
    let (read, fleet) = session.read_and_fleet(&options.fleet).await?;
    let snapshot = match read {
        Ok(snapshot) => snapshot,
        Err(failure) => return Err(without_store(session, options, fleet, failure).await),
    };
    let fleet = fleet.following(&snapshot);
    let knowledge = Knowledge::gather(&fleet, &options.fleet, &snapshot).await?;
    let mut keys = shown_keys(session, &snapshot, |_| true, now).await?;
    for key in &mut keys {
        key.notice_if_forgotten(session.settings.forgotten_after, now);
    }
    let summary = Summary::of(&snapshot, &knowledge, keys, now);
    let report = told(session, options, &summary, now);
    if knowledge.census.nodes.is_empty() {
        return Ok(report.exit(Exit::Unreachable));
    }
    Ok(report)
}

fn somebody_answers(report: Report) -> Result<Report, Failure> {
    if report.exit == Exit::Done {
        return Ok(report);
    }
    let message = "no agent answers, so nothing is known of any load balancer: where the store does not lead to \
                   the agents, --agents or HAPLANE_AGENTS does";
    Err(Failure::new(report.exit, message).telling(report))
}

/// The failure to read the store, with what the agents tell all the same.
async fn without_store(
    session: &Session,
    options: &StatusOptions,
    fleet: Fleet,
    failure: Failure,
) -> Failure {
    let fleet = session.or_local(fleet);
    match Knowledge::gather(&fleet, &options.fleet, &Snapshot::default()).await {
        Ok(knowledge) => {
            let summary = Summary::without_store(&knowledge);
            failure.telling(told(session, options, &summary, Timestamp::now()))
        }
        // The words of the command line are wrong: that comes first.
        Err(worse) => worse,
    }
}

fn told(session: &Session, options: &StatusOptions, summary: &Summary, now: Timestamp) -> Report {
    let mut document = json!(summary);
    if let Some(object) = document.as_object_mut() {
        object.insert("dashboard".to_owned(), json!(session.place.dashboard));
    }
    let report = summary.tell(Report::new(document), options.all, now);
    match &session.place.dashboard {
        Some(link) => report.line(format!("dashboard: {link}")),
        None => report,
    }
}
