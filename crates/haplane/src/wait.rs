//! Waiting for the proof: asking who has not converged yet, until everybody has or the time is over.

use std::collections::BTreeSet;
use std::time::Duration;

use haplane_core::Snapshot;
use haplane_core::converge::{Absentee, Laggard, NodeReport, Proof, Scope, Tally, prove};
use haplane_core::outlook::Outlook;
use jiff::Timestamp;
use serde::Serialize;
use tokio::time::{Instant, sleep};

use crate::fleet::{AgentAddress, Census, DEADLINE, Depth, Fleet, Missing, Node};
use crate::output::Output;
use crate::report::{BAD, Cell, GOOD, Report, Table};

/// The pause between two rounds, at first and at most: a write takes one check interval to arrive,
/// mostly two seconds.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// However little time is left, an agent gets this long to answer.
const LEAST_PATIENCE: Duration = Duration::from_secs(1);

/// The result of waiting: the JSON of `haplane wait`, and `waited` of a write.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Waited {
    /// Whether it is proven.
    pub converged: bool,
    /// The index that was waited for.
    pub index: u64,
    /// Nodes.
    pub nodes: Tally,
    /// Distinct rows.
    pub rows: Tally,
    /// Nodes that look at no HAProxy: what is proven of them is that it was told.
    pub unobserved_nodes: usize,
    /// How long it took.
    pub elapsed_ms: u64,
    /// Who is not there.
    pub laggards: Vec<Laggard>,
}

/// What to wait for.
#[derive(Debug)]
pub struct Goal<'s> {
    /// Every node has to have come this far.
    pub index: u64,
    /// These rows have to follow.
    pub scope: Scope,
    /// The state that they have to follow.
    pub snapshot: &'s Snapshot,
    /// How long to try.
    pub timeout: Duration,
}

/// Asks again and again. What is known after each time, short of the proof, is told to `so_far`.
pub async fn wait(
    fleet: &Fleet,
    goal: &Goal<'_>,
    output: &Output,
    mut so_far: impl FnMut(Waited),
) -> Waited {
    let start = Instant::now();
    let mut pause = FIRST_PAUSE;
    let mut nodes: Vec<Node> = Vec::new();
    let mut done: BTreeSet<AgentAddress> = BTreeSet::new();
    loop {
        let still = fleet.only(|address| !done.contains(address));
        let left = goal.timeout.saturating_sub(start.elapsed());
        let patience = left.clamp(LEAST_PATIENCE, DEADLINE);
        let depth = Depth::RowsFrom(goal.index);
        let census = still.ask_within(depth, patience).await;
        nodes.retain(|node| done.contains(&node.address));
        let Census {
            nodes: asked,
            absent,
        } = census;
        nodes.extend(asked);
        let absent: Vec<Absentee> = absent.iter().map(Missing::absentee).collect();
        let reports: Vec<NodeReport> = nodes.iter().map(Node::report).collect();
        let present = Outlook::present(goal.snapshot, Timestamp::now());
        let proof = prove(goal.index, &goal.scope, &present, &reports, &absent);
        let left = goal.timeout.saturating_sub(start.elapsed());
        let unobserved = nodes.iter().filter(|node| node.answer.haproxy.is_empty());
        let unobserved = unobserved.count();
        if proof.holds() || left.is_zero() {
            return waited(goal.index, proof, unobserved, start.elapsed());
        }
        output.progress(&progress(&proof));
        let late: BTreeSet<&str> = proof.laggards.iter().map(|one| one.node.as_str()).collect();
        done = nodes
            .iter()
            .filter(|node| !late.contains(node.answer.node.as_str()))
            .map(|node| node.address.clone())
            .collect();
        so_far(waited(goal.index, proof, unobserved, start.elapsed()));
        sleep(pause.min(left)).await;
        pause = (pause * 3 / 2).min(LONGEST_PAUSE);
    }
}

fn waited(index: u64, proof: Proof, unobserved_nodes: usize, elapsed: Duration) -> Waited {
    Waited {
        converged: proof.holds(),
        index,
        nodes: proof.nodes,
        rows: proof.rows,
        unobserved_nodes,
        elapsed_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
        laggards: proof.laggards,
    }
}

fn progress(proof: &Proof) -> String {
    tallies(proof.nodes, proof.rows)
}

fn tallies(nodes: Tally, rows: Tally) -> String {
    format!(
        "{}/{} load balancers, {}/{} rows",
        nodes.converged, nodes.total, rows.converged, rows.total
    )
}

/// How much less is known than it seems, where agents have no socket of their HAProxy.
pub fn unobserved(nodes: usize, total: usize) -> Option<String> {
    let who = match nodes {
        0 => return None,
        _ if nodes == total => "no agent sees its HAProxy".to_owned(),
        1 => format!("1 of {total} agents does not see its HAProxy"),
        _ => format!("{nodes} of {total} agents do not see their HAProxy"),
    };
    Some(format!(
        "{who} ([haproxy] socket): known is what it was told, not what it does"
    ))
}

impl Waited {
    /// Adds what came of it to a report for people.
    pub fn tell(&self, report: Report) -> Report {
        let seconds = Duration::from_millis(self.elapsed_ms).as_secs_f64();
        let tallies = tallies(self.nodes, self.rows);
        if self.converged {
            let report = report.line(format!(
                "{GOOD}converged{GOOD:#} in {seconds:.1} s: {tallies}"
            ));
            return match unobserved(self.unobserved_nodes, self.nodes.total) {
                Some(text) => report.line(text),
                None => report,
            };
        }
        let report = report.line(format!(
            "{BAD}not converged{BAD:#} after {seconds:.1} s: {tallies}"
        ));
        report.table(laggards(&self.laggards))
    }

    /// The first laggards in words, for an error message.
    pub fn summary(&self) -> String {
        const NAMED: usize = 5;
        let name = |one: &Laggard| {
            let row = one
                .row
                .as_ref()
                .map(|row| format!(" {row}"))
                .unwrap_or_default();
            format!("{}{row}: {}", one.node, one.why)
        };
        let mut lines: Vec<String> = self.laggards.iter().take(NAMED).map(name).collect();
        if self.laggards.len() > NAMED {
            lines.push(format!("and {} more", self.laggards.len() - NAMED));
        }
        let seconds = Duration::from_millis(self.elapsed_ms).as_secs_f64();
        format!(
            "not converged after {seconds:.1} s ({}):\n  {}",
            tallies(self.nodes, self.rows),
            lines.join("\n  ")
        )
    }
}

fn laggards(laggards: &[Laggard]) -> Table {
    let mut table = Table::new(&["NODE", "ROW", "EXPECTED", "ANSWERED", "WHY"]);
    for one in laggards {
        let text = |text: &Option<String>| Cell::from(text.clone().unwrap_or_default());
        let row = one
            .row
            .as_ref()
            .map_or("(all)".to_owned(), ToString::to_string);
        table.push(vec![
            one.node.clone().into(),
            row.into(),
            text(&one.expected),
            text(&one.answered),
            one.why.clone().into(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::unobserved;

    #[test]
    fn nodes_that_look_at_no_haproxy_are_told() {
        assert_eq!(unobserved(0, 3), None);
        let begins = |nodes, total, words: &str| {
            let told = unobserved(nodes, total).unwrap();
            assert!(told.starts_with(words), "{told}");
        };
        begins(1, 1, "no agent sees its HAProxy");
        begins(1, 3, "1 of 3 agents does not see its HAProxy");
        begins(2, 3, "2 of 3 agents do not see their HAProxy");
    }
}
