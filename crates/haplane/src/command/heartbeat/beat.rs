//! One beat: the row is drained and brought back, and both is proven. Whatever happens on the way there, the way back
//! is taken.

use std::time::Duration;

use haplane_core::Key;
use haplane_core::converge::Scope;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::values::{Back, Written};
use crate::cli::HeartbeatOptions;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::fleet::{Depth, Fleet};
use crate::report::{GOOD, Report};
use crate::session::Session;
use crate::wait::{Goal, Waited, wait};

/// Between two tries of the way back.
const RETRY: Duration = Duration::from_millis(500);
/// How long the way back is tried, and its proof waited for, when the command is to end or the way there was not proven.
const LAST_TRIES: Duration = Duration::from_secs(5);

/// What beats.
pub(super) struct Heart<'s> {
    pub(super) session: &'s Session,
    pub(super) options: &'s HeartbeatOptions,
    pub(super) key: Key,
    /// How long each way may take.
    pub(super) timeout: Duration,
    /// Ends the waiting, never the way back.
    pub(super) stop: CancellationToken,
}

/// How a beat ended that did not fail.
pub(super) enum Ended {
    /// Proven there and back.
    Proven(Beat),
    /// It was to end before it was proven.
    Stopped {
        /// How long its row stays ready by a value of its own, where the way back was not proven either.
        until: Option<Timestamp>,
    },
}

/// A beat that was proven.
pub(super) struct Beat {
    there: Waited,
    back: Waited,
}

/// The JSON: the way there as of any wait, and the way back beside it.
#[derive(Serialize)]
struct Told<'b> {
    #[serde(flatten)]
    there: &'b Waited,
    back: &'b Waited,
}

impl Beat {
    /// From each write to its proof.
    pub(super) fn ways(&self) -> [Duration; 2] {
        [&self.there, &self.back].map(|way| Duration::from_millis(way.elapsed_ms))
    }

    pub(super) fn report(&self) -> Report {
        let document = json!(Told {
            there: &self.there,
            back: &self.back,
        });
        let [there, back] = self.ways().map(|way| way.as_secs_f64());
        let nodes = self.back.nodes;
        Report::new(document).line(format!(
            "{GOOD}proven{GOOD:#}: drained in {there:.1} s, back in {back:.1} s: {}/{} load balancers",
            nodes.converged, nodes.total
        ))
    }
}

impl Heart<'_> {
    /// There and back.
    pub(super) async fn beat(&self) -> Result<Ended, Failure> {
        let snapshot = self.session.read().await?;
        let fleet = self.session.fleet(&self.options.fleet).await?;
        let fleet = fleet.following(&snapshot);
        self.is_mine(&fleet.ask(Depth::Rows).await)?;
        let begun = Instant::now();
        let drained = self.drain().await?;
        let way = (drained.index, begun, self.timeout);
        let there = self
            .stop
            .run_until_cancelled(self.prove(&fleet, way))
            .await
            .transpose();
        let begun = Instant::now();
        let Back { index, ours } = self.bring_back(&drained).await?;
        let patience = match &there {
            Ok(Some(_)) => self.timeout,
            Ok(None) | Err(_) => self.timeout.min(LAST_TRIES),
        };
        let back = tokio::select! {
            back = self.prove(&fleet, (index, begun, patience)) => Some(back),
            () = self.stopped_long_ago() => None,
        };
        let until = match (&back, ours) {
            // Not seen to be back, it stays told so, until that ends by itself or the next beat comes.
            (None | Some(Err(_)), Some(ready)) => Some(ready.until),
            (_, Some(ready)) => self.take_away(&ready).await,
            (_, None) => None,
        };
        match (
            there.map_err(|failure| self.stays_ready(failure, until))?,
            back,
        ) {
            (Some(there), Some(back)) => {
                let back = back.map_err(|failure| self.stays_ready(failure, until))?;
                Ok(Ended::Proven(Beat { there, back }))
            }
            _ => Ok(Ended::Stopped { until }),
        }
    }

    /// The way back, tried until it is done.
    async fn bring_back(&self, drained: &Written) -> Result<Back, Failure> {
        let begun = Instant::now();
        loop {
            let failure = match self.ready(drained).await {
                Ok(back) => return Ok(back),
                Err(failure) => failure,
            };
            let patience = if self.stop.is_cancelled() {
                self.timeout.min(LAST_TRIES)
            } else {
                self.timeout
            };
            if failure.exit == Exit::Refused || begun.elapsed() >= patience {
                let message = format!(
                    "{} stays drained until {}: {}",
                    self.key, drained.until, failure.message
                );
                return Err(Failure { message, ..failure });
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Once the row is back, its value is no longer needed; the time until which it stays, if it does.
    async fn take_away(&self, ready: &Written) -> Option<Timestamp> {
        let failure = self.delete(ready).await.err()?;
        let output = &self.session.output;
        output.warn(&format!(
            "{} stays set to ready until {}: {}",
            self.key, ready.until, failure.message
        ));
        Some(ready.until)
    }

    fn stays_ready(&self, failure: Failure, until: Option<Timestamp>) -> Failure {
        match until {
            None => failure,
            Some(until) => Failure {
                message: format!("{}; {}", failure.message, self.until_then(until)),
                ..failure
            },
        }
    }

    /// What becomes of a row whose way back was not seen.
    pub(super) fn until_then(&self, until: Timestamp) -> String {
        format!(
            "{} is ready until {until}, and then without a value again",
            self.key
        )
    }

    async fn stopped_long_ago(&self) {
        self.stop.cancelled().await;
        tokio::time::sleep(LAST_TRIES).await;
    }

    /// Waits for the proof that an index has arrived, measured from the beginning of its write.
    async fn prove(
        &self,
        fleet: &Fleet,
        (index, begun, timeout): (u64, Instant, Duration),
    ) -> Result<Waited, Failure> {
        let snapshot = self.session.read().await?;
        let goal = Goal {
            index,
            scope: Scope::Keys([self.key.clone()].into()),
            snapshot: &snapshot,
            timeout,
        };
        let mut waited = wait(fleet, &goal, &self.session.output, |_| {}).await;
        waited.elapsed_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        if waited.converged && waited.rows.total > 0 {
            return Ok(waited);
        }
        let message = if waited.converged {
            format!("no HAProxy asks for {} any more", self.key)
        } else {
            waited.summary()
        };
        let mut failure = Failure::new(Exit::NotConverged, message);
        failure.document = Some(json!(waited));
        Err(failure)
    }

    /// Somebody would not wait for the way back.
    pub(super) fn torn_off(&self, by: Exit) -> Failure {
        let message = format!(
            "{}: {} may stay drained until its time is over, {} at the latest; `haplane clear {}` frees it",
            by.word(),
            self.key,
            self.end(),
            self.key
        );
        Failure::new(by, message)
    }
}
