//! Changes from outside that are put right again and again: one is a person, many are a second synchroniser, a script, or a
//! person whom nobody told that it is of no use.

use std::collections::VecDeque;
use std::time::Duration;

use haplane_core::slots::Moment;

/// So many rounds within this time that put something right are no coincidence.
const OFTEN: usize = 5;
const WINDOW: Duration = Duration::from_mins(10);

/// When something was put right in a pool's slots of one process.
#[derive(Debug, Default)]
pub struct Repairs {
    rounds: VecDeque<Moment>,
}

impl Repairs {
    /// A round put something right.
    pub fn note(&mut self, now: Moment) {
        self.forget(now);
        // More than are needed to tell how often it is would only grow.
        if self.rounds.len() == OFTEN * 20 {
            self.rounds.pop_front();
        }
        self.rounds.push_back(now);
    }

    /// In how many rounds of late, once that is often.
    pub fn often(&mut self, now: Moment) -> Option<usize> {
        self.forget(now);
        Some(self.rounds.len()).filter(|rounds| *rounds >= OFTEN)
    }

    fn forget(&mut self, now: Moment) {
        while self
            .rounds
            .front()
            .is_some_and(|at| now.since(*at) > WINDOW)
        {
            self.rounds.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn often_is_five_times_within_ten_minutes() {
        let at = |seconds| Moment(Duration::from_secs(seconds));
        let mut repairs = Repairs::default();
        for minute in 0..20 {
            repairs.note(at(minute * 180));
            assert_eq!(repairs.often(at(minute * 180)), None);
        }
        let mut repairs = Repairs::default();
        for second in 1..=200 {
            repairs.note(at(second));
            let expected = usize::try_from(second).unwrap().min(100);
            assert_eq!(
                repairs.often(at(second)),
                Some(expected).filter(|rounds| *rounds >= 5)
            );
        }
        assert_eq!(repairs.often(at(900)), None);
    }
}
