//! The agent-check line: what an agent answers, and how HAProxy reads an answer.
//!
//! HAProxy connects, sends the words of `agent-send`, reads one line and closes (configuration
//! manual 5.2, `agent-check`). What the words mean to haplane is `haplane-core`'s business; this
//! module has the side that HAProxy defines.

mod reader;

use std::fmt;

use crate::weight::Percent;

pub use reader::{Health, Reading, read_as_haproxy};

/// One answer of ours, always complete: whatever an earlier answer left behind in HAProxy, after
/// this one the server is in exactly the state that the answer names.
///
/// HAProxy keeps the administrative state and the weight apart and an answer that names only one
/// leaves the other as it was (facts 2.2 a and b): so nothing here is a bare weight, and `ready`
/// restates the weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// In rotation with this share of the configured weight.
    Ready {
        /// `None` leaves whatever weight the server has.
        weight: Option<Percent>,
        /// Also lift an agent health of 0, which rows of dynamic servers start with (facts 7.3).
        up: bool,
    },
    /// No new traffic.
    Drain,
    /// No traffic.
    Maint,
    /// The empty line: HAProxy changes nothing (facts 1).
    Keep,
}

impl Answer {
    /// In rotation at full weight: the answer of a row for which nothing is desired.
    pub const READY: Self = Self::Ready {
        weight: Some(Percent::FULL),
        up: false,
    };

    /// The line as it goes onto the wire, with its line feed; without one HAProxy ignores the
    /// answer (facts 1).
    pub fn line(self) -> String {
        format!("{self}\n")
    }
}

/// The line without its line feed.
impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready { weight, up } => {
                f.write_str(if *up { "up ready" } else { "ready" })?;
                weight.map_or(Ok(()), |weight| write!(f, " {weight}"))
            }
            Self::Drain => f.write_str("drain"),
            Self::Maint => f.write_str("maint"),
            Self::Keep => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AdminState;

    #[test]
    fn every_answer_is_read_back_by_haproxy_as_meant() {
        let quarter = Percent::new(25);
        for (answer, line, admin, weight, health) in [
            (
                Answer::READY,
                "ready 100%\n",
                Some(AdminState::Ready),
                Percent::new(100),
                None,
            ),
            (
                Answer::Ready {
                    weight: quarter,
                    up: false,
                },
                "ready 25%\n",
                Some(AdminState::Ready),
                quarter,
                None,
            ),
            (
                Answer::Ready {
                    weight: quarter,
                    up: true,
                },
                "up ready 25%\n",
                Some(AdminState::Ready),
                quarter,
                Some(Health::Up),
            ),
            (
                Answer::Ready {
                    weight: None,
                    up: false,
                },
                "ready\n",
                Some(AdminState::Ready),
                None,
                None,
            ),
            (
                Answer::Drain,
                "drain\n",
                Some(AdminState::Drain),
                None,
                None,
            ),
            (
                Answer::Maint,
                "maint\n",
                Some(AdminState::Maint),
                None,
                None,
            ),
            (Answer::Keep, "\n", None, None, None),
        ] {
            assert_eq!(answer.line(), line);
            let reading = read_as_haproxy(line.as_bytes()).unwrap();
            assert_eq!(
                (reading.admin, reading.weight, reading.health.clone()),
                (admin, weight, health),
                "{answer:?}"
            );
            assert_eq!(
                (reading.maxconn, reading.unknown),
                (None, None),
                "{answer:?}"
            );
        }
    }
}
