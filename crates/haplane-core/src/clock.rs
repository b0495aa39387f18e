//! Clocks that disagree. Each agent judges an `until=` by its own host's clock, so who writes one has to know when
//! theirs is another.

use jiff::{SignedDuration, Timestamp};

/// How far off a clock may be before it is mentioned: hosts that keep time at all are closer.
const NEAR: SignedDuration = SignedDuration::from_secs(5);

/// How far another host's clock is ahead of ours, negative when it is behind: their time, read somewhen between two
/// of our times. `None` when it may well be the same time.
pub fn ahead(theirs: Timestamp, asked: Timestamp, answered: Timestamp) -> Option<SignedDuration> {
    let nearest = theirs.clamp(asked, answered.max(asked));
    let ahead = theirs.duration_since(nearest);
    (ahead.abs() > NEAR).then_some(ahead)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_certain_of_a_difference_counts() {
        let at = |seconds: i64| Timestamp::from_second(1_800_000_000 + seconds).unwrap();
        for (theirs, certain) in [
            (-5, None),
            (0, None),
            (3, None),
            (7, None),
            (12, None),
            (-6, Some(-6)),
            (-7_500, Some(-7_500)),
            (14, Some(7)),
        ] {
            let found = ahead(at(theirs), at(0), at(7));
            assert_eq!(found, certain.map(SignedDuration::from_secs), "{theirs}");
        }
        // Our own clock was set back meanwhile.
        assert_eq!(ahead(at(9), at(7), at(0)), None);
    }
}
