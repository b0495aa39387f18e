//! An `until=` is judged by each load balancer's own clock; what if that is another than the writer's?

use jiff::Timestamp;

use super::{Outcome, Writer};
use crate::failure::Failure;
use crate::times;
use crate::write::Wanted;

impl Writer<'_> {
    /// Refuses an end that is over already somewhere: it would count for nothing there, and a proof would say that all
    /// is as desired. Of other differences it warns, once.
    pub(super) fn mind_the_clocks(
        &self,
        wanted: &[Wanted],
        outcome: &Outcome,
    ) -> Result<(), Failure> {
        let ends = wanted.iter().filter_map(|one| one.value?.until);
        let now = Timestamp::now();
        let Some(end) = ends.filter(|end| *end > now).min() else {
            return Ok(());
        };
        let (mut over, mut apart) = (Vec::new(), Vec::new());
        for node in &self.knowledge.census.nodes {
            let Some(ahead) = node.ahead else {
                continue;
            };
            let is_over = now.saturating_add(ahead).is_ok_and(|theirs| theirs >= end);
            let told = format!("{}: {}", node.answer.node, times::clock_is(ahead));
            if is_over { &mut over } else { &mut apart }.push(told);
        }
        if !over.is_empty() && !self.options.force {
            let message = format!(
                "until={end} is over already where the clock says so; nothing was written (set the clocks right; \
                 --force writes all the same)\n  {}",
                over.join("\n  ")
            );
            return Err(self.refused(message, outcome));
        }
        apart.extend(over);
        if !apart.is_empty() && !self.warned_of_clocks.replace(true) {
            self.session.output.warn(&format!(
                "each load balancer ends this by its own clock, and not all agree\n  {}",
                apart.join("\n  ")
            ));
        }
        Ok(())
    }
}
