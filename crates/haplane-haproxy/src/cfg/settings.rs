//! What the words of a server line set, one after the other, on top of what `default-server` set before.

use std::time::Duration;

use super::address::{self, Address};
use super::diagnostics::Diagnostics;
use super::keywords::{Arity, arity};
use super::line::Line;
use super::source::Span;
use crate::duration;

/// A value and the place that gave it; no place means HAProxy's own default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// Keyword and value in the file; none for HAProxy's default.
    pub from: Option<Span>,
}

impl<T> Sourced<T> {
    fn default_of(value: T) -> Self {
        Self { value, from: None }
    }

    pub(super) fn set(value: T, from: Span) -> Self {
        Self {
            value,
            from: Some(from),
        }
    }
}

/// An option that may be absent: the value with its place, or nothing.
pub type Optional<T> = Option<Sourced<T>>;

/// The agent check of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentSettings {
    /// `agent-check`.
    pub enabled: Sourced<bool>,
    /// `agent-addr`, else the `addr` of the health check, else (none here) the server's own address.
    pub address: Optional<Address>,
    /// `agent-port`, else the `port` of the health check.
    pub port: Optional<u16>,
    /// `agent-inter`, 2 s when not given.
    pub inter: Sourced<Duration>,
    /// `agent-send`, as HAProxy will send it.
    pub send: Optional<String>,
    address_is_own: bool,
    port_is_own: bool,
}

/// The health check of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckSettings {
    /// `check`.
    pub enabled: Sourced<bool>,
    /// `addr`; the server's own address when not given.
    pub address: Optional<Address>,
    /// `port`; the server's own port when not given.
    pub port: Optional<u16>,
    /// `inter`, 2 s when not given.
    pub inter: Sourced<Duration>,
    /// `rise`, 2 when not given.
    pub rise: Sourced<u32>,
    /// `fall`, 3 when not given.
    pub fall: Sourced<u32>,
}

/// Everything about a server that the rules, the forecast and the enrolment need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSettings {
    /// The health check.
    pub check: CheckSettings,
    /// The agent check.
    pub agent: AgentSettings,
    /// `weight`, 1 when not given.
    pub weight: Sourced<u16>,
    /// `disabled`.
    pub disabled: Sourced<bool>,
    /// `backup`.
    pub backup: Sourced<bool>,
    /// `slowstart`.
    pub slowstart: Optional<Duration>,
    /// `track`, as written: `backend/server` or `server`.
    pub track: Optional<String>,
    /// `init-addr`, as written.
    pub init_addr: Optional<String>,
    /// `init-state`, as written (3.1 and later).
    pub init_state: Optional<String>,
    /// `resolvers`.
    pub resolvers: Optional<String>,
    /// `cookie`.
    pub cookie: Optional<String>,
}

impl Default for ServerSettings {
    /// HAProxy's own defaults (configuration manual 5.2).
    fn default() -> Self {
        let two_seconds = Duration::from_secs(2);
        Self {
            check: CheckSettings {
                enabled: Sourced::default_of(false),
                address: None,
                port: None,
                inter: Sourced::default_of(two_seconds),
                rise: Sourced::default_of(2),
                fall: Sourced::default_of(3),
            },
            agent: AgentSettings {
                enabled: Sourced::default_of(false),
                address: None,
                port: None,
                inter: Sourced::default_of(two_seconds),
                send: None,
                address_is_own: false,
                port_is_own: false,
            },
            weight: Sourced::default_of(1),
            disabled: Sourced::default_of(false),
            backup: Sourced::default_of(false),
            slowstart: None,
            track: None,
            init_addr: None,
            init_state: None,
            resolvers: None,
            cookie: None,
        }
    }
}

/// The largest weight of a server.
pub const MAX_WEIGHT: u16 = 256;

impl ServerSettings {
    /// Applies the words of `line` from index `first` on. HAProxy stops at the first empty word.
    pub(super) fn apply(&mut self, line: &Line, first: usize, diagnostics: &mut Diagnostics) {
        let mut index = first;
        while !line.argument(index).is_empty() {
            let keyword = line.argument(index);
            let length = match arity(keyword) {
                Some(Arity::Flag) => {
                    self.set_flag(keyword, line.span_of(index));
                    1
                }
                Some(Arity::One) => {
                    self.set_value(line, index, diagnostics);
                    2
                }
                Some(Arity::Source) => source_length(line, index),
                None => {
                    diagnostics.unknown_keyword(line.span_of(index), keyword);
                    1
                }
            };
            index += length;
        }
    }

    fn set_flag(&mut self, keyword: &str, span: Span) {
        let (switch, value) = match keyword {
            "check" => (&mut self.check.enabled, true),
            "no-check" => (&mut self.check.enabled, false),
            "agent-check" => (&mut self.agent.enabled, true),
            "no-agent-check" => (&mut self.agent.enabled, false),
            "disabled" => (&mut self.disabled, true),
            "enabled" => (&mut self.disabled, false),
            "backup" => (&mut self.backup, true),
            "no-backup" => (&mut self.backup, false),
            _ => return,
        };
        *switch = Sourced::set(value, span);
    }

    fn set_value(&mut self, line: &Line, index: usize, diagnostics: &mut Diagnostics) {
        let keyword = line.argument(index);
        let text = line.argument(index + 1);
        let value_span = line.span_of(index + 1);
        let span = Span {
            end: value_span.end,
            ..line.span_of(index)
        };
        let result = match keyword {
            "weight" => weight(text).map(|weight| self.weight = Sourced::set(weight, span)),
            "port" => {
                self.check.port = port(text).map(|port| Sourced::set(port, span));
                if !self.agent.port_is_own {
                    self.agent.port.clone_from(&self.check.port);
                }
                Ok(())
            }
            "agent-port" => {
                self.agent.port = port(text).map(|port| Sourced::set(port, span));
                self.agent.port_is_own = true;
                Ok(())
            }
            "rise" => count(text).map(|rise| self.check.rise = Sourced::set(rise, span)),
            "fall" => count(text).map(|fall| self.check.fall = Sourced::set(fall, span)),
            "inter" => interval(text).map(|inter| self.check.inter = Sourced::set(inter, span)),
            "agent-inter" => {
                interval(text).map(|inter| self.agent.inter = Sourced::set(inter, span))
            }
            "slowstart" => {
                milliseconds(text).map(|ramp| self.slowstart = Some(Sourced::set(ramp, span)))
            }
            "addr" => check_address(text).map(|address| {
                self.check.address = Some(Sourced::set(address, span));
                if !self.agent.address_is_own {
                    self.agent.address.clone_from(&self.check.address);
                }
            }),
            "agent-addr" => {
                self.agent.address = Some(Sourced::set(agent_address(text), span));
                self.agent.address_is_own = true;
                Ok(())
            }
            _ => self.set_text(keyword, text, span),
        };
        if let Err(message) = result {
            diagnostics.error(value_span, format!("`{keyword}`: {message}"));
        }
    }

    fn set_text(&mut self, keyword: &str, text: &str, span: Span) -> Result<(), String> {
        let option = match keyword {
            "agent-send" => &mut self.agent.send,
            "track" => &mut self.track,
            "init-addr" => &mut self.init_addr,
            "init-state" => &mut self.init_state,
            "resolvers" => &mut self.resolvers,
            "cookie" => &mut self.cookie,
            _ => return Ok(()),
        };
        if text.is_empty() {
            return Err("a value is missing".to_owned());
        }
        *option = Some(Sourced::set(text.to_owned(), span));
        Ok(())
    }
}

/// `source ADDRESS [usesrc X] [interface X]`.
fn source_length(line: &Line, index: usize) -> usize {
    let mut length = 2;
    while matches!(line.argument(index + length), "usesrc" | "interface") {
        length += 2;
    }
    length
}

/// A number as C's `atol` reads it: leading digits, and 0 for anything else. To HAProxy `5x` is 5 and `x` is 0.
fn leading_number(text: &str) -> i64 {
    let text = text.trim_start();
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = digits
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(digits.len());
    let (digits, _) = digits.split_at(end);
    let number = if digits.is_empty() {
        0
    } else {
        digits.parse().unwrap_or(i64::MAX)
    };
    sign * number
}

fn weight(text: &str) -> Result<u16, String> {
    let number = u16::try_from(leading_number(text))
        .ok()
        .filter(|weight| *weight <= MAX_WEIGHT);
    number.ok_or_else(|| format!("{text:?} is no weight from 0 to {MAX_WEIGHT}"))
}

/// A check's port; 0 is none. HAProxy silently accepts numbers that are no ports, and then no check ever succeeds.
fn port(text: &str) -> Option<u16> {
    u16::try_from(leading_number(text))
        .ok()
        .filter(|port| *port != 0)
}

fn count(text: &str) -> Result<u32, String> {
    let number = u32::try_from(leading_number(text))
        .ok()
        .filter(|number| *number > 0);
    number.ok_or_else(|| format!("{text:?} is not at least 1"))
}

fn milliseconds(text: &str) -> Result<Duration, String> {
    duration::parse_millis(text).map_err(|error| error.to_string())
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = milliseconds(text)?;
    if interval.is_zero() {
        Err("an interval cannot be 0".to_owned())
    } else {
        Ok(interval)
    }
}

fn check_address(text: &str) -> Result<Address, String> {
    address::parse(text)
        .map(|(address, _)| address)
        .map_err(|error| error.to_string())
}

/// An address without a port, so every colon is part of it.
fn agent_address(text: &str) -> Address {
    text.parse()
        .map_or_else(|_| Address::Name(text.to_owned()), Address::Ip)
}
