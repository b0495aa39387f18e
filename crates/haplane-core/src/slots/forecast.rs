//! When will a pool be full? The trend of its instances against its slots.

use std::collections::VecDeque;
use std::time::Duration;

use super::model::Moment;

/// One sample a minute at most, an hour back.
const SPACING: Duration = Duration::from_mins(1);
const KEPT: usize = 60;
/// A trend over less than this is noise.
const SHORTEST: Duration = Duration::from_mins(5);

/// The number of a pool's instances over the last hour.
#[derive(Clone, Debug, Default)]
pub struct Trend {
    samples: VecDeque<(Moment, usize)>,
}

impl Trend {
    /// Notes how many instances there are now.
    pub fn note(&mut self, instances: usize, now: Moment) {
        match self.samples.back() {
            Some((last, _)) if now.since(*last) < SPACING => return,
            _ => {}
        }
        if self.samples.len() == KEPT {
            self.samples.pop_front();
        }
        self.samples.push_back((now, instances));
    }

    /// How long until `slots` are full if the trend goes on: zero when they are already, none when there is no
    /// growth.
    pub fn time_to_full(&self, slots: usize, now: Moment) -> Option<Duration> {
        let (last, instances) = *self.samples.back()?;
        if instances >= slots {
            return Some(Duration::ZERO);
        }
        let growth = self.growth_per_second()?;
        let room = count(slots - instances);
        let wait = Duration::try_from_secs_f64(room / growth).ok()?;
        Some(wait.saturating_sub(now.since(last)))
    }

    /// Instances a second by least squares; none unless it grows.
    fn growth_per_second(&self) -> Option<f64> {
        let (first, _) = *self.samples.front()?;
        let (last, _) = *self.samples.back()?;
        if last.since(first) < SHORTEST {
            return None;
        }
        let n = count(self.samples.len());
        let points = || {
            self.samples
                .iter()
                .map(|(at, value)| (at.since(first).as_secs_f64(), count(*value)))
        };
        let (mean_t, mean_v) = (
            points().map(|(t, _)| t).sum::<f64>() / n,
            points().map(|(_, v)| v).sum::<f64>() / n,
        );
        let covariance: f64 = points().map(|(t, v)| (t - mean_t) * (v - mean_v)).sum();
        let variance: f64 = points().map(|(t, _)| (t - mean_t).powi(2)).sum();
        let slope = covariance / variance;
        // Less than one instance in a day is not growth.
        (slope > 1.0 / 86_400.0).then_some(slope)
    }
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: u64) -> Moment {
        Moment(Duration::from_secs(minutes * 60))
    }

    #[test]
    fn a_steady_growth_is_carried_on() {
        let mut trend = Trend::default();
        for minute in 0..10 {
            trend.note(40 + minute * 2, at(minute as u64));
        }
        // 58 of 100, two a minute.
        assert_eq!(
            trend
                .time_to_full(100, at(9))
                .map(|time| time.as_secs().div_ceil(60)),
            Some(21)
        );
        assert_eq!(trend.time_to_full(58, at(9)), Some(Duration::ZERO));
    }

    #[test]
    fn no_growth_no_forecast() {
        let mut trend = Trend::default();
        assert_eq!(trend.time_to_full(10, at(0)), None);
        for minute in 0..10 {
            trend.note(8, at(minute));
        }
        assert_eq!(trend.time_to_full(10, at(9)), None);
        let mut short = Trend::default();
        short.note(1, at(0));
        short.note(9, at(1));
        assert_eq!(short.time_to_full(10, at(1)), None);
    }
}
