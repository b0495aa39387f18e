//! Which row may be drained: one that HAProxy asks for, and that nobody's traffic depends on.

use std::collections::BTreeSet;

use haplane_core::Key;

use super::beat::Heart;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::fleet::{Census, Missing};

/// The most other rows that a refusal names.
const NAMED: usize = 3;

impl Heart<'_> {
    /// Whether the row is there, and nobody's traffic depends on it.
    pub(super) fn is_mine(&self, census: &Census) -> Result<(), Failure> {
        let key = &self.key;
        if census.nodes.is_empty() {
            let absent = census.absent.iter().map(Missing::absentee);
            let absent: Vec<String> = absent
                .map(|one| format!("{}: {}", one.node, one.why))
                .collect();
            let message = format!("no agent can be asked: {}", absent.join("; "));
            return Err(Failure::new(Exit::Unreachable, message));
        }
        if !census.rows().contains_key(key) {
            return Err(Failure::refused(format!(
                "no HAProxy asks for {key}, nothing was written: give every haproxy.cfg the heartbeat's \
                 backend (docs/alerts.md of haplane), or name another row"
            )));
        }
        let others = neighbours(key, census);
        if others.is_empty() || self.options.force {
            return Ok(());
        }
        let more = others.len().saturating_sub(NAMED);
        let mut named: Vec<String> = others.into_iter().take(NAMED).collect();
        if more > 0 {
            named.push(format!("{more} more"));
        }
        Err(Failure::refused(format!(
            "{key} is not alone in its backend ({}): it may take traffic, which every beat would take \
             away; nothing was written. Give the heartbeat a backend of its own (docs/alerts.md of haplane); \
             --force drains it all the same",
            named.join(", ")
        )))
    }
}

/// Other rows of the same backend, on any node, whether they ask or not.
fn neighbours(key: &Key, census: &Census) -> BTreeSet<String> {
    let backend = |row: &str| row.split_once('/').map(|(backend, _)| backend.to_owned());
    let mine = backend(key.as_str());
    let rows = census.nodes.iter().flat_map(|node| &node.rows);
    rows.map(|row| row.row.as_str())
        .filter(|row| *row != key.as_str() && backend(row) == mine)
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::Node;
    use crate::fleet::answers::{NodeAnswer, RowAnswer};

    #[test]
    fn neighbours_are_of_the_same_backend_on_any_node() {
        let node = |rows: &[&str]| Node {
            address: "127.0.0.1:9".parse().unwrap(),
            answer: NodeAnswer::default(),
            ahead: None,
            rows: rows
                .iter()
                .map(|&row| RowAnswer {
                    row: row.to_owned(),
                    ..RowAnswer::default()
                })
                .collect(),
        };
        let census = Census {
            nodes: vec![
                node(&["web/a", "beat/self", "@free"]),
                node(&["web/a", "web/b"]),
            ],
            absent: Vec::new(),
        };
        let of = |key: &str| {
            let found = neighbours(&key.parse().unwrap(), &census);
            found.into_iter().collect::<Vec<_>>()
        };
        assert!(of("beat/self").is_empty());
        assert_eq!(of("web/a"), ["web/b"]);
        assert_eq!(of("web/x"), ["web/a", "web/b"]);
    }
}
