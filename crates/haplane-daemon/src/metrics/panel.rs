//! Metrics that are made and registered in one go, so that a field and its public name stand together.

use std::fmt::Debug;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeMetric;
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

/// A gauge of seconds, with fractions.
pub type Seconds = Gauge<f64, AtomicU64>;

/// What can stand on the metrics page.
pub trait Metric: EncodeMetric + TypedMetric + Clone + Debug + Send + Sync + 'static {}
impl<M: EncodeMetric + TypedMetric + Clone + Debug + Send + Sync + 'static> Metric for M {}

/// One part's corner of the metrics page.
#[derive(Debug)]
pub struct Panel<'a> {
    registry: &'a mut Registry,
}

impl<'a> Panel<'a> {
    /// Everything made here is registered with `registry`. A counter's name gets its `_total` there.
    pub fn new(registry: &'a mut Registry) -> Self {
        Self { registry }
    }

    /// A metric without a unit.
    pub fn plain<M: Metric + Default>(&mut self, name: &str, help: &str) -> M {
        let metric = M::default();
        self.registry.register(name, help, metric.clone());
        metric
    }

    /// A metric in seconds; its name gets `_seconds`.
    pub fn seconds<M: Metric + Default>(&mut self, name: &str, help: &str) -> M {
        self.timed(name, help, M::default())
    }

    /// The same for a metric that needs more than its name, as a histogram needs its buckets.
    pub fn timed<M: Metric>(&mut self, name: &str, help: &str, metric: M) -> M {
        self.registry
            .register_with_unit(name, help, Unit::Seconds, metric.clone());
        metric
    }
}
