//! `haplane wait`: until every load balancer does what the store says, or who does not.

use haplane_core::converge::Scope;
use haplane_core::target::Among;
use serde_json::json;

use crate::cli::WaitOptions;
use crate::command::{refuse_unknown, targets};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::knowledge::Knowledge;
use crate::report::Report;
use crate::session::Session;
use crate::wait::{Goal, wait};

/// Waits for everything, or for the rows that the targets name.
pub async fn run(session: &Session, options: &WaitOptions) -> Result<Report, Failure> {
    let targets = targets(&options.selection.targets, &options.selection.zones)?;
    let snapshot = session.read().await?;
    let fleet = session.fleet(&options.fleet).await?.following(&snapshot);
    let scope = if targets.is_empty() {
        Scope::All
    } else {
        let knowledge = Knowledge::gather(&fleet, &options.fleet, &snapshot).await?;
        let keys = knowledge.known.expand(&targets, Among::Rows)?;
        refuse_unknown(&knowledge.known, &keys)?;
        Scope::Keys(keys.into_iter().collect())
    };
    let goal = Goal {
        index: snapshot.index,
        scope,
        snapshot: &snapshot,
        timeout: options.timeout,
    };
    session.standing.is(
        "nothing was proven, and waiting changes nothing; running it again resumes",
        json!({"converged": false, "index": goal.index}),
    );
    let so_far = |waited| session.standing.has_come_to(json!(waited));
    let waited = wait(&fleet, &goal, &session.output, so_far).await;
    if waited.converged {
        return Ok(waited.tell(Report::new(json!(waited))));
    }
    let mut failure = Failure::new(Exit::NotConverged, waited.summary());
    failure.document = Some(json!(waited));
    Err(failure)
}
