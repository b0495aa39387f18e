//! Durations as people write them: `500ms`, `2s`, `10m`, `2h`, `1d`.

use std::time::Duration;

/// Not a whole number with a unit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a duration: write a whole number with a unit, such as 500ms, 2s, 10m, 2h or 1d"
)]
pub struct DurationError(String);

/// The units, largest first, with their milliseconds.
const UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Reads one duration. A bare number is refused: `60` means seconds to one reader and milliseconds
/// to HAProxy.
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    let wrong = || DurationError(text.to_owned());
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits).ok_or_else(wrong)?;
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let (_, millis) = UNITS
        .iter()
        .find(|(name, _)| *name == unit)
        .ok_or_else(wrong)?;
    number
        .checked_mul(*millis)
        .map(Duration::from_millis)
        .ok_or_else(wrong)
}

/// The shortest text that [`parse`] reads back, to the millisecond.
pub fn print(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let exact = UNITS.iter().find(|(_, unit)| millis.is_multiple_of(*unit));
    match exact {
        Some((name, unit)) if millis > 0 => format!("{}{name}", millis / unit),
        _ => format!("{}s", millis / 1_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_required_and_understood() {
        for (text, millis) in [
            ("500ms", 500),
            ("2s", 2_000),
            ("10m", 600_000),
            ("2h", 7_200_000),
            ("1d", 86_400_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
            assert_eq!(print(Duration::from_millis(millis)), text);
        }
        for bad in [
            "",
            "60",
            "s",
            "-1s",
            "1.5s",
            "2 s",
            "2sec",
            "99999999999999999999s",
            "é",
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
        assert_eq!(print(Duration::from_secs(90)), "90s");
        assert_eq!(print(Duration::ZERO), "0s");
    }
}
