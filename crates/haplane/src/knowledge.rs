//! What is known before a write: which rows ask for which keys, and how much of each backend is in
//! rotation.

use std::collections::BTreeMap;

use haplane_core::floor::{Load, Share, shares};
use haplane_core::outlook::Outlook;
use haplane_core::target::Known;
use haplane_core::{Desired, Key, Snapshot};

use crate::cli::FleetOptions;
use crate::failure::Failure;
use crate::fleet::answers::RowAnswer;
use crate::fleet::{Census, Depth, Fleet, Missing, Node, rows_of_files};
use crate::session::{Session, stored_names};

/// What agents and configurations say.
#[derive(Debug)]
pub struct Knowledge {
    /// The agents' word.
    pub census: Census,
    /// The names.
    pub known: Known,
    /// Rows that no write reaches.
    pub out_of_reach: Vec<Key>,
}

impl Knowledge {
    /// Asks all agents, and reads the files of `--rows`.
    pub async fn gather(
        fleet: &Fleet,
        options: &FleetOptions,
        snapshot: &Snapshot,
    ) -> Result<Self, Failure> {
        let census = fleet.ask(Depth::Rows).await;
        let configured = rows_of_files(&options.rows)?;
        let mut known = stored_names(snapshot);
        known.rows = configured.rows;
        for (row, keys) in census.rows() {
            known.rows.insert(row, keys);
        }
        known.rows_are_known = !census.nodes.is_empty() || !options.rows.is_empty();
        let unreached = census.nodes.iter().flat_map(|node| &node.rows);
        let unreached = unreached.filter(|row| row.enrolled == Some(false));
        let unreached = unreached.filter_map(|row| row.row.parse().ok());
        let mut out_of_reach: Vec<Key> = configured
            .out_of_reach
            .into_iter()
            .chain(unreached)
            .collect();
        out_of_reach.sort();
        out_of_reach.dedup();
        Ok(Self {
            census,
            known,
            out_of_reach,
        })
    }

    /// Says whom nobody could ask: what follows is said without them.
    pub fn tell_absent(&self, session: &Session) {
        let absent = &self.census.absent;
        let output = &session.output;
        if self.known.rows_are_known || absent.len() > 1 {
            for one in absent.iter().map(Missing::absentee) {
                output.warn(&format!("{}: {}", one.node, one.why));
            }
        } else if let Some(one) = absent.first() {
            let why = &one.why;
            output.warn(&format!("no agent can be asked, so no row is known: {why}"));
        }
        if self.known.rows_are_known && self.known.rows.is_empty() {
            output.warn("no HAProxy has asked yet, so no row is known");
        }
    }

    /// The rows of which something else is desired after a write than before.
    pub fn moved(&self, before: &Outlook<'_>, after: &Outlook<'_>) -> Vec<Key> {
        let moves = |keys: &[Key]| before.desired(keys) != after.desired(keys);
        let rows = self.known.rows.iter();
        rows.filter(|(_, keys)| moves(keys))
            .map(|(row, _)| row.clone())
            .collect()
    }

    /// The share of each backend in rotation, before and after, on the node where the least stays.
    pub fn shares(&self, before: &Outlook<'_>, after: &Outlook<'_>) -> Vec<Share> {
        let mut least: BTreeMap<String, Share> = BTreeMap::new();
        for node in &self.census.nodes {
            for share in shares(&loads(node, before, after)) {
                let known = least
                    .entry(share.backend.clone())
                    .or_insert_with(|| share.clone());
                if share.after < known.after {
                    *known = share;
                }
            }
        }
        least.into_values().collect()
    }
}

fn loads(node: &Node, before: &Outlook<'_>, after: &Outlook<'_>) -> Vec<Load> {
    let load = |answer: &RowAnswer| {
        let (backend, _) = answer.row.split_once('/')?;
        let (now, then) = match answer.keys() {
            Some((_, keys)) => (before.desired(&keys), after.desired(&keys)),
            // Out of reach, but part of its backend; a free slot in maint is none.
            None if answer.observed_word("admin") != Some("maint") => {
                (Desired::READY, Desired::READY)
            }
            None => return None,
        };
        Some(Load {
            backend: backend.to_owned(),
            weight: full_weight(answer, now),
            healthy: takes_traffic(answer, now),
            before: now,
            after: then,
        })
    };
    node.rows.iter().filter_map(load).collect()
}

/// The weight that the row has at 100 %; 1 where nobody observes it.
fn full_weight(answer: &RowAnswer, now: Desired) -> u64 {
    if let Some(configured) = answer.observed_number("configured_weight") {
        return configured;
    }
    let in_force = answer
        .observed_number("weight")
        .filter(|weight| *weight > 0);
    match (in_force, now) {
        (None, _) => 1,
        (Some(weight), Desired::Weight(percent)) if percent.get() > 0 => {
            weight.saturating_mul(100) / u64::from(percent.get())
        }
        (Some(weight), _) => weight,
    }
}

/// Whether HAProxy would give it traffic, were it only for its checks and for what was set by hand.
fn takes_traffic(answer: &RowAnswer, now: Desired) -> bool {
    let is_down = answer.observed_word("operational") == Some("down");
    let is_out = answer
        .observed_word("admin")
        .is_some_and(|admin| admin != "ready");
    !(is_down || is_out && now.in_rotation())
}

#[cfg(test)]
mod tests {
    use super::*;
    use haplane_core::floor::Share;
    use serde_json::json;

    fn row(name: &str, keys: &[&str], observed: serde_json::Value) -> RowAnswer {
        RowAnswer {
            row: name.to_owned(),
            keys: keys.iter().map(|&key| key.to_owned()).collect(),
            observed: Some(observed),
            enrolled: Some(!keys.is_empty()),
            verdict: if keys.is_empty() {
                "unobserved"
            } else {
                "converged"
            }
            .to_owned(),
            ..RowAnswer::default()
        }
    }

    #[test]
    fn weights_health_and_what_was_set_by_hand_count() {
        let up =
            |weight| json!({"admin": "ready", "operational": "up", "configured_weight": weight});
        let node = Node {
            address: "127.0.0.1:9".parse().unwrap(),
            answer: crate::fleet::answers::NodeAnswer::default(),
            rows: vec![
                row("web/a", &["web/a", "canary"], up(50)),
                row("web/b", &["web/b"], up(100)),
                row(
                    "web/down",
                    &["web/down"],
                    json!({"admin": "ready", "operational": "down", "configured_weight": 100}),
                ),
                row(
                    "web/by-hand",
                    &["web/by-hand"],
                    json!({"admin": "drain", "operational": "up", "configured_weight": 100}),
                ),
                row("web/not-enrolled", &[], up(50)),
                row(
                    "web/slot1",
                    &[],
                    json!({"admin": "maint", "operational": "down", "configured_weight": 100}),
                ),
            ],
        };
        let snapshot = Snapshot::default();
        let before = Outlook::present(&snapshot, "2026-11-29T12:00:00Z".parse().unwrap());
        let drained = "drain".parse().unwrap();
        let after = before
            .clone()
            .with([("canary".parse().unwrap(), Some(drained))]);
        let shares = shares(&loads(&node, &before, &after));
        assert_eq!(
            shares,
            [Share {
                backend: "web".to_owned(),
                before: 50,
                after: 37
            }]
        );
    }
}
