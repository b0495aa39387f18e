//! `haplane canary`: the canary group, for ChatOps and pipelines.

use haplane_core::Key;
use haplane_core::target::Target;
use jiff::Timestamp;
use serde_json::json;

use crate::cli::CanaryOptions;
use crate::command::show::{ShownKey, shown_keys};
use crate::command::{drain, ready, refuse_unknown};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::knowledge::Knowledge;
use crate::report::{GOOD, NOTABLE, Report};
use crate::session::Session;
use crate::times;

/// Disables, enables, or answers a question.
pub async fn run(session: &Session, options: &CanaryOptions) -> Result<Report, Failure> {
    let group: Key = options
        .group
        .parse()
        .map_err(|error| Failure::usage(format!("--group: {error}")))?;
    let targets = [Target::Key(group.clone())];
    let report = if options.disable {
        let how = drain::How::understand(&options.steps, &options.lasting)?;
        drain::drain(session, &options.write, &targets, &how).await?
    } else if options.enable {
        let word = ready::word(options.explicit, &options.lasting)?;
        ready::ready(session, &options.write, &targets, word).await?
    } else {
        tell(session, options, &group).await?
    };
    Ok(match &session.place.dashboard {
        Some(link) if !options.is_active => report.line(format!("dashboard: {link}")),
        _ => report,
    })
}

async fn tell(session: &Session, options: &CanaryOptions, group: &Key) -> Result<Report, Failure> {
    let now = Timestamp::now();
    let snapshot = session.read().await?;
    session.sure_of_absence(&snapshot, [group]).await?;
    let invalid = snapshot
        .get_invalid(group)
        .map(|one| one.text.trim().to_owned());
    if let Some(text) = &invalid {
        session.output.warn(&format!(
            "{group} holds {text:?}, which is no value and counts as absent: write ready, drain, maint or a \
             weight such as 50%"
        ));
    }
    let is_stored = snapshot.get(group).is_some() || invalid.is_some();
    if !is_stored && !options.write.force {
        // A slip of the finger must not mean "go".
        let fleet = session.fleet(&options.write.fleet).await?;
        let fleet = fleet.following(&snapshot);
        let knowledge = Knowledge::gather(&fleet, &options.write.fleet, &snapshot).await?;
        refuse_unknown(&knowledge.known, std::slice::from_ref(group))?;
    }
    let value = snapshot.get(group).map(|stored| stored.value);
    let value = value.filter(|value| value.holds_at(now));
    let is_active = value.is_none_or(|value| value.desired.in_rotation());
    let shown = shown_keys(session, &snapshot, |name| name == group.as_str(), now).await?;
    let shown = shown.first().filter(|_| value.is_some());
    let document = json!({
        "group": group,
        "active": is_active,
        "value": value.map(|value| value.desired.to_string()),
        "invalid": invalid,
        "until": value.and_then(|value| value.until),
        "by": shown.and_then(|one| one.by.clone()),
        "reason": shown.and_then(|one| one.reason.clone()),
        "ticket": shown.and_then(|one| one.ticket.clone()),
        "since": shown.and_then(|one| one.since),
        "dashboard": session.place.dashboard,
    });
    let report = Report::new(document);
    if options.is_active {
        let exit = if is_active { Exit::Done } else { Exit::No };
        return Ok(report.line(if is_active { "yes" } else { "no" }).exit(exit));
    }
    let state = if is_active {
        format!("{GOOD}active{GOOD:#}")
    } else {
        format!("{NOTABLE}out of rotation{NOTABLE:#}")
    };
    let origin = shown.map(|one| origin(one, now)).unwrap_or_default();
    Ok(report.line(format!("{group} is {state}{origin}")))
}

fn origin(shown: &ShownKey, now: Timestamp) -> String {
    let by = shown.by.clone().unwrap_or_else(|| "by hand".to_owned());
    let since = shown
        .since
        .map(|since| format!(", {} ago", times::between(since, now)));
    let reason = shown.reason.as_ref().map(|reason| format!(": {reason}"));
    format!(
        ": {} ({by}{}{})",
        shown.value,
        since.unwrap_or_default(),
        reason.unwrap_or_default()
    )
}
