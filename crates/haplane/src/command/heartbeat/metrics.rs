//! The heartbeat's metrics. Their names are contracts.

use std::time::Duration;

use haplane_daemon::metrics::{Panel, Seconds};
use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// How a beat ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Every HAProxy has followed.
    Proven,
    /// Not all have, in time.
    Late,
    /// It could not even be written.
    Failed,
}

impl Outcome {
    const ALL: [Self; 3] = [Self::Proven, Self::Late, Self::Failed];

    fn label(self) -> Result {
        Result {
            result: match self {
                Self::Proven => "ok",
                Self::Late => "late",
                Self::Failed => "failed",
            },
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Result {
    result: &'static str,
}

#[derive(Debug)]
pub(super) struct Metrics {
    last_success: Seconds,
    beats: Family<Result, Counter>,
    seconds: Histogram,
}

impl Metrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let mut panel = Panel::new(registry);
        let metrics = Self {
            last_success: panel.seconds(
                "haplane_heartbeat_last_success_timestamp",
                "When the whole way from a write to every HAProxy was last proven; 0 is never",
            ),
            beats: panel.plain("haplane_heartbeats", "Beats, by how they ended"),
            seconds: panel.timed(
                "haplane_heartbeat",
                "Time from a write to the proof that every HAProxy has followed",
                Histogram::new(exponential_buckets(0.05, 2.0, 11)),
            ),
        };
        for outcome in Outcome::ALL {
            drop(metrics.beats.get_or_create(&outcome.label()));
        }
        metrics
    }

    pub(super) fn beat(&self, outcome: Outcome) {
        self.beats.get_or_create(&outcome.label()).inc();
    }

    pub(super) fn way(&self, took: Duration) {
        self.seconds.observe(took.as_secs_f64());
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "milliseconds since 1970 fit a double"
    )]
    pub(super) fn proven(&self, at: Timestamp) {
        self.last_success.set(at.as_millisecond() as f64 / 1_000.0);
    }
}
