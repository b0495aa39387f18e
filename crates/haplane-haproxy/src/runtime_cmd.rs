//! Commands of the Runtime API that change a server, and what HAProxy's replies to them mean.
//!
//! HAProxy answers in prose (facts 7.1). [`SEVERITY`] sent first in a batch makes it put `[N]: ` before every message,
//! which tells a message from the empty line of a silent success, and an error from a notice; measured on 2.6, 2.8, 3.0 and 3.2.
//! Even so an unknown command is only a notice, and a port out of range only a different number: so each command here
//! knows what its success reads like, and everything else is a refusal.

use std::fmt;
use std::net::IpAddr;

use crate::admin_state::AdminState;
use crate::names::RowKey;
use crate::weight::Percent;

mod replies;

pub use replies::{BatchError, Marks, Refusal, read_replies};

/// The command that opens every batch: from then on each message carries its severity.
pub const SEVERITY: &str = "set severity-output number";

/// One change of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Which server.
    pub row: RowKey,
    /// What to do to it.
    pub action: Action,
}

/// What can be done to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// `set server … state`.
    State(AdminState),
    /// `set server … addr … port …`.
    Address(IpAddr, u16),
    /// `set server … check-port`.
    CheckPort(u16),
    /// `set server … weight N%`, of the configured weight.
    Weight(Percent),
    /// `set server … agent-send`: the words, without the line feed, which cannot be sent (facts 7.1).
    AgentSend(String),
    /// `enable agent`.
    EnableAgent,
    /// `disable agent`.
    DisableAgent,
    /// `set server … agent down`: no traffic, whatever admin state anybody gives it, until [`Self::AgentUp`] or the
    /// agent's own word `up` (facts 2.2 d). Only while the agent check is on.
    AgentDown,
    /// `set server … agent up`. In maintenance nothing else happens; out of it, it also makes a server up that its
    /// health check found down.
    AgentUp,
    /// `enable health`.
    EnableHealth,
    /// `set server … health down`: down until its own checks have passed. Without a check it would stay down for ever.
    HealthDown,
    /// `shutdown sessions server`: cuts what is still running.
    ShutdownSessions,
    /// `add server`: a dynamic server with this address and these parameters, born in maintenance (2.6 and later).
    Add(IpAddr, u16, String),
    /// `del server`: only from maintenance and without sessions.
    Delete,
}

impl Command {
    /// A command about `row`.
    pub const fn new(row: RowKey, action: Action) -> Self {
        Self { row, action }
    }
}

/// The command as HAProxy reads it, without `;` or line end.
impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = &self.row;
        match &self.action {
            Action::State(state) => write!(f, "set server {row} state {state}"),
            Action::Address(address, port) => {
                write!(f, "set server {row} addr {address} port {port}")
            }
            Action::CheckPort(port) => write!(f, "set server {row} check-port {port}"),
            Action::Weight(percent) => write!(f, "set server {row} weight {percent}"),
            Action::AgentSend(words) => write!(f, "set server {row} agent-send {}", escaped(words)),
            Action::EnableAgent => write!(f, "enable agent {row}"),
            Action::DisableAgent => write!(f, "disable agent {row}"),
            Action::AgentDown => write!(f, "set server {row} agent down"),
            Action::AgentUp => write!(f, "set server {row} agent up"),
            Action::EnableHealth => write!(f, "enable health {row}"),
            Action::HealthDown => write!(f, "set server {row} health down"),
            Action::ShutdownSessions => write!(f, "shutdown sessions server {row}"),
            Action::Add(address, port, parameters) => {
                write!(f, "add server {row} {}", endpoint(*address, *port))?;
                if parameters.is_empty() {
                    Ok(())
                } else {
                    write!(f, " {parameters}")
                }
            }
            Action::Delete => write!(f, "del server {row}"),
        }
    }
}

/// `address:port`, an IPv6 address in brackets.
fn endpoint(address: IpAddr, port: u16) -> String {
    match address {
        IpAddr::V4(address) => format!("{address}:{port}"),
        IpAddr::V6(address) => format!("[{address}]:{port}"),
    }
}

/// A word as the command line takes it: a backslash before what would end the word or the command. Quotation marks are
/// literal there, a backslash is not (facts 7.1).
pub fn escaped(words: &str) -> String {
    let mut text = String::with_capacity(words.len() + 4);
    for c in words.chars() {
        if matches!(c, ' ' | ';' | '\\') {
            text.push('\\');
        }
        text.push(c);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_as_haproxy_reads_them() {
        let command = |action| Command::new("web/w-1".parse().unwrap(), action).to_string();
        for (action, text) in [
            (
                Action::State(AdminState::Maint),
                "set server web/w-1 state maint",
            ),
            (
                Action::Address("10.0.0.7".parse().unwrap(), 8080),
                "set server web/w-1 addr 10.0.0.7 port 8080",
            ),
            (
                Action::Address("fd00::7".parse().unwrap(), 8080),
                "set server web/w-1 addr fd00::7 port 8080",
            ),
            (
                Action::Weight(Percent::FULL),
                "set server web/w-1 weight 100%",
            ),
            (
                Action::AgentSend("web/a canary @50%".into()),
                "set server web/w-1 agent-send web/a\\ canary\\ @50%",
            ),
            (
                Action::AgentSend("a;b\\c'".into()),
                "set server web/w-1 agent-send a\\;b\\\\c'",
            ),
            (Action::EnableAgent, "enable agent web/w-1"),
            (Action::AgentDown, "set server web/w-1 agent down"),
            (Action::AgentUp, "set server web/w-1 agent up"),
            (Action::HealthDown, "set server web/w-1 health down"),
            (
                Action::Add("fd00::7".parse().unwrap(), 80, "check weight 100".into()),
                "add server web/w-1 [fd00::7]:80 check weight 100",
            ),
            (Action::Delete, "del server web/w-1"),
        ] {
            assert_eq!(command(action), text);
        }
    }
}
