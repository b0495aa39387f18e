//! What a write is refused for: too little would stay in rotation.

use haplane_core::floor::Share;
use haplane_core::sweep::sweep;
use haplane_haproxy::Percent;

use super::{Outcome, Writer};
use crate::failure::Failure;
use crate::fleet::Missing;
use crate::write::{Wanted, Written};

impl Writer<'_> {
    /// `--min-ready`: a change must not leave too little of a backend.
    pub(super) fn keep_the_floor(&self, outcome: &Outcome) -> Result<(), Failure> {
        let Some(floor) = self
            .options
            .min_ready
            .filter(|floor| floor.get() > 0 && !self.options.force_below_floor)
        else {
            return Ok(());
        };
        if self.knowledge.census.nodes.is_empty() {
            return Err(Failure::refused(
                "--min-ready: no agent can say what stays in rotation; nothing was written \
                 (--force-below-floor writes all the same)",
            ));
        }
        let absent = &self.knowledge.census.absent;
        if !absent.is_empty() {
            let unknown: Vec<String> = absent
                .iter()
                .map(Missing::absentee)
                .map(|one| format!("{}: {}", one.node, one.why))
                .collect();
            let message = format!(
                "--min-ready: nobody can say what stays in rotation on every load balancer; nothing was written \
                 (`haplane forget NODE` if it is gone for good, --force-below-floor writes all the same)\n  {}",
                unknown.join("\n  ")
            );
            return Err(self.refused(message, outcome));
        }
        let floor = u64::from(Percent::get(floor));
        let below = outcome
            .shares
            .iter()
            .filter(|share| share.falls_below(floor));
        let below: Vec<String> = below.map(Share::to_string).collect();
        if below.is_empty() {
            return Ok(());
        }
        let message = format!(
            "this would leave less than {floor}% in rotation; nothing was written \
             (--force-below-floor writes all the same): {}",
            below.join(", ")
        );
        Err(self.refused(message, outcome))
    }

    /// Without a floor: a glob or a zone must not take out all there is. Who names a key, or says how little may
    /// stay, means it.
    pub(super) fn refuse_a_sweep(
        &self,
        wanted: &[Wanted],
        outcome: &Outcome,
    ) -> Result<(), Failure> {
        let options = self.options;
        if !self.is_pattern || options.min_ready.is_some() || options.force_below_floor {
            return Ok(());
        }
        let (before, after) = self.outlooks(wanted);
        match sweep(self.knowledge.turns(&before, &after)) {
            None => Ok(()),
            Some(sweep) => {
                let message =
                    format!("{sweep}; nothing was written (--min-ready 0% when that is meant)");
                Err(self.refused(message, outcome))
            }
        }
    }

    pub(super) fn refused(&self, message: String, outcome: &Outcome) -> Failure {
        self.with_nothing_written(Failure::refused(message), outcome)
    }

    /// What would have been, with nothing written.
    pub(super) fn with_nothing_written(&self, mut failure: Failure, outcome: &Outcome) -> Failure {
        let nothing = Outcome {
            written: Written {
                index: Some(self.snapshot.index),
                ..Written::default()
            },
            ..outcome.clone()
        };
        failure.document = Some(self.document(&nothing, None));
        failure
    }
}
