//! Weights for which a percentage becomes nothing, or everything at once.

use haplane_haproxy::cfg::{Backend, Row};

use super::{Findings, Looked, Place, Rule};

/// Below this weight, 10% is no traffic.
const SMALL_WEIGHT: u16 = 10;

pub(super) fn check(looked: &Looked<'_>, findings: &mut Findings) {
    for backend in looked
        .config()
        .backends()
        .iter()
        .filter(|backend| !backend.settings.disabled.value)
    {
        static_balance(backend, findings);
        for server in &backend.servers {
            let row = Row {
                backend,
                server,
                number: server.numbers().next().flatten(),
            };
            if server.settings.agent.enabled.value {
                small_weight(row, findings);
                slowstart(row, findings);
            }
            track(looked, row, findings);
        }
    }
}

fn small_weight(row: Row<'_>, findings: &mut Findings) {
    let weight = &row.server.settings.weight;
    if weight.value == 0 || weight.value >= SMALL_WEIGHT {
        return;
    }
    let place = Place::Config(weight.from.unwrap_or(row.server.span));
    let nothing_below = 100_u16.div_ceil(weight.value);
    let message = format!(
        "{}/{} has weight {}: less than {nothing_below}% is no traffic at all",
        row.backend.name, row.server.name, weight.value
    );
    let fix = "give all servers of the backend weight 100 (or a multiple of what they have)";
    findings.add(Rule::WeightTooSmall, place, row.key(), message, fix);
}

fn slowstart(row: Row<'_>, findings: &mut Findings) {
    if row.server.settings.slowstart.is_none() {
        let message = format!("{}/{} has no slowstart", row.backend.name, row.server.name);
        let place = Place::Config(row.server.span);
        findings.add(
            Rule::NoSlowstart,
            place,
            row.key(),
            message,
            "add slowstart 60s, for example",
        );
    }
}

fn track(looked: &Looked<'_>, row: Row<'_>, findings: &mut Findings) {
    let Some(track) = &row.server.settings.track else {
        return;
    };
    let (backend, name) = track
        .value
        .split_once('/')
        .unwrap_or((row.backend.name.as_str(), &track.value));
    if looked.enrolled.contains(&format!("{backend}/{name}")) {
        let message = format!(
            "{}/{} does not follow the weight of {backend}/{name}",
            row.backend.name, row.server.name
        );
        let place = Place::Config(track.from.unwrap_or(row.server.span));
        let fix = "enroll this row too, instead of tracking, where weights matter";
        findings.add(Rule::TrackWeight, place, row.key(), message, fix);
    }
}

/// Map-based algorithms take only 0% and 100%.
fn static_balance(backend: &Backend, findings: &mut Findings) {
    let Some(balance) = &backend.settings.balance else {
        return;
    };
    let algorithm = balance
        .value
        .first()
        .map(String::as_str)
        .unwrap_or_default();
    let hashes = ["source", "uri", "url_param", "hdr(", "hash", "rdp-cookie"];
    let is_hash = hashes.iter().any(|hash| algorithm.starts_with(hash));
    let consistent = backend.settings.hash_type.as_ref();
    let consistent =
        consistent.is_some_and(|hash| hash.value.first().is_some_and(|kind| kind == "consistent"));
    let enrolled = backend
        .servers
        .iter()
        .any(|server| server.settings.agent.enabled.value);
    if enrolled && (algorithm == "static-rr" || is_hash && !consistent) {
        let message = format!(
            "backend {} balances by {algorithm}, which knows no weights but 0% and 100%",
            backend.name
        );
        let fix = if is_hash {
            "add hash-type consistent (which moves clients between servers once)"
        } else {
            "use balance roundrobin"
        };
        let place = Place::Config(balance.from.unwrap_or(backend.span));
        findings.add(Rule::StaticBalance, place, None, message, fix);
    }
}
