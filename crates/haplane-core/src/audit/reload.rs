//! Reloads: what a new process forgets, and for how long.

use std::time::Duration;

use haplane_haproxy::cfg::{Span, StateSource};

use super::{Findings, Looked, Place, Rule, allow, state_files};

/// With a start spread up to this, a reload lets only a few requests through (facts 4.1, 4.2).
const SHORT_SPREAD: Duration = Duration::from_secs(1);

pub(super) fn check(looked: &Looked<'_>, findings: &mut Findings) {
    if !looked.has_enrolled_rows() {
        return;
    }
    let seeded = is_seeded(looked);
    window(looked, seeded, findings);
    if !seeded {
        in_use(looked, findings);
    }
}

/// The state file is our own, by its mark or by what the configuration says of it.
fn is_seeded(looked: &Looked<'_>) -> bool {
    let by_mark = looked
        .subject
        .files
        .global
        .as_ref()
        .is_some_and(haplane_haproxy::server_state::StateFile::is_seed);
    let config = looked.config();
    let file = config
        .global()
        .server_state_file
        .as_ref()
        .and_then(|file| file.from);
    let line = file.and_then(|span| {
        config
            .lines()
            .iter()
            .find(|line| (line.file, line.number) == (span.file, span.line))
    });
    let by_comment = line
        .and_then(|line| allow::directive(config, line))
        .is_some_and(|text| text.starts_with("seed"));
    (by_mark || by_comment) && state_files::loads_any(looked)
}

fn window(looked: &Looked<'_>, seeded: bool, findings: &mut Findings) {
    let global = looked.config().global();
    let short = global
        .max_spread_checks
        .as_ref()
        .is_some_and(|spread| spread.value <= SHORT_SPREAD);
    if seeded || short {
        return;
    }
    let first = looked
        .config()
        .rows()
        .find(|row| row.server.settings.agent.enabled.value);
    let place = global.span.or(first.map(|row| row.server.span));
    let message =
        "after a reload, drained rows take traffic until they are asked for the first time";
    let fix = "add max-spread-checks 1 to the global section (0.2 s left), and seed a state file with \
               `haplane seed` before each reload (nothing left): docs/reload.md of haplane";
    findings.add(
        Rule::ReloadWindow,
        place.map_or(Place::Process, Place::Config),
        None,
        message,
        fix,
    );
}

fn in_use(looked: &Looked<'_>, findings: &mut Findings) {
    for backend in looked.config().backends() {
        let enrolled = backend
            .servers
            .iter()
            .any(|server| server.settings.agent.enabled.value);
        let source = &backend.settings.state_source;
        if !enrolled || source.value == StateSource::None || backend.settings.disabled.value {
            continue;
        }
        let place: Span = source.from.unwrap_or(backend.span);
        let message = format!(
            "backend {} has enrolled rows and loads {}",
            backend.name,
            looked.file_name(backend)
        );
        let fix = "load none, or only what `haplane seed` writes (and say so: `# haplane: seed` on the \
                   server-state-file line)";
        let again = findings
            .0
            .iter()
            .any(|known| known.rule == Rule::StateFileInUse && known.place == Place::Config(place));
        if !again {
            findings.add(
                Rule::StateFileInUse,
                Place::Config(place),
                None,
                message,
                fix,
            );
        }
    }
}
