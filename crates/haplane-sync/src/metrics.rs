//! The synchroniser's metrics. Their names are contracts; labels come from closed sets and from the configuration.

use std::time::Duration;

use haplane_core::slots::hold::HeldReason;
use haplane_core::slots::{Moment, Stage};
use haplane_daemon::metrics::{Panel, Seconds};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::board::Board;
use crate::process::Taken;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolLabel {
    pool: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    pool: String,
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    pool: String,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StepLabel {
    pool: String,
    kind: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SocketLabel {
    socket: String,
}

/// Every counter and gauge of the synchroniser.
#[derive(Debug)]
pub struct Metrics {
    slots: Family<StateLabel, Gauge>,
    instances: Family<PoolLabel, Gauge>,
    homeless: Family<PoolLabel, Gauge>,
    damped: Family<PoolLabel, Gauge>,
    failing: Family<PoolLabel, Gauge>,
    refused_lines: Family<PoolLabel, Gauge>,
    by_hand: Family<PoolLabel, Gauge>,
    contested: Family<PoolLabel, Gauge>,
    held: Family<ReasonLabel, Gauge>,
    last_success: Family<PoolLabel, Seconds>,
    time_to_full: Family<PoolLabel, Seconds>,
    source_failures: Family<ReasonLabel, Gauge>,
    heartbeat: Seconds,
    haproxy_up: Family<SocketLabel, Gauge>,
    restarts: Family<SocketLabel, Gauge>,
    steps: Family<StepLabel, Counter>,
    apply: Histogram,
    propagation: Histogram,
}

impl Metrics {
    /// Registers them all.
    pub fn register(registry: &mut Registry) -> Self {
        let mut panel = Panel::new(registry.sub_registry_with_prefix("haplane_sync"));
        Self {
            slots: panel.plain("slots", "Slots by where they are in their life, over all processes"),
            instances: panel.plain("instances", "Instances that the source lists"),
            homeless: panel.plain("homeless", "Instances without a slot, in the process with the most of them"),
            damped: panel.plain("damped", "Instances that wait because they come and go too often"),
            failing: panel.plain("failing", "Instances whose server HAProxy would not take, tried again, in the process with the most of them"),
            refused_lines: panel.plain("refused_lines", "Lines or entries of the source that are no instances"),
            by_hand: panel.plain("by_hand", "Slots that somebody changed by hand and that are left as they are"),
            contested: panel.plain("contested", "Rounds of the last ten minutes that put right what was changed from outside, once they are five, in the process with the most of them"),
            held: panel.plain("held", "1 while the source's list is not acted on as it is"),
            last_success: panel.seconds("last_success_timestamp", "When the pool was last in line in every process"),
            time_to_full: panel.seconds("time_to_full", "When the slots run out at the growth of the last hour; absent without growth"),
            source_failures: panel.plain("source_failures", "Reads of the source that brought no list since the start"),
            heartbeat: panel.seconds("heartbeat_timestamp", "When all loops were last seen to turn; it stops when one of them, or this measurement, does"),
            haproxy_up: panel.plain("haproxy_up", "1 while the process answers"),
            restarts: panel.plain("haproxy_restarts_seen", "Restarts and reloads seen since the start"),
            steps: panel.plain("steps", "Steps taken"),
            apply: panel.timed("apply", "How long the steps of one round took", Histogram::new(exponential_buckets(0.001, 2.0, 14))),
            propagation: panel.timed("propagation", "From a change of the list to all of it applied and read back", Histogram::new(exponential_buckets(0.001, 2.0, 16))),
        }
    }

    /// Counts the steps of one round.
    pub fn count(&self, pool: &str, taken: &[Taken], took: Duration) {
        for taken in taken {
            let result = if taken.trouble.is_none() {
                "ok"
            } else {
                "failed"
            };
            let kind = taken.planned.step.kind.as_str();
            self.steps
                .get_or_create(&StepLabel {
                    pool: pool.to_owned(),
                    kind,
                    result,
                })
                .inc();
        }
        if !taken.is_empty() {
            self.apply.observe(took.as_secs_f64());
        }
    }

    /// A change of the list has arrived everywhere in one process.
    pub fn propagated(&self, took: Duration) {
        self.propagation.observe(took.as_secs_f64());
    }

    /// Shows what the board knows now.
    pub fn show(&self, board: &Board) {
        if board.stuck().is_empty() {
            self.heartbeat.set(seconds(board, board.clock.now()));
        }
        let processes = board.processes();
        for (path, process) in &processes {
            let label = SocketLabel {
                socket: path.to_string(),
            };
            self.haproxy_up
                .get_or_create(&label)
                .set(i64::from(process.pid.is_some()));
            self.restarts
                .get_or_create(&label)
                .set(i64::try_from(process.restarts).unwrap_or(i64::MAX));
        }
        for pool in &board.pools {
            let name = pool.settings.name.clone();
            let label = PoolLabel { pool: name.clone() };
            let statuses: Vec<_> = processes
                .values()
                .filter_map(|process| process.pools.get(&name))
                .collect();
            let most = |count: fn(&crate::board::PoolStatus) -> usize| {
                number(
                    statuses
                        .iter()
                        .map(|status| count(status))
                        .max()
                        .unwrap_or_default(),
                )
            };
            for stage in Stage::ALL {
                let label = StateLabel {
                    pool: name.clone(),
                    state: stage.as_str(),
                };
                let count = statuses
                    .iter()
                    .map(|status| status.stages().get(&stage).copied().unwrap_or_default())
                    .sum();
                self.slots.get_or_create(&label).set(number(count));
            }
            let standing = pool.standing();
            self.instances
                .get_or_create(&label)
                .set(number(standing.instances));
            self.homeless
                .get_or_create(&label)
                .set(most(|status| status.homeless.len()));
            self.damped
                .get_or_create(&label)
                .set(most(|status| status.damped.len()));
            self.failing
                .get_or_create(&label)
                .set(most(|status| status.failing.len()));
            self.by_hand
                .get_or_create(&label)
                .set(most(|status| status.by_hand.len()));
            self.contested
                .get_or_create(&label)
                .set(most(|status| status.contested.unwrap_or_default()));
            self.refused_lines
                .get_or_create(&label)
                .set(number(standing.refused.len()));
            for reason in HeldReason::ALL {
                let is = standing
                    .held
                    .as_ref()
                    .is_some_and(|held| held.reason == reason);
                let label = ReasonLabel {
                    pool: name.clone(),
                    reason: reason.as_str(),
                };
                self.held.get_or_create(&label).set(i64::from(is));
            }
            for (reason, count) in standing.failures {
                let label = ReasonLabel {
                    pool: name.clone(),
                    reason,
                };
                self.source_failures
                    .get_or_create(&label)
                    .set(i64::try_from(count).unwrap_or(i64::MAX));
            }
            let last = board
                .last_success(&name)
                .map_or(0.0, |at| seconds(board, at));
            self.last_success.get_or_create(&label).set(last);
            let slots = statuses
                .iter()
                .map(|status| status.slots.len())
                .min()
                .unwrap_or_default();
            match pool.time_to_full(slots, board.clock.now()) {
                Some(time) => {
                    self.time_to_full
                        .get_or_create(&label)
                        .set(time.as_secs_f64());
                }
                None => {
                    self.time_to_full.remove(&label);
                }
            }
        }
    }
}

fn seconds(board: &Board, at: Moment) -> f64 {
    board.clock.wall(at).as_duration().as_secs_f64()
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
