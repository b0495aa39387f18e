//! The audit trail: one entry for each transaction of a command.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::key::Key;

/// The name of a log entry: a 64-bit number, time first, as 16 hexadecimal digits.
///
/// Milliseconds since 1970 above 20 random bits: names sort by time, and two writers in the same
/// millisecond hardly ever collide. A Consul key's flags hold the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LogId(u64);

const RANDOM_BITS: u32 = 20;

impl LogId {
    /// An id for something written now.
    pub fn new(now: Timestamp, random: u64) -> Self {
        let millis = u64::try_from(now.as_millisecond()).unwrap_or(0);
        Self((millis << RANDOM_BITS) | (random & ((1 << RANDOM_BITS) - 1)))
    }

    /// The id that a key's flags name; 0 is what a key written by hand has.
    pub fn from_flags(flags: u64) -> Option<Self> {
        (flags != 0).then_some(Self(flags))
    }

    /// When it was written, to the millisecond.
    pub fn at(self) -> Timestamp {
        i64::try_from(self.0 >> RANDOM_BITS)
            .ok()
            .and_then(|millis| Timestamp::from_millisecond(millis).ok())
            .unwrap_or(Timestamp::MAX)
    }

    /// The number.
    pub fn as_u64(self) -> u64 {
        self.0
    }
}

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for LogId {
    type Err = LogIdError;

    fn from_str(text: &str) -> Result<Self, LogIdError> {
        let is_id = text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
        let number = is_id.then(|| u64::from_str_radix(text, 16).ok()).flatten();
        number.map(Self).ok_or_else(|| LogIdError(text.to_owned()))
    }
}

/// Not 16 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the id of a log entry: 16 hexadecimal digits")]
pub struct LogIdError(String);

impl Serialize for LogId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for LogId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// What one transaction changed, who did it and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntry {
    /// Its name.
    pub id: LogId,
    /// When the command wrote it.
    pub at: Timestamp,
    /// The user.
    pub by: String,
    /// The machine that the command ran on.
    pub host: String,
    /// The command with its arguments, as typed.
    pub command: String,
    /// `--reason`.
    #[serde(default)]
    pub reason: Option<String>,
    /// `--ticket`.
    #[serde(default)]
    pub ticket: Option<String>,
    /// The keys, each with its text before and after; `None` is absent.
    pub changes: Vec<Changed>,
}

/// One key of a log entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// The key.
    pub key: Key,
    /// Its text before the command, `None` if it was absent.
    pub before: Option<String>,
    /// Its text after the command, `None` if it was deleted.
    pub after: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_by_time_and_survive_text() {
        let at = |s: &str| s.parse::<Timestamp>().unwrap();
        let early = LogId::new(at("2026-11-29T12:00:00Z"), u64::MAX);
        let late = LogId::new(at("2026-11-29T12:00:00.001Z"), 0);
        assert!(early < late);
        assert!(early.to_string() < late.to_string());
        assert_eq!(late.to_string().parse(), Ok(late));
        assert_eq!(late.to_string().len(), 16);
        assert!("+123456789abcdef".parse::<LogId>().is_err());
        assert_eq!(LogId::from_flags(0), None);
        assert_eq!(LogId::from_flags(late.as_u64()), Some(late));
    }
}
