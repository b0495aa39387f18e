//! The values of keys: `ready`, `drain`, `maint` or `N%`, each perhaps with an end.

use std::fmt;
use std::str::FromStr;

use haplane_haproxy::{AdminState, Percent};
use jiff::Timestamp;

/// What is wanted of the rows that a key decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Desired {
    /// One of HAProxy's three administrative states.
    Admin(AdminState),
    /// In rotation, with this share of the configured weight.
    Weight(Percent),
}

impl Desired {
    /// In rotation at full weight.
    pub const READY: Self = Self::Admin(AdminState::Ready);
    /// No new traffic.
    pub const DRAIN: Self = Self::Admin(AdminState::Drain);
    /// No traffic.
    pub const MAINT: Self = Self::Admin(AdminState::Maint);

    /// Whether a row decided by this may take new traffic.
    pub fn in_rotation(self) -> bool {
        match self {
            Self::Admin(state) => state == AdminState::Ready,
            Self::Weight(percent) => percent.get() > 0,
        }
    }
}

impl fmt::Display for Desired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Admin(state) => state.fmt(f),
            Self::Weight(percent) => percent.fmt(f),
        }
    }
}

impl FromStr for Desired {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text.to_ascii_lowercase().as_str() {
            "" => Err(ValueError::Empty),
            "ready" => Ok(Self::READY),
            "drain" => Ok(Self::DRAIN),
            "maint" => Ok(Self::MAINT),
            word if word.ends_with('%') => word
                .parse()
                .map(Self::Weight)
                .map_err(|_| ValueError::Weight(text.to_owned())),
            _ => Err(ValueError::Word(text.to_owned())),
        }
    }
}

/// The value of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Value {
    /// What is wanted.
    pub desired: Desired,
    /// From this time on, the key counts as absent.
    pub until: Option<Timestamp>,
}

/// Why a text is not a value. Such a text counts as if the key were absent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// Only blanks.
    #[error("a value cannot be empty; write ready, drain, maint or a weight such as 50%")]
    Empty,
    /// Not one of the words; health words such as `down` are HAProxy's own to decide.
    #[error("{0:?} is none of ready, drain, maint or a weight such as 50%")]
    Word(String),
    /// Not `N%` with N from 0 to 256.
    #[error("{0:?} is not a weight: write N% with a whole number from 0 to 256")]
    Weight(String),
    /// Something after the word that is not `until=TIME`.
    #[error("{0:?} behind the value is not of the form until=2030-01-31T12:00:00Z")]
    Until(String),
}

impl Value {
    /// A value that holds until somebody changes it.
    pub const fn lasting(desired: Desired) -> Self {
        Self {
            desired,
            until: None,
        }
    }

    /// Whether the value still counts at this time.
    pub fn holds_at(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
    }

    /// Reads the bytes that a store holds. What is not UTF-8 is no value.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ValueError> {
        match std::str::from_utf8(bytes) {
            Ok(text) => text.parse(),
            Err(_) => Err(ValueError::Word(
                String::from_utf8_lossy(bytes).into_owned(),
            )),
        }
    }
}

impl FromStr for Value {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let mut words = text.split_ascii_whitespace();
        let desired = words.next().unwrap_or_default().parse()?;
        let until = words.next().map(parse_until).transpose()?;
        match words.next() {
            Some(extra) => Err(ValueError::Until(extra.to_owned())),
            None => Ok(Self { desired, until }),
        }
    }
}

fn parse_until(word: &str) -> Result<Timestamp, ValueError> {
    let wrong = || ValueError::Until(word.to_owned());
    let lower = word.to_ascii_lowercase();
    let time = lower.strip_prefix("until=").ok_or_else(wrong)?;
    if !is_rfc3339_shaped(time) {
        return Err(wrong());
    }
    time.to_ascii_uppercase().parse().map_err(|_| wrong())
}

/// RFC 3339's `date-time` only, not the wider grammars that time libraries accept.
fn is_rfc3339_shaped(time: &str) -> bool {
    let shape: String = time
        .chars()
        .map(|c| if c.is_ascii_digit() { '0' } else { c })
        .collect();
    let Some(rest) = shape.strip_prefix("0000-00-00t00:00:00") else {
        return false;
    };
    let offset = match rest.strip_prefix('.') {
        Some(fraction) => {
            let offset = fraction.trim_start_matches('0');
            if offset.len() == fraction.len() {
                return false;
            }
            offset
        }
        None => rest,
    };
    matches!(offset, "z" | "+00:00" | "-00:00")
}

/// The value as haplane writes it.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.desired.fmt(f)?;
        self.until
            .map_or(Ok(()), |until| write!(f, " until={until}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_weights_and_ends() {
        let weight = |n| Desired::Weight(Percent::new(n).unwrap());
        for (text, want) in [
            ("ready", Desired::READY),
            ("  DrAiN\r\n", Desired::DRAIN),
            ("maint\n", Desired::MAINT),
            ("0%", weight(0)),
            ("256%", weight(256)),
        ] {
            assert_eq!(text.parse(), Ok(Value::lasting(want)), "{text:?}");
        }
        let value: Value = "drain until=2030-01-31T12:00:00Z\n".parse().unwrap();
        let end: Timestamp = "2030-01-31T12:00:00Z".parse().unwrap();
        assert_eq!(
            value,
            Value {
                desired: Desired::DRAIN,
                until: Some(end)
            }
        );
        let before = end.checked_sub(jiff::SignedDuration::from_secs(1)).unwrap();
        assert!(value.holds_at(before) && !value.holds_at(end));
        let offset: Value = "50% UNTIL=2030-01-31t14:00:00.5+02:00".parse().unwrap();
        assert_eq!(
            offset.until,
            Some("2030-01-31T12:00:00.5Z".parse().unwrap())
        );
    }

    #[test]
    fn everything_else_is_no_value() {
        for bad in [
            "",
            " \n",
            "down",
            "up",
            "50",
            "33.5%",
            "300%",
            "050%",
            "drain drain",
            "ready 100%",
            "drain until=",
            "drain until=tomorrow",
            "drain until=2030-01-31",
            "stopped",
            "drain until=2030-01-31T12:00:00",
            "until=2030-01-31T12:00:00Z",
            "drain, ready",
            "drain until=2030-01-31T12:00:00Z until=2030-01-31T12:00:00Z",
            "drain until=2030-01-31T12:00:00.Z",
            "drain until=2030-13-31T12:00:00Z",
            "drain until=2030-01-31T12:00:00Z[Europe/Paris]",
            "dra\u{131}n",
        ] {
            assert!(bad.parse::<Value>().is_err(), "{bad:?}");
        }
        assert!(Value::from_bytes(b"drain\xff").is_err());
        assert_eq!(
            Value::from_bytes(b"drain\n"),
            Ok(Value::lasting(Desired::DRAIN))
        );
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            n in 0u16..=256,
            seconds in proptest::option::of(0i64..4_000_000_000),
            which in 0..4,
        ) {
            let desired = match which {
                0 => Desired::READY,
                1 => Desired::DRAIN,
                2 => Desired::MAINT,
                _ => Desired::Weight(Percent::new(n).unwrap()),
            };
            let until = seconds.map(|s| Timestamp::from_second(s).unwrap());
            let value = Value { desired, until };
            prop_assert_eq!(value.to_string().parse::<Value>(), Ok(value));
        }

        #[test]
        fn reading_never_panics(bytes in any::<Vec<u8>>()) {
            let _ = Value::from_bytes(&bytes);
        }
    }
}
