//! What is known before a write: which rows ask for which keys, and how much of each backend is in
//! rotation.

mod loads;

use std::collections::{BTreeMap, BTreeSet};

use haplane_core::floor::{Share, shares};
use haplane_core::outlook::Outlook;
use haplane_core::sweep::Turn;
use haplane_core::target::{HEARTBEAT, Known, backend_of};
use haplane_core::{Desired, Key, Snapshot};

use crate::cli::FleetOptions;
use crate::failure::Failure;
use crate::fleet::{Census, Depth, Fleet, Missing, rows_of_files};
use crate::session::{Session, stored_names};
use loads::loads;

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

    /// Names the agents that could not be asked: what follows is said without them.
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

    /// What becomes of every known row. One that no write reaches stays as HAProxy has it; the heartbeat's
    /// row takes no traffic and does not count.
    pub fn turns<'k>(
        &'k self,
        before: &'k Outlook<'_>,
        after: &'k Outlook<'_>,
    ) -> impl Iterator<Item = Turn<'k>> {
        let asked = self.known.rows.iter().filter_map(|(row, keys)| {
            Some(Turn {
                backend: backend_of(row)?,
                before: before.desired(keys),
                after: after.desired(keys),
            })
        });
        let rows = self.census.nodes.iter().flat_map(|node| &node.rows);
        let in_maint: BTreeSet<&str> = rows
            .filter(|row| row.observed_word("admin") == Some("maint"))
            .map(|row| row.row.as_str())
            .collect();
        let beyond = self.out_of_reach.iter();
        let beyond = beyond.filter(move |row| !in_maint.contains(row.as_str()));
        let beyond = beyond.filter_map(|row| {
            Some(Turn {
                backend: backend_of(row)?,
                before: Desired::READY,
                after: Desired::READY,
            })
        });
        asked.chain(beyond).filter(|turn| turn.backend != HEARTBEAT)
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
