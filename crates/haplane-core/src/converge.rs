//! Proof of convergence: whether every HAProxy does what a write at an index wants, and if not, who
//! does not and why.
//!
//! For a write at index I: every node has a snapshot with index ≥ I, every affected row was answered
//! from it, and where it is observed, HAProxy shows it. A node that does not answer proves nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use haplane_haproxy::AdminState;
use serde::Serialize;

use crate::desired::Desired;
use crate::duration;
use crate::key::Key;
use crate::outlook::Outlook;
use crate::verdict::Verdict;

/// What one agent says of itself.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeReport {
    /// Its name.
    pub node: String,
    /// The index of its snapshot; `None` before the first.
    pub index: Option<u64>,
    /// What is wrong with its store, if something is.
    pub store_trouble: Option<String>,
    /// What is wrong with the HAProxy that it observes.
    pub haproxy_trouble: Vec<String>,
    /// Another node of its name, while there is one: then one of the two cannot be asked.
    pub rival: Option<String>,
    /// Its rows, of each row only the lines that still ask, or the last one.
    pub rows: Vec<RowReport>,
}

/// What one agent says of one row.
#[derive(Clone, Debug, PartialEq)]
pub struct RowReport {
    /// The row.
    pub row: Key,
    /// All keys of its line.
    pub keys: Vec<Key>,
    /// What was answered last.
    pub answer: String,
    /// The index of the snapshot that it was answered from.
    pub index: u64,
    /// How long ago it asked; `None` when it never did.
    pub asked_ago: Option<Duration>,
    /// The agent's verdict.
    pub verdict: Verdict,
    /// What explains that it does not do as it was told, or does not ask, where that is known.
    pub cause: Option<String>,
    /// What HAProxy shows, as the agent tells it.
    pub observed: Option<serde_json::Value>,
}

/// A node that gave no report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absentee {
    /// Its name or address.
    pub node: String,
    /// Why.
    pub why: String,
}

/// Which rows have to converge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All of them.
    All,
    /// Those that ask for one of these keys.
    Keys(BTreeSet<Key>),
}

impl Scope {
    fn touches(&self, keys: &[Key]) -> bool {
        match self {
            Self::All => true,
            Self::Keys(wanted) => keys.iter().any(|key| wanted.contains(key)),
        }
    }

    fn cares_for(&self, key: &Key) -> bool {
        match self {
            Self::All => true,
            Self::Keys(wanted) => wanted.contains(key),
        }
    }
}

/// How many of how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// All.
    pub total: usize,
    /// Those that do as wanted.
    pub converged: usize,
}

impl Tally {
    /// Whether all do.
    pub(crate) fn is_complete(self) -> bool {
        self.total == self.converged
    }
}

/// Who does not do as wanted, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Laggard {
    /// The node.
    pub node: String,
    /// The row; `None` when it is the whole node.
    pub row: Option<Key>,
    /// What is desired of the row.
    pub expected: Option<String>,
    /// What the agent answered last.
    pub answered: Option<String>,
    /// What HAProxy shows.
    pub observed: Option<serde_json::Value>,
    /// Why it counts as a laggard.
    pub why: String,
}

impl Laggard {
    fn node(node: &str, why: String) -> Self {
        Self {
            node: node.to_owned(),
            row: None,
            expected: None,
            answered: None,
            observed: None,
            why,
        }
    }
}

/// The proof, or what it lacks.
#[derive(Clone, Debug, PartialEq)]
pub struct Proof {
    /// Nodes.
    pub nodes: Tally,
    /// Distinct rows; one counts as converged when it is on every node that has it.
    pub rows: Tally,
    /// Everybody who is not there yet.
    pub laggards: Vec<Laggard>,
}

impl Proof {
    /// Whether it is one. Without a single node there is nobody to prove anything.
    pub fn holds(&self) -> bool {
        self.laggards.is_empty() && self.nodes.total > 0 && self.nodes.is_complete()
    }
}

/// Weighs all reports on a write at an index. `present` is the state that rows have to follow.
pub fn prove(
    index: u64,
    scope: &Scope,
    present: &Outlook<'_>,
    nodes: &[NodeReport],
    absent: &[Absentee],
) -> Proof {
    let asked = keys_by_row(scope, nodes);
    let mut laggards: Vec<Laggard> = absent
        .iter()
        .map(|absentee| Laggard::node(&absentee.node, absentee.why.clone()))
        .collect();
    let mut late_rows: BTreeSet<&Key> = BTreeSet::new();
    let mut converged_nodes = 0;
    for node in nodes {
        let mut own = node_laggards(index, node);
        let is_behind = !own.is_empty();
        for row in &node.rows {
            let Some(all_keys) = asked.get(&row.row) else {
                continue;
            };
            let why = row_trouble(index, row, all_keys, scope)
                .or_else(|| contradiction(&row.answer, row.index, &row.keys, present));
            if is_behind || why.is_some() {
                late_rows.insert(&row.row);
            }
            // For a node that is behind one line is enough: it says the same of all its rows.
            if let Some(why) = why.filter(|_| !is_behind) {
                own.push(Laggard {
                    node: node.node.clone(),
                    row: Some(row.row.clone()),
                    expected: Some(present.desired(&row.keys).to_string()),
                    answered: Some(row.answer.clone()),
                    observed: row.observed.clone(),
                    why,
                });
            }
        }
        converged_nodes += usize::from(own.is_empty());
        laggards.extend(own);
    }
    Proof {
        nodes: Tally {
            total: nodes.len() + absent.len(),
            converged: converged_nodes,
        },
        rows: Tally {
            total: asked.len(),
            converged: asked.len() - late_rows.len(),
        },
        laggards,
    }
}

/// Every affected row with the keys that any node's HAProxy sends for it.
fn keys_by_row<'n>(scope: &Scope, nodes: &'n [NodeReport]) -> BTreeMap<&'n Key, BTreeSet<&'n Key>> {
    let mut asked: BTreeMap<&Key, BTreeSet<&Key>> = BTreeMap::new();
    let rows = || nodes.iter().flat_map(|node| &node.rows);
    for row in rows().filter(|row| scope.touches(&row.keys)) {
        asked.entry(&row.row).or_default().extend(&row.keys);
    }
    asked
}

fn node_laggards(index: u64, node: &NodeReport) -> Vec<Laggard> {
    if node.index.is_none_or(|own| own < index) {
        let has = node.index.map_or("no snapshot yet".to_owned(), |own| {
            format!("its snapshot is of index {own}, not {index}")
        });
        let trouble = node.store_trouble.iter();
        let why = std::iter::once(&has)
            .chain(trouble)
            .cloned()
            .collect::<Vec<_>>();
        return vec![Laggard::node(&node.node, why.join(": "))];
    }
    let trouble = node.haproxy_trouble.iter().chain(&node.rival);
    trouble
        .map(|why| Laggard::node(&node.node, why.clone()))
        .collect()
}

fn row_trouble(
    index: u64,
    row: &RowReport,
    all_keys: &BTreeSet<&Key>,
    scope: &Scope,
) -> Option<String> {
    let ago = row
        .asked_ago
        .map(|ago| duration::print(Duration::from_secs(ago.as_secs())));
    let told = |why: String| Some(row.cause.clone().unwrap_or(why));
    if row.verdict == Verdict::Silent {
        let since = ago.map_or("never asked".to_owned(), |ago| {
            format!("has not asked for {ago}")
        });
        return told(format!(
            "{since}: HAProxy is stopped, its agent check is disabled, or the row is gone"
        ));
    }
    let lacking = all_keys
        .iter()
        .find(|key| scope.cares_for(key) && !row.keys.contains(key));
    if let Some(key) = lacking {
        return Some(format!(
            "its agent-send lacks {key}, which other nodes send for this row"
        ));
    }
    match row.verdict {
        _ if row.index < index => told(match ago {
            Some(ago) => format!("has not asked since the write (last {ago} ago)"),
            None => "has not asked yet".to_owned(),
        }),
        Verdict::Diverged => told(
            "HAProxy shows something else than was answered: set by hand on its socket, or its agent \
             check does not arrive"
                .to_owned(),
        ),
        Verdict::Pending => told("answered, not yet seen in HAProxy".to_owned()),
        Verdict::Silent | Verdict::Converged | Verdict::Unobserved => None,
    }
}

/// Why an answer is not what the state wants: it was given before the last write, a file was changed by hand (which
/// raises no index), or the agent follows another store. An answer that is newer than the state is not judged.
pub fn contradiction(
    answer: &str,
    index: u64,
    keys: &[Key],
    present: &Outlook<'_>,
) -> Option<String> {
    if index > present.index() || answer.is_empty() {
        return None;
    }
    let desired = present.desired(keys);
    let (word, weight) = match desired {
        Desired::Admin(state) => (state, None),
        Desired::Weight(percent) => (AdminState::Ready, Some(percent.to_string())),
    };
    let is_said = |wanted: &str| answer.split(' ').any(|word| word == wanted);
    let is_as_desired = is_said(word.as_str()) && weight.is_none_or(|weight| is_said(&weight));
    (!is_as_desired).then(|| format!("answered {answer:?} although the store says {desired}"))
}

#[cfg(test)]
mod tests;
