//! What `--plan` and `--once` say.

use std::collections::BTreeSet;

use haplane_core::slots::Planned;
use haplane_core::slots::hold::{Held, HeldReason};
use haplane_sync::RoundError;
use haplane_sync::once::{Deed, PoolReport};
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::report::{BAD, Cell, GOOD, NOTABLE, Report, Table};

/// All pools in all processes, as a document and for people.
pub(super) fn report(reports: &[PoolReport], deed: Deed) -> Report {
    let pools: Vec<_> = reports.iter().map(document).collect();
    let mut told = Report::new(json!({ "pools": pools })).exit(exit(reports));
    told = told.table(steps(reports));
    let several = are_several(reports);
    for report in reports {
        for line in lines(report, several, deed) {
            told = told.line(line);
        }
    }
    told
}

/// An unreachable peer outweighs a held source, which outweighs homeless instances.
fn exit(reports: &[PoolReport]) -> Exit {
    let worst = |report: &PoolReport| match (&report.error, &report.held) {
        (Some(RoundError::NotSettled), _) => Exit::NotConverged,
        (Some(error), _) if error.is_about_the_configuration() => Exit::Usage,
        (Some(RoundError::NoList), Some(_)) if report.from_file => Exit::Refused,
        (Some(_), _) => Exit::Unreachable,
        (None, Some(_)) => Exit::Refused,
        (None, None) if !report.homeless.is_empty() => Exit::Findings,
        (None, None) => Exit::Done,
    };
    let order = [
        Exit::Unreachable,
        Exit::Usage,
        Exit::NotConverged,
        Exit::Refused,
        Exit::Findings,
    ];
    let all: Vec<Exit> = reports.iter().map(worst).collect();
    order
        .into_iter()
        .find(|exit| all.contains(exit))
        .unwrap_or(Exit::Done)
}

fn document(report: &PoolReport) -> Value {
    let step = |(planned, trouble): &(Planned, Option<String>)| {
        json!({
            "kind": planned.step.kind.as_str(),
            "slot": planned.step.slot.as_str(),
            "instance": planned.step.kind.instance().map(|instance| instance.id.as_str()),
            "reason": planned.reason.to_string(),
            "error": trouble,
        })
    };
    let homeless = |homeless: &haplane_core::slots::Homeless| json!({ "instance": homeless.instance.id.as_str(), "address": homeless.instance.endpoint.to_string() });
    json!({
        "pool": report.pool,
        "socket": report.socket,
        "steps": report.steps.iter().map(step).collect::<Vec<_>>(),
        "homeless": report.homeless.iter().map(homeless).collect::<Vec<_>>(),
        "held": report.held.as_ref().map(held),
        "duplicates": report.twins,
        "refused": report.refused.iter().map(|line| json!({ "place": line.place.word(), "number": line.place.number(), "why": line.why })).collect::<Vec<_>>(),
        "error": report.error.as_ref().map(ToString::to_string),
    })
}

fn held(held: &Held) -> Value {
    json!({ "reason": held.reason.as_str(), "had": held.had, "has": held.has, "detail": held.detail })
}

fn steps(reports: &[PoolReport]) -> Table {
    let several = are_several(reports);
    let head: &[_] = if several {
        &["POOL", "PROCESS", "SLOT", "STEP", "INSTANCE", "WHY"]
    } else {
        &["POOL", "SLOT", "STEP", "INSTANCE", "WHY"]
    };
    let mut table = Table::new(head);
    for report in reports {
        for (planned, trouble) in &report.steps {
            let step = &planned.step;
            let style = match (trouble, step.kind.fills()) {
                (Some(_), _) => BAD,
                (None, true) => GOOD,
                (None, false) => NOTABLE,
            };
            let instance = step
                .kind
                .instance()
                .map(|instance| format!("{} ({})", instance.id, instance.endpoint));
            let why = trouble
                .clone()
                .unwrap_or_else(|| planned.reason.to_string());
            let mut row = vec![report.pool.clone().into()];
            row.extend(several.then(|| report.socket.clone().into()));
            row.extend([
                step.slot.to_string().into(),
                Cell::styled(step.kind.as_str(), style),
                instance.unwrap_or_default().into(),
                why.into(),
            ]);
            table.push(row);
        }
    }
    table
}

/// Several HAProxy processes have slots of the same names.
fn are_several(reports: &[PoolReport]) -> bool {
    let sockets: BTreeSet<_> = reports.iter().map(|report| &report.socket).collect();
    sockets.len() > 1
}

fn lines(report: &PoolReport, several: bool, deed: Deed) -> Vec<String> {
    let mut lines = Vec::new();
    let name = &if several {
        format!("{} in {}", report.pool, report.socket)
    } else {
        report.pool.clone()
    };
    for line in &report.refused {
        lines.push(format!("{NOTABLE}{name}: {line}{NOTABLE:#}"));
    }
    for twin in &report.twins {
        lines.push(format!("{NOTABLE}{name}: left out: {twin}{NOTABLE:#}"));
    }
    for homeless in &report.homeless {
        let Homeless { id, endpoint } = Homeless::of(homeless);
        lines.push(format!("{BAD}{name}: no slot for {id} ({endpoint}){BAD:#}"));
    }
    if let Some(held) = &report.held {
        lines.push(format!("{BAD}{}{BAD:#}", about_held(&report.pool, held)));
    }
    match &report.error {
        Some(RoundError::NoList) if report.held.is_some() => {}
        Some(error) => lines.push(format!(
            "{BAD}{} in {}: {error}{BAD:#}",
            report.pool, report.socket
        )),
        None if report.steps.is_empty() && report.homeless.is_empty() && report.held.is_none() => {
            lines.push(format!("{name}: in line, nothing to do"));
        }
        None if deed == Deed::Apply && report.homeless.is_empty() && report.held.is_none() => {
            lines.push(format!("{name}: in line"));
        }
        None => {}
    }
    lines
}

struct Homeless<'a> {
    id: &'a haplane_core::slots::InstanceId,
    endpoint: haplane_core::slots::Endpoint,
}

impl<'a> Homeless<'a> {
    fn of(homeless: &'a haplane_core::slots::Homeless) -> Self {
        Self {
            id: &homeless.instance.id,
            endpoint: homeless.instance.endpoint,
        }
    }
}

/// What is held, why, and what to do about it.
fn about_held(pool: &str, held: &Held) -> String {
    let Held {
        had, has, detail, ..
    } = held;
    let if_right = format!(
        "If it is right: haplane sync confirm {pool}, or where no synchroniser runs: haplane sync --once --accept {pool}"
    );
    match held.reason {
        HeldReason::Failed => {
            format!("{pool}: the source cannot be read, {had} instances stay: {detail}")
        }
        HeldReason::Empty => format!(
            "{pool}: the list is empty and had {had} instances: nothing is removed. Is the service gone, or is a \
             permission missing? {if_right}"
        ),
        HeldReason::Shrunken => {
            format!("{pool}: the list has {has} of {had} instances: nothing is removed. {if_right}")
        }
        HeldReason::Settling => format!(
            "{pool}: the list has {has} of {had} instances, and must stay the same for a moment"
        ),
    }
}
