//! The agent's metrics. Their names are contracts; a row's name is never a label.

use std::time::Duration;

use haplane_core::guard;
use haplane_core::resolve::{AnswerKind, Decision};
use haplane_core::snapshot::Snapshot;
use haplane_core::verdict::Verdict;
use haplane_daemon::metrics::{Panel, Seconds};
use haplane_store::StoreErrorKind;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::observer::push::Pushed;
use crate::responder::Refused;
use crate::rows::Remembered;
use crate::watcher::Keeping;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Value {
    value: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnswerLabel {
    answer: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerdictLabel {
    verdict: &'static str,
}

/// As many as there are in the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SocketLabel {
    socket: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PushResult {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Stage {
    stage: &'static str,
}

/// Every counter and gauge of the agent.
#[derive(Debug)]
pub struct Metrics {
    store_index: Gauge,
    store_last_contact: Seconds,
    store_last_change: Seconds,
    store_errors: Family<Kind, Counter>,
    store_restores: Counter,
    guard_active: Family<Reason, Gauge>,
    keys: Family<Value, Gauge>,
    invalid_values: Gauge,
    forgotten_drains: Gauge,
    answers: Family<AnswerLabel, Counter>,
    refused: Family<Reason, Counter>,
    unterminated: Counter,
    answer_seconds: Histogram,
    rows: Family<VerdictLabel, Gauge>,
    rows_not_enrolled: Gauge,
    rows_without_place: Counter,
    propagation: Family<Stage, Histogram, fn() -> Histogram>,
    haproxy_up: Family<SocketLabel, Gauge>,
    haproxy_restarts: Counter,
    pushes: Family<PushResult, Counter>,
    last_good: Family<Reason, Gauge>,
}

/// From 1 ms to about 16 s, doubling: HAProxy's own interval lies in the middle.
fn propagation_buckets() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 15))
}

impl Metrics {
    /// Makes all metrics and registers them.
    pub fn register(registry: &mut Registry) -> Self {
        let mut panel = Panel::new(registry);
        let metrics = Self {
            store_index: panel.plain("haplane_store_index", "Index of the snapshot in force"),
            store_last_contact: panel.seconds(
                "haplane_store_last_contact_timestamp",
                "When the store was last reached and trusted",
            ),
            store_last_change: panel.seconds(
                "haplane_store_last_change_timestamp",
                "When the snapshot last changed",
            ),
            store_errors: panel.plain("haplane_store_errors", "Reads of the store that failed"),
            store_restores: panel.plain(
                "haplane_store_restores_seen",
                "Snapshots accepted at a lower index or from a newly initialised store",
            ),
            guard_active: panel.plain(
                "haplane_store_guard_active",
                "1 while reads of the store are refused for this reason",
            ),
            keys: panel.plain("haplane_keys", "Keys with a valid value"),
            invalid_values: panel.plain(
                "haplane_invalid_values",
                "Keys whose text is not a value; they count as absent",
            ),
            forgotten_drains: panel.plain(
                "haplane_forgotten_drains",
                "Keys that have kept rows out of rotation for longer than forgotten_after",
            ),
            answers: panel.plain("haplane_answers", "Lines answered"),
            refused: panel.plain(
                "haplane_refused",
                "Connections closed without an answer, which changes nothing in HAProxy",
            ),
            unterminated: panel.plain(
                "haplane_unterminated_lines",
                "Lines that came without their line feed and cost 10 ms each",
            ),
            answer_seconds: panel.timed(
                "haplane_answer",
                "Time from an accepted connection to its answer",
                Histogram::new(exponential_buckets(0.000_05, 2.0, 15)),
            ),
            rows: panel.plain(
                "haplane_rows",
                "Rows by verdict: those that asked lately, and those enrolled that never did",
            ),
            rows_not_enrolled: panel.plain(
                "haplane_rows_not_enrolled",
                "Rows that HAProxy has without agent-check: no write reaches them",
            ),
            rows_without_place: panel.plain(
                "haplane_rows_without_place",
                "Asks that were answered but not remembered, because too many rows ask",
            ),
            propagation: panel.timed(
                "haplane_propagation",
                "Time from a change seen in the store to its first answer to a row, or to its \
             observation in HAProxy",
                Family::new_with_constructor(propagation_buckets),
            ),
            haproxy_up: panel.plain(
                "haplane_haproxy_up",
                "1 while HAProxy answers on this socket; no series without a socket",
            ),
            haproxy_restarts: panel.plain(
                "haplane_haproxy_restarts_seen",
                "Starts and reloads of HAProxy, seen as a new process behind a socket",
            ),
            pushes: panel.plain(
                "haplane_push",
                "Rows set through a socket ahead of their next ask",
            ),
            last_good: panel.plain(
                "haplane_last_good_failing",
                "1 while the last good snapshot cannot be kept: no file is left, or an old one stands",
            ),
        };
        metrics.make_closed_sets();
        metrics
    }

    /// An alert must be able to tell a series at zero from one that is missing.
    fn make_closed_sets(&self) {
        for kind in StoreErrorKind::ALL {
            drop(self.store_errors.get_or_create(&Kind {
                kind: kind.as_str(),
            }));
        }
        for reason in guard::Refusal::ALL {
            drop(self.guard_active.get_or_create(&Reason {
                reason: reason.as_str(),
            }));
        }
        for answer in AnswerKind::ALL {
            drop(self.answers.get_or_create(&AnswerLabel {
                answer: answer.as_str(),
            }));
        }
        for value in ["ready", "drain", "maint", "weight"] {
            drop(self.keys.get_or_create(&Value { value }));
        }
        for stage in ["answered", "observed"] {
            drop(self.propagation.get_or_create(&Stage { stage }));
        }
        for verdict in Verdict::ALL {
            let verdict = verdict.as_str();
            drop(self.rows.get_or_create(&VerdictLabel { verdict }));
        }
        for pushed in Pushed::ALL {
            let result = pushed.as_str();
            drop(self.pushes.get_or_create(&PushResult { result }));
        }
        for refused in Refused::all() {
            let reason = refused.as_str();
            drop(self.refused.get_or_create(&Reason { reason }));
        }
        self.last_good(Keeping::Kept);
    }

    pub(crate) fn refused(&self, refused: Refused) {
        let reason = refused.as_str();
        self.refused.get_or_create(&Reason { reason }).inc();
    }

    pub(crate) fn unterminated(&self) {
        self.unterminated.inc();
    }

    pub(crate) fn answer_took(&self, took: Duration) {
        self.answer_seconds.observe(took.as_secs_f64());
    }

    pub(crate) fn answered(&self, decision: &Decision, remembered: &Remembered) {
        self.answers
            .get_or_create(&AnswerLabel {
                answer: decision.kind.as_str(),
            })
            .inc();
        match remembered {
            Remembered::AsBefore => {}
            Remembered::Changed(since) => {
                let stage = Stage { stage: "answered" };
                self.propagation
                    .get_or_create(&stage)
                    .observe(since.as_secs_f64());
            }
            Remembered::NoPlace => {
                self.rows_without_place.inc();
            }
        }
    }

    pub(crate) fn store_failed(&self, kind: StoreErrorKind) {
        self.store_errors
            .get_or_create(&Kind {
                kind: kind.as_str(),
            })
            .inc();
    }

    pub(crate) fn store_contact(&self, at: jiff::Timestamp) {
        self.store_last_contact.set(seconds(at));
    }

    pub(crate) fn store_restored(&self) {
        self.store_restores.inc();
    }

    /// Says which reason reads are refused for, if they are.
    pub(crate) fn guard(&self, active: Option<guard::Refusal>) {
        for reason in guard::Refusal::ALL {
            let gauge = self.guard_active.get_or_create(&Reason {
                reason: reason.as_str(),
            });
            gauge.set(i64::from(active == Some(reason)));
        }
    }

    /// How it stands with the file of the last good snapshot.
    pub(crate) fn last_good(&self, keeping: Keeping) {
        for failure in Keeping::FAILURES {
            let reason = failure.as_str();
            self.last_good
                .get_or_create(&Reason { reason })
                .set(i64::from(failure == keeping));
        }
    }

    pub(crate) fn snapshot(&self, snapshot: &Snapshot, at: jiff::Timestamp) {
        self.store_index
            .set(i64::try_from(snapshot.index).unwrap_or(i64::MAX));
        self.store_last_change.set(seconds(at));
        self.invalid_values.set(count(snapshot.invalid().len()));
    }

    /// How many keys want what at this time: one whose end has come counts as absent.
    pub(crate) fn keys(&self, snapshot: &Snapshot, now: jiff::Timestamp) {
        let counts = snapshot.counts(now);
        for (value, keys) in [
            ("ready", counts.ready),
            ("drain", counts.drain),
            ("maint", counts.maint),
            ("weight", counts.weight),
        ] {
            self.keys.get_or_create(&Value { value }).set(count(keys));
        }
    }

    /// How many drains are older than they should be.
    pub(crate) fn forgotten_drains(&self, keys: usize) {
        self.forgotten_drains.set(count(keys));
    }

    /// How many rows have which verdict, and how many no verdict because they are not enrolled.
    pub(crate) fn verdicts(&self, verdicts: &[(Verdict, usize)], not_enrolled: usize) {
        for &(verdict, rows) in verdicts {
            let verdict = verdict.as_str();
            self.rows
                .get_or_create(&VerdictLabel { verdict })
                .set(count(rows));
        }
        self.rows_not_enrolled.set(count(not_enrolled));
    }

    /// Whether HAProxy answers on this socket.
    pub(crate) fn haproxy_up(&self, socket: &str, up: bool) {
        let socket = socket.to_owned();
        self.haproxy_up
            .get_or_create(&SocketLabel { socket })
            .set(i64::from(up));
    }

    pub(crate) fn haproxy_restarted(&self) {
        self.haproxy_restarts.inc();
    }

    pub(crate) fn pushed(&self, result: Pushed) {
        let result = result.as_str();
        self.pushes.get_or_create(&PushResult { result }).inc();
    }

    /// A change of the store was first seen in HAProxy after this long.
    pub(crate) fn observed_after(&self, took: Duration) {
        let stage = Stage { stage: "observed" };
        self.propagation
            .get_or_create(&stage)
            .observe(took.as_secs_f64());
    }
}

fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "milliseconds since 1970 fit a double"
)]
fn seconds(at: jiff::Timestamp) -> f64 {
    at.as_millisecond() as f64 / 1_000.0
}
