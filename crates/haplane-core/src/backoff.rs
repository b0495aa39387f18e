//! How long to wait after a failure: doubling, capped, with full jitter.
//!
//! Arithmetic only; the caller brings the randomness and does the waiting.

use std::time::Duration;

/// Waits that double from `base` up to `cap`; each is then drawn between the `floor` and itself, so
/// that a fleet that lost its store together does not come back together.
#[derive(Clone, Debug)]
pub struct Backoff {
    floor: Duration,
    base: Duration,
    cap: Duration,
    failures: u32,
}

impl Backoff {
    /// A backoff with these bounds, raised where needed so that `floor <= base <= cap`.
    pub fn new(floor: Duration, base: Duration, cap: Duration) -> Self {
        let cap = cap.max(floor);
        Self {
            floor,
            base: base.clamp(floor, cap),
            cap,
            failures: 0,
        }
    }

    /// The peer was reached: the next failure starts from the beginning. To be called on contact,
    /// not on change: a quiet store is not a failing one.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// The wait after one more failure. `random` is a number from 0 to 1.
    pub fn next_wait(&mut self, random: f64) -> Duration {
        let doubled = self.base.saturating_mul(2u32.saturating_pow(self.failures));
        let ceiling = doubled.min(self.cap);
        self.failures = self.failures.saturating_add(1);
        let spread = ceiling.saturating_sub(self.floor);
        self.floor + spread.mul_f64(random.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn doubles_up_to_the_cap_and_starts_over_on_contact() {
        let mut backoff = Backoff::new(MS(100), MS(200), MS(2_000));
        let waits: Vec<_> = (0..6).map(|_| backoff.next_wait(1.0)).collect();
        assert_eq!(
            waits,
            [MS(200), MS(400), MS(800), MS(1_600), MS(2_000), MS(2_000)]
        );
        backoff.reset();
        assert_eq!(backoff.next_wait(1.0), MS(200));
    }

    #[test]
    fn never_below_the_floor_nor_above_the_cap() {
        let mut backoff = Backoff::new(MS(100), MS(200), MS(2_000));
        for n in 0..200u32 {
            let random = f64::from(n % 7) / 3.0 - 0.5;
            let wait = backoff.next_wait(random);
            assert!(wait >= MS(100) && wait <= MS(2_000), "{wait:?}");
        }
    }
}
