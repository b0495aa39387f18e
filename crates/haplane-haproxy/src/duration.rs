//! HAProxy's way to write durations: a whole number and a unit, `2s`, `500ms`, `10`.

use std::time::Duration;

/// Why a text is not a duration to HAProxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// Not a whole number with a unit.
    #[error("a duration is a whole number and us, ms, s, m, h or d (configuration manual 2.5)")]
    Form,
    /// Beyond what HAProxy's timers hold (2^31 milliseconds, some 24 days).
    #[error("HAProxy's timers end at 24 days")]
    Range,
}

/// The longest duration that HAProxy takes.
const LONGEST: Duration = Duration::from_millis(0x7fff_ffff);

/// Reads a duration whose unit, when none is written, is the millisecond; HAProxy rounds up to whole milliseconds.
///
/// # Errors
///
/// When HAProxy would refuse the text.
pub fn parse_millis(text: &str) -> Result<Duration, DurationError> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    if digits.is_empty() {
        return Err(DurationError::Form);
    }
    let number: u64 = digits.parse().map_err(|_| DurationError::Range)?;
    let millis = match unit {
        "us" => Some(number.div_ceil(1000)),
        "" | "ms" => Some(number),
        "s" => number.checked_mul(1000),
        "m" => number.checked_mul(60_000),
        "h" => number.checked_mul(3_600_000),
        "d" => number.checked_mul(86_400_000),
        _ => return Err(DurationError::Form),
    };
    let duration = Duration::from_millis(millis.ok_or(DurationError::Range)?);
    if duration > LONGEST {
        Err(DurationError::Range)
    } else {
        Ok(duration)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, millis) in [
            ("2s", 2000),
            ("500", 500),
            ("500ms", 500),
            ("1m", 60_000),
            ("1h", 3_600_000),
            ("1d", 86_400_000),
            ("1us", 1),
            ("0", 0),
        ] {
            assert_eq!(
                parse_millis(text),
                Ok(Duration::from_millis(millis)),
                "{text}"
            );
        }
        for text in ["", "s", "1.5s", "-1", "2 s", "2sec", "1S"] {
            assert_eq!(parse_millis(text), Err(DurationError::Form), "{text}");
        }
        for text in ["25d", "99999999999999999999", "2147483648"] {
            assert_eq!(parse_millis(text), Err(DurationError::Range), "{text}");
        }
    }
}
