//! Waiting until nobody is served any more by what is being drained.

use std::collections::BTreeSet;
use std::time::Duration;

use haplane_core::Key;
use haplane_core::outlook::Outlook;
use haplane_core::verdict::Verdict;
use jiff::Timestamp;
use tokio::time::{Instant, sleep};

use crate::fleet::answers::RowAnswer;
use crate::fleet::{Census, Depth, Missing, Node};
use crate::times;
use crate::writer::Writer;

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// What all nodes together say of the sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sessions {
    /// Every node observes every row, and nobody is served.
    Gone,
    /// So many are left, as far as it is known.
    Left(u64),
    /// At least one row is not observed since it began to drain: the whole grace has to be waited
    /// out.
    Unknown,
}

/// Waits until the sessions are gone on every node, or `left` is over.
pub(super) async fn wait_until_gone(
    writer: &Writer<'_>,
    keys: &BTreeSet<Key>,
    index: u64,
    left: Duration,
) {
    let end = Instant::now() + left;
    let output = &writer.session.output;
    output.note(&format!(
        "draining {}: sessions have {} to end",
        crate::command::names(keys.iter()),
        times::span_of(left)
    ));
    let mut pause = FIRST_PAUSE;
    loop {
        let census = writer.fleet.ask(Depth::RowsFrom(index)).await;
        let sessions = count(writer, &census, keys, index);
        let left = end.saturating_duration_since(Instant::now());
        if sessions == Sessions::Gone {
            return;
        }
        if left.is_zero() {
            for lost in census.absent.iter().map(Missing::absentee) {
                output.warn(&format!("{}: {}", lost.node, lost.why));
            }
            return;
        }
        let seen = match sessions {
            Sessions::Left(number) => format!("{number} sessions left"),
            _ => "sessions are not observed everywhere".to_owned(),
        };
        output.progress(&format!("draining: {seen}, {} to go", times::span_of(left)));
        sleep(pause.min(left)).await;
        pause = (pause * 3 / 2).min(LONGEST_PAUSE);
    }
}

/// Counts the sessions of the rows that these keys keep out.
fn count(writer: &Writer<'_>, census: &Census, keys: &BTreeSet<Key>, index: u64) -> Sessions {
    let present = Outlook::present(&writer.snapshot, Timestamp::now());
    let mut seen = 0_usize;
    let mut left = 0_u64;
    let mut is_known = census.absent.is_empty();
    for node in &census.nodes {
        is_known &= node.answer.store.index.is_some_and(|own| own >= index);
        for answer in &node.rows {
            let Some((_, row_keys)) = answer.keys() else {
                continue;
            };
            let decided = present.deciding(&row_keys);
            if decided.is_none_or(|(key, _)| !keys.contains(key)) {
                continue;
            }
            seen += 1;
            match sessions_of(answer, node, index) {
                Some(number) => left += number,
                None => is_known = false,
            }
        }
    }
    match (is_known && seen > 0, left) {
        (false, _) => Sessions::Unknown,
        (true, 0) => Sessions::Gone,
        (true, number) => Sessions::Left(number),
    }
}

/// The sessions of a row that HAProxy has been seen to drain, old workers included where a master
/// CLI is observed.
fn sessions_of(answer: &RowAnswer, node: &Node, index: u64) -> Option<u64> {
    let is_draining =
        answer.index.is_some_and(|own| own >= index) && answer.verdict() == Verdict::Converged;
    let current = answer.observed_number("sessions").filter(|_| is_draining)?;
    let old = match &node.answer.haproxy_master {
        None => 0,
        Some(master) if master.error.is_some() => return None,
        Some(_) => answer.old_sessions?,
    };
    Some(current + old)
}
