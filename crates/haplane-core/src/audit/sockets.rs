//! Who can reach HAProxy's command line.

use std::net::IpAddr;

use haplane_haproxy::cfg::{Severity, StatsSocket};

use super::{Findings, Looked, Place, Rule};

pub(super) fn check(looked: &Looked<'_>, findings: &mut Findings) {
    for socket in &looked.config().global().stats_sockets {
        if is_local(&socket.address) {
            mode(socket, findings);
        } else {
            tcp(socket, findings);
        }
    }
}

fn is_local(address: &str) -> bool {
    ["/", "unix@", "abns@", "abnsz@", "fd@", "sockpair@"]
        .iter()
        .any(|prefix| address.starts_with(prefix))
        || !address.contains(':')
}

fn tcp(socket: &StatsSocket, findings: &mut Findings) {
    let host = socket
        .address
        .rsplit_once(':')
        .map_or(socket.address.as_str(), |(host, _)| host);
    let host = host
        .rsplit_once('@')
        .map_or(host, |(_, host)| host)
        .trim_matches(['[', ']']);
    let loopback = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    let level = socket.level.value.as_str();
    let message = format!(
        "the command line of HAProxy listens on {} at level {level}",
        socket.address
    );
    let severity = match (loopback, level) {
        (false, "admin") => Severity::Error,
        (true, "user") => Severity::Note,
        _ => Severity::Warning,
    };
    let fix = "use a unix socket with mode 600, or 660 and a group; haplane needs no socket at all for drains";
    findings.add_as(
        severity,
        Rule::AdminSocketTcp,
        Place::Config(socket.span),
        None,
        message,
        fix,
    );
}

/// To connect to a unix socket one needs the right to write to it.
fn mode(socket: &StatsSocket, findings: &mut Findings) {
    let Some(mode) = &socket.mode else { return };
    let Ok(bits) = u32::from_str_radix(&mode.value, 8) else {
        return;
    };
    if bits & 0o002 == 0 {
        return;
    }
    let level = socket.level.value.as_str();
    let severity = if level == "user" {
        Severity::Warning
    } else {
        Severity::Error
    };
    let message = format!(
        "every local user can open {} at level {level} (mode {})",
        socket.address, mode.value
    );
    let fix = "use mode 600, or 660 with a group";
    let place = Place::Config(mode.from.unwrap_or(socket.span));
    findings.add_as(severity, Rule::AdminSocketMode, place, None, message, fix);
}
