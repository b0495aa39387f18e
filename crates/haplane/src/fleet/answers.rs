//! What agents answer, in the shape of any version: what one does not say has a default.

use std::collections::BTreeMap;
use std::time::Duration;

use haplane_core::Key;
use haplane_core::converge::{NodeReport, RowReport, contradiction};
use haplane_core::outlook::Outlook;
use haplane_core::verdict::Verdict;
use jiff::Timestamp;
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
    /// Its host's clock when it answered; `None` of an older version.
    pub now: Option<Timestamp>,
    /// How it stands with its store.
    pub store: StoreAnswer,
    /// The HAProxy that it observes.
    pub haproxy: Vec<HaproxyAnswer>,
    /// The master CLI that knows of workers which finish after a reload, where one is observed.
    pub haproxy_master: Option<MasterAnswer>,
    /// Another agent that registers by its name.
    pub rival: Option<String>,
}

/// `haproxy_master` of `/v1/node`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct MasterAnswer {
    /// Why it cannot be asked.
    pub error: Option<String>,
}

/// `store` of `/v1/node`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct StoreAnswer {
    /// `consul` or `dir`.
    pub kind: String,
    /// Where it is.
    pub address: String,
    /// The root of its keys.
    pub prefix: String,
    /// The marker of its snapshot, empty where the prefix has none; `None` before the first, and of an older version.
    pub marker: Option<String>,
    /// The index of its snapshot.
    pub index: Option<u64>,
    /// How old its last contact is.
    pub age_ms: Option<u64>,
    /// Why it refuses what the store says.
    pub guard: Option<Value>,
    /// Why it cannot read the store.
    pub error: Option<String>,
}

impl StoreAnswer {
    /// Why this is not the store with this marker, if it is not.
    pub fn other_than(&self, marker: &str) -> Option<String> {
        let theirs = self.marker.as_ref().filter(|theirs| *theirs != marker)?;
        let (kind, address, prefix) = (&self.kind, &self.address, &self.prefix);
        let theirs = if theirs.is_empty() {
            "without a marker".to_owned()
        } else {
            format!("marker {theirs}")
        };
        Some(format!(
            "it follows another store: {kind} {address}, prefix {prefix}, {theirs}; this command uses the one with marker {marker}"
        ))
    }
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
    /// What was answered last; `None` when it never asked.
    pub answer: Option<String>,
    /// The index of the snapshot that it was answered from.
    pub index: Option<u64>,
    /// The key that decided.
    pub decided_by: Option<String>,
    /// How long ago it asked.
    pub asked_ms_ago: Option<u64>,
    /// What HAProxy shows.
    pub observed: Option<Value>,
    /// The agent's word on it.
    pub verdict: String,
    /// Its reason for it.
    #[serde(alias = "cause")]
    pub why: Option<String>,
    /// Whether its server line has an agent check, where that is observed.
    pub enrolled: Option<bool>,
    /// Sessions in workers that finish after a reload, where somebody counts them.
    pub old_sessions: Option<u64>,
}

impl RowAnswer {
    /// The row and its keys, unless no write reaches it: it is a free slot, not enrolled, or asks
    /// under another name. Of a row that should ask and never did, only its own key is known.
    pub fn keys(&self) -> Option<(Key, Vec<Key>)> {
        if self.enrolled == Some(false) {
            return None;
        }
        let row: Key = self.row.parse().ok()?;
        let keys = self.keys.iter().filter_map(|key| key.parse().ok());
        let mut keys: Vec<Key> = keys.collect();
        if keys.is_empty() {
            if self.verdict() == Verdict::Unobserved {
                return None;
            }
            keys.push(row.clone());
        }
        Some((row, keys))
    }

    /// The verdict; an unknown word is one of a newer version, and no proof.
    pub fn verdict(&self) -> Verdict {
        self.verdict.parse().unwrap_or(Verdict::Pending)
    }

    /// The verdict on what is desired by now, and why: a row that does as it was answered may have been answered
    /// something else.
    pub fn verdict_on(&self, present: &Outlook<'_>) -> (Verdict, Option<String>) {
        let verdict = self.verdict();
        let keys = self.keys().map(|(_, keys)| keys).unwrap_or_default();
        let answer = self.answer.as_deref().unwrap_or_default();
        match contradiction(answer, self.index.unwrap_or(0), &keys, present) {
            Some(why) if matches!(verdict, Verdict::Converged | Verdict::Unobserved) => {
                (Verdict::Pending, Some(why))
            }
            _ => (verdict, self.why.clone()),
        }
    }

    /// Whether it has never asked but is not late either, so that nobody knows yet whether it asks by this name: a
    /// free slot just after a start, for example.
    pub fn is_yet_to_ask(&self) -> bool {
        self.answer.is_none() && self.verdict() == Verdict::Pending
    }

    /// A number of what HAProxy shows.
    pub fn observed_number(&self, name: &str) -> Option<u64> {
        self.observed.as_ref()?.get(name)?.as_u64()
    }

    /// A word of what HAProxy shows.
    pub fn observed_word(&self, name: &str) -> Option<&str> {
        self.observed.as_ref()?.get(name)?.as_str()
    }

    /// What explains that it does not do as it was told. A row that does has a reason at most for
    /// something else; but whether it will ask again shows before it has fallen silent.
    fn cause(&self) -> Option<String> {
        let enabled = self
            .observed
            .as_ref()
            .and_then(|seen| seen.get("agent_enabled"));
        match self.verdict() {
            Verdict::Converged | Verdict::Pending if enabled == Some(&Value::Bool(false)) => Some(
                "its agent check is disabled on HAProxy's socket; `enable agent` lets it ask again"
                    .to_owned(),
            ),
            Verdict::Converged | Verdict::Unobserved => None,
            _ => self.why.clone(),
        }
    }

    fn report(&self) -> Option<RowReport> {
        let (row, keys) = self.keys()?;
        Some(RowReport {
            row,
            keys,
            answer: self.answer.clone().unwrap_or_default(),
            index: self.index.unwrap_or(0),
            asked_ago: self.asked_ms_ago.map(Duration::from_millis),
            verdict: self.verdict(),
            cause: self.cause(),
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
        rival: node.rival.clone(),
        rows: rows.iter().filter_map(RowAnswer::report).collect(),
    }
}

/// The lines that still count. When a reload changes a row's line, the agent remembers the old line too for a while:
/// a row is silent only when all of its lines are.
pub fn current(rows: Vec<RowAnswer>) -> Vec<RowAnswer> {
    let asked = |row: &RowAnswer| row.asked_ms_ago.unwrap_or(u64::MAX);
    let mut last_asked: BTreeMap<String, u64> = BTreeMap::new();
    for row in &rows {
        let least = last_asked.entry(row.row.clone()).or_insert(u64::MAX);
        *least = (*least).min(asked(row));
    }
    let counts = |row: &RowAnswer| {
        let is_latest = last_asked.get(&row.row) == Some(&asked(row));
        is_latest || row.verdict() != Verdict::Silent
    };
    rows.into_iter().filter(|row| counts(row)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(line: &str, asked_ms_ago: u64, verdict: &str) -> RowAnswer {
        RowAnswer {
            row: line.split(' ').next().unwrap().to_owned(),
            keys: line.split(' ').map(str::to_owned).collect(),
            asked_ms_ago: Some(asked_ms_ago),
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
    fn rows_that_never_asked_have_no_answer() {
        let rows: Vec<RowAnswer> = serde_json::from_str(
            r#"[{"row": "web/a", "keys": [], "answer": null, "index": null, "asked_ms_ago": null,
                 "observed": {"admin": "ready"}, "verdict": "silent", "enrolled": true},
                {"row": "web/b", "keys": [], "answer": null, "verdict": "unobserved", "enrolled": false}]"#,
        )
        .unwrap();
        let report = report(&NodeAnswer::default(), &rows);
        assert_eq!(report.rows.len(), 1, "what is not enrolled is no laggard");
        assert_eq!(report.rows[0].asked_ago, None);
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

    #[test]
    fn an_agent_check_that_is_off_is_told_before_the_row_falls_silent() {
        let off = |enabled: bool| RowAnswer {
            observed: Some(serde_json::json!({ "agent_enabled": enabled })),
            why: Some("down by its health check".to_owned()),
            ..row("web/a", 500, "converged")
        };
        assert!(off(false).cause().unwrap().contains("disabled"));
        assert_eq!(off(true).cause(), None, "a reason for something else");
    }
}
