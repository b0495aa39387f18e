//! What agents answer, in the shape of any version: what one does not say has a default.

use std::collections::BTreeMap;
use std::time::Duration;

use haplane_core::Key;
use haplane_core::converge::{NodeReport, RowReport};
use haplane_core::verdict::Verdict;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// `/v1/node`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeAnswer {
    /// The node's name.
    pub node: String,
    /// Its version of haplane.
    pub version: String,
    /// How it stands with its store.
    pub store: StoreAnswer,
    /// The HAProxy that it observes.
    pub haproxy: Vec<HaproxyAnswer>,
}

/// `store` of `/v1/node`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct StoreAnswer {
    /// The index of its snapshot.
    pub index: Option<u64>,
    /// How old its last contact is.
    pub age_ms: Option<u64>,
    /// Why it refuses what the store says.
    pub guard: Option<Value>,
    /// Why it cannot read the store.
    pub error: Option<String>,
}

/// One of `haproxy` of `/v1/node`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct HaproxyAnswer {
    /// Its socket.
    pub socket: String,
    /// Its process.
    pub pid: Option<u64>,
    /// Its version.
    pub version: Option<String>,
    /// How long it runs.
    pub uptime_s: Option<u64>,
    /// Why it is not observed.
    pub error: Option<String>,
}

/// One row of `/v1/rows`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct RowAnswer {
    /// The row.
    pub row: String,
    /// Its keys, in order of precedence.
    pub keys: Vec<String>,
    /// What was answered last.
    pub answer: String,
    /// The index of the snapshot that it was answered from.
    pub index: u64,
    /// The key that decided.
    pub decided_by: Option<String>,
    /// How long ago it asked.
    pub asked_ms_ago: u64,
    /// What HAProxy shows.
    pub observed: Option<Value>,
    /// The agent's word on it.
    pub verdict: String,
    /// Its reason for it.
    #[serde(alias = "cause")]
    pub why: Option<String>,
    /// Whether its server line has an agent check, where that is observed.
    pub enrolled: Option<bool>,
}

impl RowAnswer {
    /// The row and its keys, unless it is a free slot, not enrolled, or not what an agent of ours
    /// says. Of a row that never asked only its own key is known.
    pub fn keys(&self) -> Option<(Key, Vec<Key>)> {
        if self.enrolled == Some(false) {
            return None;
        }
        let row: Key = self.row.parse().ok()?;
        let keys = self.keys.iter().filter_map(|key| key.parse().ok());
        let mut keys: Vec<Key> = keys.collect();
        if keys.is_empty() {
            keys.push(row.clone());
        }
        Some((row, keys))
    }

    /// The verdict; an unknown word is one of a newer version, and no proof.
    pub fn verdict(&self) -> Verdict {
        self.verdict.parse().unwrap_or(Verdict::Pending)
    }

    /// A number of what HAProxy shows.
    pub fn observed_number(&self, name: &str) -> Option<u64> {
        self.observed.as_ref()?.get(name)?.as_u64()
    }

    /// A word of what HAProxy shows.
    pub fn observed_word(&self, name: &str) -> Option<&str> {
        self.observed.as_ref()?.get(name)?.as_str()
    }

    fn report(&self) -> Option<RowReport> {
        let (row, keys) = self.keys()?;
        Some(RowReport {
            row,
            keys,
            answer: self.answer.clone(),
            index: self.index,
            asked_ago: Duration::from_millis(self.asked_ms_ago),
            verdict: self.verdict(),
            cause: self.why.clone(),
            observed: self.observed.clone(),
        })
    }
}

impl NodeAnswer {
    /// What is wrong with its store.
    pub fn store_trouble(&self) -> Option<String> {
        let detail = |guard: &Value| match guard.get("detail").and_then(Value::as_str) {
            Some(detail) => detail.to_owned(),
            None => guard.to_string(),
        };
        let guarded = self.store.guard.as_ref().map(detail);
        guarded.or_else(|| self.store.error.clone())
    }

    /// What is wrong with the HAProxy beside it.
    pub fn haproxy_trouble(&self) -> Vec<String> {
        let trouble = |one: &HaproxyAnswer| {
            let error = one.error.as_ref()?;
            Some(format!(
                "its HAProxy at {} is not observed: {error}",
                one.socket
            ))
        };
        self.haproxy.iter().filter_map(trouble).collect()
    }
}

/// The node as the proof wants it.
pub fn report(node: &NodeAnswer, rows: &[RowAnswer]) -> NodeReport {
    NodeReport {
        node: node.node.clone(),
        index: node.store.index,
        store_trouble: node.store_trouble(),
        haproxy_trouble: node.haproxy_trouble(),
        rows: rows.iter().filter_map(RowAnswer::report).collect(),
    }
}

/// The lines that still ask. Of a row whose line was changed by a reload the agent remembers the old
/// line too, for an hour, as silent: a row is silent only when all of its lines are.
pub fn current(rows: Vec<RowAnswer>) -> Vec<RowAnswer> {
    let mut last_asked: BTreeMap<String, u64> = BTreeMap::new();
    for row in &rows {
        let least = last_asked.entry(row.row.clone()).or_insert(u64::MAX);
        *least = (*least).min(row.asked_ms_ago);
    }
    rows.into_iter()
        .filter(|row| {
            row.verdict() != Verdict::Silent || last_asked.get(&row.row) == Some(&row.asked_ms_ago)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(line: &str, asked_ms_ago: u64, verdict: &str) -> RowAnswer {
        RowAnswer {
            row: line.split(' ').next().unwrap().to_owned(),
            keys: line.split(' ').map(str::to_owned).collect(),
            asked_ms_ago,
            verdict: verdict.to_owned(),
            ..RowAnswer::default()
        }
    }

    #[test]
    fn an_old_line_of_a_row_that_asks_is_not_a_silent_row() {
        let rows = current(vec![
            row("web/a", 900_000, "silent"),
            row("web/a canary", 500, "converged"),
            row("web/b", 900_000, "silent"),
            row("web/b canary", 800_000, "silent"),
        ]);
        let told: Vec<_> = rows.iter().map(|row| row.keys.join(" ")).collect();
        assert_eq!(told, ["web/a canary", "web/b canary"]);
    }

    #[test]
    fn answers_of_other_versions_are_understood() {
        let node: NodeAnswer = serde_json::from_str(
            r#"{"node": "lb", "new": 1, "store": {"index": 7, "guard": {"reason": "denied", "detail": "no right"}},
                "haproxy": [{"socket": "/s", "error": "gone"}]}"#,
        )
        .unwrap();
        assert_eq!(node.store_trouble().unwrap(), "no right");
        assert_eq!(node.haproxy_trouble().len(), 1);
        let rows: Vec<RowAnswer> = serde_json::from_str(
            r#"[{"row": "web/a", "keys": ["web/a"], "verdict": "brilliant"}, {"row": "@free", "keys": []}]"#,
        )
        .unwrap();
        assert_eq!(rows[0].verdict(), Verdict::Pending);
        assert_eq!(report(&node, &rows).rows.len(), 1, "free slots are no rows");
    }
}
