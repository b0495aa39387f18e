//! Spans of time for people: `3h 12m`.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// The two largest units between two times; nothing negative.
pub fn between(earlier: Timestamp, later: Timestamp) -> String {
    let span = later.duration_since(earlier);
    span_of(Duration::try_from(span).unwrap_or(Duration::ZERO))
}

/// The two largest units of a duration.
pub fn span_of(duration: Duration) -> String {
    const UNITS: [(&str, u64); 4] = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];
    let mut rest = duration.as_secs();
    let mut parts = Vec::new();
    for (unit, seconds) in UNITS {
        let count = rest / seconds;
        rest %= seconds;
        if count > 0 || !parts.is_empty() {
            parts.push((count, unit));
        }
    }
    parts.truncate(2);
    parts.retain(|(count, _)| *count > 0);
    match parts.as_slice() {
        [] => "0s".to_owned(),
        parts => {
            let texts: Vec<String> = parts.iter().map(|(n, unit)| format!("{n}{unit}")).collect();
            texts.join(" ")
        }
    }
}

/// How far another host's clock is ahead, negative when it is behind: `its clock is 2h 5m behind this host's`.
pub fn clock_is(ahead: SignedDuration) -> String {
    let side = if ahead.is_negative() {
        "behind"
    } else {
        "ahead of"
    };
    let by = span_of(ahead.unsigned_abs());
    format!("its clock is {by} {side} this host's")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_units_are_enough() {
        for (seconds, text) in [
            (0, "0s"),
            (59, "59s"),
            (60, "1m"),
            (3_723, "1h 2m"),
            (3_603, "1h"),
            (90_000, "1d 1h"),
        ] {
            assert_eq!(span_of(Duration::from_secs(seconds)), text);
        }
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let (a, b) = (at("2026-01-01T00:00:00Z"), at("2026-01-01T00:01:00Z"));
        assert_eq!(between(a, b), "1m");
        assert_eq!(between(b, a), "0s");
    }
}
