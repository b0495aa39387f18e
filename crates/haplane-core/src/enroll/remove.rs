//! Removing an enrolment: the words that it put in, each with the blank before it.

use haplane_haproxy::cfg::{Config, Row, Span};

use super::line::{is_ours, own_keyword};
use super::{Edit, Wanted};

/// In the order in which they are written.
const OURS: [(&str, usize); 5] = [
    ("agent-check", 1),
    ("agent-addr", 2),
    ("agent-port", 2),
    ("agent-inter", 2),
    ("agent-send", 2),
];

/// The edits of one line; none when nothing on it is ours.
pub(super) fn plan(config: &Config, row: Row<'_>, wanted: &Wanted) -> Option<Vec<Edit>> {
    let line = config.line(row.server.line)?;
    let agent = &row.server.settings.agent;
    if !agent.enabled.value || agent.send.is_none() || !is_ours(row, wanted) {
        return None;
    }
    let mut ranges: Vec<(usize, usize)> = OURS
        .iter()
        .filter_map(|(keyword, length)| own_keyword(line, row, keyword).map(|at| (at, at + length)))
        .collect();
    let send = own_keyword(line, row, "agent-send")?;
    // A slowstart directly after the words was put there with them.
    if let Some(at) = own_keyword(line, row, "slowstart").filter(|at| *at == send + 2) {
        ranges.push((at, at + 2));
    }
    ranges.sort_unstable();
    let edits = ranges.into_iter().map(|(first, behind)| {
        let before = line.span_of(first.saturating_sub(1));
        let last = line.span_of(behind.saturating_sub(1));
        Edit {
            span: Span {
                start: before.end,
                ..last
            },
            text: String::new(),
        }
    });
    Some(edits.collect())
}
