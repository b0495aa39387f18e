//! Rows and their agent: who asks, with which words, whom, and how often.

use std::collections::HashMap;
use std::time::Duration;

use haplane_haproxy::cfg::{Address, Backend, Row, ServerLine, Severity, Sourced, Span};

use super::{Findings, Looked, Place, Rule};
use crate::ask::Ask;

/// HAProxy spreads the first checks by the shortest interval of at least this (facts 4.1).
const SPREADING_INTERVAL: Duration = Duration::from_secs(1);
/// A longer interval makes every change slow.
const SLOW_INTERVAL: Duration = Duration::from_secs(10);
/// With a shorter timeout the answers of a busy machine are lost.
const SHORT_TIMEOUT: Duration = Duration::from_millis(100);

pub(super) fn check(looked: &Looked<'_>, findings: &mut Findings) {
    let mut asks: HashMap<String, Row<'_>> = HashMap::new();
    for backend in looked
        .config()
        .backends()
        .iter()
        .filter(|backend| !backend.settings.disabled.value)
    {
        for server in &backend.servers {
            let settings = &server.settings;
            if !settings.agent.enabled.value {
                not_enrolled(looked, backend, server, findings);
                continue;
            }
            let first = Row {
                backend,
                server,
                number: server.numbers().next().flatten(),
            };
            words(first, findings);
            agent_address(first, findings);
            interval(looked, first, findings);
            for number in server.numbers() {
                duplicates(
                    Row {
                        backend,
                        server,
                        number,
                    },
                    &mut asks,
                    findings,
                );
            }
        }
        timeout(backend, findings);
    }
}

/// Where to point for a setting: its own place, else the server's name.
fn place_of<T>(setting: Option<&Sourced<T>>, server: &ServerLine) -> Place {
    Place::Config(
        setting
            .and_then(|setting| setting.from)
            .unwrap_or(server.span),
    )
}

fn not_enrolled(
    looked: &Looked<'_>,
    backend: &Backend,
    server: &ServerLine,
    findings: &mut Findings,
) {
    if server.settings.track.is_some() {
        return;
    }
    let row = Row {
        backend,
        server,
        number: server.numbers().next().flatten(),
    }
    .key();
    let name = format!("{}/{}", backend.name, server.name);
    // Where nothing is enrolled yet, this is only a suggestion.
    let severity = if looked.has_enrolled_rows() {
        Severity::Warning
    } else {
        Severity::Note
    };
    let message = format!("{name} has no agent-check");
    // Enroll leaves those alone: the agent's `ready` would put them into rotation.
    let fix = if server.settings.disabled.value && server.template.is_none() {
        format!(
            "set its key to maint (`haplane set {name} maint --force`), take `disabled` out, then run `haplane enroll`"
        )
    } else {
        "run `haplane enroll`, or exclude the row there and allow this finding".to_owned()
    };
    findings.add_as(
        severity,
        Rule::NotEnrolled,
        Place::Config(server.span),
        row,
        message,
        fix,
    );
}

/// What the row says when it asks.
fn words(row: Row<'_>, findings: &mut Findings) {
    let server = row.server;
    let key = row.key();
    let Some(send) = &server.settings.agent.send else {
        let place = place_of(Some(&server.settings.agent.enabled), server);
        let message = format!(
            "{}/{} asks the agent without saying who it is",
            row.backend.name, server.name
        );
        let fix = format!("add agent-send \"{}\\n\"", expected_word(row));
        findings.add(Rule::AgentSendMissing, place, key, message, fix);
        return;
    };
    let place = || place_of(Some(send), server);
    if !send.value.ends_with('\n') {
        let message = format!(
            "agent-send of {}/{} does not end with \\n",
            row.backend.name, server.name
        );
        let fix = "end the text with \\n, inside double quotes or with a plain backslash";
        findings.add(Rule::AgentSendNewline, place(), key.clone(), message, fix);
    }
    let line = send.value.split_inclusive('\n').next().unwrap_or_default();
    let first = line.split_whitespace().next().unwrap_or_default();
    let fix = format!("begin agent-send with {}", expected_word(row));
    match Ask::parse(line.as_bytes()) {
        Err(refusal) => {
            let message = format!(
                "the agent refuses the words of {}/{}: {refusal}",
                row.backend.name, server.name
            );
            findings.add(Rule::AgentSendMismatch, place(), key, message, fix);
        }
        Ok(Ask::Free) if server.template.is_some() => {}
        Ok(_) if server.template.is_some() => {
            let message = format!(
                "the slots {}/{}… ask as {first}, also while they are empty",
                row.backend.name, server.name
            );
            let fix = "send \"@free\\n\" from server-template lines; haplane sync sets the words of a filled slot";
            findings.add(Rule::SlotsWithoutFree, place(), key, message, fix);
        }
        Ok(_) if first != expected_word(row) => {
            let message = format!("{}/{} asks as {first}", row.backend.name, server.name);
            findings.add(Rule::AgentSendMismatch, place(), key, message, fix);
        }
        Ok(_) => {}
    }
    init_state(row, line, findings);
}

fn expected_word(row: Row<'_>) -> String {
    if row.server.template.is_some() {
        "@free".to_owned()
    } else {
        format!("{}/{}", row.backend.name, row.server.name)
    }
}

/// Two rows with one name: a copied line whose agent-send was not changed.
fn duplicates<'a>(row: Row<'a>, asks: &mut HashMap<String, Row<'a>>, findings: &mut Findings) {
    let Some(send) = &row.server.settings.agent.send else {
        return;
    };
    let first = send.value.split_whitespace().next().unwrap_or_default();
    if first.starts_with('@') || first.is_empty() || row.server.template.is_some() {
        return;
    }
    if let Some(other) = asks.get(first) {
        let other = format!("{}/{}", other.backend.name, other.server.name);
        let message = format!(
            "{}/{} asks as {first}, as {other} does",
            row.backend.name, row.server.name
        );
        let fix = format!("begin agent-send with {}", expected_word(row));
        findings.add(
            Rule::AgentSendDuplicate,
            place_of(Some(send), row.server),
            row.key(),
            message,
            fix,
        );
    } else {
        asks.insert(first.to_owned(), row);
    }
}

fn agent_address(row: Row<'_>, findings: &mut Findings) {
    let server = row.server;
    let own = &server.settings.agent.address;
    let (address, place): (&Address, Place) = match own {
        Some(address) => (&address.value, place_of(Some(address), server)),
        None => (&server.address, Place::Config(server.address_span)),
    };
    let is_local = match address {
        Address::Ip(ip) => ip.is_loopback(),
        Address::Name(name) => name == "localhost",
        Address::Unix(_) | Address::Other(_) => true,
    };
    if is_local {
        return;
    }
    let whose = if own.is_some() {
        ""
    } else {
        ", the server's own address, because no agent-addr is given"
    };
    let message = format!("{}/{} asks {address}{whose}", row.backend.name, server.name);
    let fix = "run the agent beside HAProxy and add agent-addr 127.0.0.1";
    findings.add(Rule::AgentAddressRemote, place, row.key(), message, fix);
}

fn interval(looked: &Looked<'_>, row: Row<'_>, findings: &mut Findings) {
    let inter = &row.server.settings.agent.inter;
    let place = || place_of(Some(inter), row.server);
    let name = format!("{}/{}", row.backend.name, row.server.name);
    if inter.value < SPREADING_INTERVAL {
        let Some(spread) = shortest_other_interval(looked) else {
            return;
        };
        let message = format!(
            "{name} asks every {:?}, but after a start only within {spread:?}",
            inter.value
        );
        let fix = "use agent-inter 1s or longer, and max-spread-checks 1 in the global section";
        findings.add(Rule::AgentInterval, place(), row.key(), message, fix);
    } else if inter.value > SLOW_INTERVAL {
        let message = format!("{name} asks every {:?} only", inter.value);
        findings.add_as(
            Severity::Note,
            Rule::AgentInterval,
            place(),
            row.key(),
            message,
            "use agent-inter 2s",
        );
    }
}

/// The shortest check interval of at least one second, over which HAProxy spreads the start of all checks.
/// None when `max-spread-checks` caps the spread, or when there is no such check.
fn shortest_other_interval(looked: &Looked<'_>) -> Option<Duration> {
    if looked
        .config()
        .global()
        .max_spread_checks
        .as_ref()
        .is_some_and(|cap| cap.value <= SPREADING_INTERVAL)
    {
        return None;
    }
    let settings = || looked.config().rows().map(|row| &row.server.settings);
    let checks = settings()
        .filter(|one| one.check.enabled.value)
        .map(|one| one.check.inter.value);
    let agents = settings()
        .filter(|one| one.agent.enabled.value)
        .map(|one| one.agent.inter.value);
    checks
        .chain(agents)
        .filter(|interval| *interval >= SPREADING_INTERVAL)
        .min()
}

fn timeout(backend: &Backend, findings: &mut Findings) {
    let Some(timeout) = &backend.settings.timeout_check else {
        return;
    };
    let enrolled = backend
        .servers
        .iter()
        .filter(|server| server.settings.agent.enabled.value);
    let Some(shortest) = enrolled
        .map(|server| server.settings.agent.inter.value)
        .min()
    else {
        return;
    };
    let place: Span = timeout.from.unwrap_or(backend.span);
    let about = if timeout.value < SHORT_TIMEOUT {
        format!("waits for its agents no longer than {:?}", timeout.value)
    } else if timeout.value > shortest {
        format!(
            "waits {:?} for an agent that is asked every {shortest:?}",
            timeout.value
        )
    } else {
        return;
    };
    let message = format!("backend {} {about}", backend.name);
    let fix = "set timeout check between 100ms and agent-inter";
    findings.add(Rule::AgentTimeout, Place::Config(place), None, message, fix);
}

/// Rows that start down wait for the word `up`.
fn init_state(row: Row<'_>, line: &str, findings: &mut Findings) {
    let Some(state) = &row.server.settings.init_state else {
        return;
    };
    let starts_down = matches!(state.value.as_str(), "down" | "fully-down");
    if starts_down && !line.split_whitespace().any(|word| word == "@up") {
        let message = format!(
            "{}/{} starts {}",
            row.backend.name, row.server.name, state.value
        );
        let fix = "add the word @up to its agent-send";
        findings.add(
            Rule::InitStateAgent,
            place_of(Some(state), row.server),
            row.key(),
            message,
            fix,
        );
    }
}
