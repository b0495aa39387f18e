//! What status says: nodes, rows and keys, put together.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::time::Duration;

use haplane_core::outlook::Outlook;
use haplane_core::verdict::Verdict;
use haplane_core::{Key, Snapshot};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::Value as Json;

use crate::command::show::{self, ShownKey};
use crate::fleet::answers::HaproxyAnswer;
use crate::fleet::{Missing, Node};
use crate::knowledge::Knowledge;
use crate::report::{BAD, Cell, GOOD, NOTABLE, Report, Table};
use crate::times;
use crate::wait::unobserved;

/// A node whose last contact with its store is older than this is stale: its blocking query comes
/// back after 30 s at most.
const STALE_AFTER: Duration = Duration::from_mins(1);

/// The JSON of `haplane status`.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    /// `None` when the store cannot be read, and all that follows is the agents' word.
    index: Option<u64>,
    nodes: Vec<NodeLine>,
    unreachable: Vec<Unreachable>,
    rows: Vec<RowLine>,
    /// Rows that no write reaches.
    not_enrolled: Vec<Key>,
    keys: Vec<ShownKey>,
    unused_keys: Vec<String>,
}

#[derive(Debug, Serialize)]
struct NodeLine {
    node: String,
    address: String,
    version: String,
    index: Option<u64>,
    age_ms: Option<u64>,
    /// `fresh`, `stale` or `guarded`.
    state: &'static str,
    guard: Option<Json>,
    error: Option<String>,
    /// How far its clock is ahead, where it is another than this host's.
    clock_ahead_ms: Option<i64>,
    haproxy: Vec<HaproxyAnswer>,
    /// Another agent that registers by its name: one of the two is not seen here.
    rival: Option<String>,
    rows: BTreeMap<&'static str, usize>,
}

#[derive(Debug, Serialize)]
struct Unreachable {
    node: Option<String>,
    address: String,
    error: String,
}

#[derive(Debug, Serialize)]
struct RowLine {
    row: Key,
    /// `None` when the store cannot be read.
    desired: Option<String>,
    decided_by: Option<Key>,
    verdicts: BTreeMap<&'static str, usize>,
    /// What agents answered last, and how many of them.
    answered: BTreeMap<String, usize>,
    #[serde(skip)]
    in_rotation: bool,
}

impl Summary {
    pub(super) fn of(
        snapshot: &Snapshot,
        knowledge: &Knowledge,
        keys: Vec<ShownKey>,
        now: Timestamp,
    ) -> Self {
        let asked: Vec<&Key> = knowledge.known.rows.values().flatten().collect();
        let is_unused = |key: &&ShownKey| !asked.iter().any(|asked| asked.as_str() == key.key);
        let unused = keys.iter().filter(|_| knowledge.known.rows_are_known);
        let unused_keys = unused
            .filter(is_unused)
            .map(|key| key.key.clone())
            .collect();
        Self {
            index: Some(snapshot.index),
            rows: row_lines(snapshot, knowledge, now),
            keys,
            unused_keys,
            ..Self::without_store(knowledge)
        }
    }

    /// What agents tell by themselves: what is desired, and by whom, nobody can say.
    pub(super) fn without_store(knowledge: &Knowledge) -> Self {
        let census = &knowledge.census;
        let unreachable = |one: &Missing| Unreachable {
            node: one.name.clone(),
            address: one.address.clone(),
            error: one.why.clone(),
        };
        Self {
            index: None,
            nodes: census.nodes.iter().map(node_line).collect(),
            unreachable: census.absent.iter().map(unreachable).collect(),
            rows: answered_lines(knowledge, None),
            not_enrolled: knowledge.out_of_reach.clone(),
            keys: Vec::new(),
            unused_keys: Vec::new(),
        }
    }

    /// The same for people.
    pub(super) fn tell(&self, report: Report, all: bool, now: Timestamp) -> Report {
        let report = report.line(self.headline()).table(self.node_table());
        let blind = self.nodes.iter().filter(|node| node.haproxy.is_empty());
        let report = match unobserved(blind.count(), self.nodes.len()) {
            Some(text) => report.line(text),
            None => report,
        };
        let report = self.tell_rows(report, all);
        let report = if self.keys.is_empty() {
            report
        } else {
            report.line("").table(show::table(&self.keys, now))
        };
        self.tell_forgotten(report, now)
    }

    fn headline(&self) -> String {
        let total = self.nodes.len() + self.unreachable.len();
        let fresh = self
            .nodes
            .iter()
            .filter(|node| node.state == "fresh")
            .count();
        let well = |row: &&RowLine| !row.is_in_trouble();
        let rows = self.rows.iter().filter(well).count();
        match self.index {
            Some(index) if self.rows.is_empty() => {
                format!("{fresh}/{total} load balancers fresh, no row is known, index {index}")
            }
            Some(index) => format!(
                "{fresh}/{total} load balancers fresh, {rows}/{} rows as desired, index {index}",
                self.rows.len()
            ),
            None => format!(
                "the store cannot be read; this is what {}/{total} load balancers say of {} rows \
                 (unknown: what is desired now, the keys, who wrote them)",
                self.nodes.len(),
                self.rows.len()
            ),
        }
    }

    /// Those in trouble first: there may be a hundred lines.
    fn node_table(&self) -> Table {
        let mut table = Table::new(&["NODE", "STATE", "INDEX", "ROWS", "TROUBLE", "ADDRESS"]);
        for one in &self.unreachable {
            table.push(vec![
                one.node.clone().unwrap_or_default().into(),
                Cell::styled("unreachable", BAD),
                "".into(),
                "".into(),
                Cell::styled(one.error.clone(), BAD),
                one.address.clone().into(),
            ]);
        }
        let (well, troubled): (Vec<_>, Vec<_>) = self.nodes.iter().partition(|node| node.is_well());
        for node in troubled.into_iter().chain(well) {
            let style = if node.state == "fresh" { GOOD } else { BAD };
            let index = node.index.map(|index| index.to_string());
            let rows = node.rows.get("total").copied().unwrap_or(0);
            table.push(vec![
                node.node.clone().into(),
                Cell::styled(node.state, style),
                index.unwrap_or_else(|| "none".to_owned()).into(),
                rows.to_string().into(),
                Cell::styled(node.troubles().join(", "), BAD),
                node.address.clone().into(),
            ]);
        }
        table
    }

    fn tell_rows(&self, report: Report, all: bool) -> Report {
        let mut table = Table::new(&["ROW", "DESIRED", "ANSWERED", "BY", "VERDICTS"]);
        let notable = |row: &&RowLine| all || row.is_in_trouble() || !row.in_rotation;
        let (troubled, others): (Vec<_>, Vec<_>) = self
            .rows
            .iter()
            .filter(notable)
            .partition(|row| row.is_in_trouble());
        for row in troubled.into_iter().chain(others) {
            // Where it is known what is desired, the verdicts say whether that is answered.
            let answered = match &row.desired {
                Some(_) => String::new(),
                None => counts(&row.answered),
            };
            let style = if row.is_in_trouble() { BAD } else { GOOD };
            let desired = if row.in_rotation { GOOD } else { NOTABLE };
            table.push(vec![
                row.row.to_string().into(),
                Cell::styled(row.desired.clone().unwrap_or_default(), desired),
                Cell::styled(answered, desired),
                row.decided_by
                    .as_ref()
                    .map(Key::to_string)
                    .unwrap_or_default()
                    .into(),
                Cell::styled(counts(&row.verdicts), style),
            ]);
        }
        let report = if table.is_empty() {
            report
        } else {
            report.line("").table(table)
        };
        if self.not_enrolled.is_empty() {
            return report;
        }
        report.line(format!(
            "not enrolled, out of haplane's reach: {}",
            crate::command::names(self.not_enrolled.iter())
        ))
    }

    fn tell_forgotten(&self, report: Report, now: Timestamp) -> Report {
        let forgotten = self.keys.iter().filter(|key| key.forgotten);
        let mut report = forgotten.fold(report, |report, key| {
            let since = key
                .since
                .map(|since| times::between(since, now))
                .unwrap_or_default();
            let by = key.by.as_deref().unwrap_or("nobody who left a name");
            report.line(format!(
                "{BAD}forgotten?{BAD:#} {} is {} since {since}, by {by}",
                key.key, key.value
            ))
        });
        if !self.unused_keys.is_empty() {
            let unused = self.unused_keys.join(", ");
            report = report.line(format!("keys that no row asks for: {unused}"));
        }
        report
    }
}

impl NodeLine {
    fn is_well(&self) -> bool {
        self.state == "fresh" && self.troubles().is_empty()
    }

    fn troubles(&self) -> Vec<String> {
        let counted = |verdict: &Verdict| {
            let count = self.rows.get(verdict.as_str()).copied().unwrap_or(0);
            (count > 0).then(|| format!("{count} {}", verdict.as_str()))
        };
        let clock = self.clock_ahead_ms.map(SignedDuration::from_millis);
        Verdict::ALL
            .iter()
            .filter(|verdict| !matches!(verdict, Verdict::Converged | Verdict::Unobserved))
            .filter_map(counted)
            .chain(self.error.clone())
            .chain(self.haproxy.iter().filter_map(|one| one.error.clone()))
            .chain(clock.map(times::clock_is))
            .collect()
    }
}

impl RowLine {
    fn is_in_trouble(&self) -> bool {
        let fine = [Verdict::Converged.as_str(), Verdict::Unobserved.as_str()];
        self.verdicts.keys().any(|verdict| !fine.contains(verdict))
    }
}

fn node_line(node: &Node) -> NodeLine {
    let store = &node.answer.store;
    let stale = store
        .age_ms
        .is_none_or(|age| Duration::from_millis(age) > STALE_AFTER);
    let state = match (&store.guard, stale) {
        (Some(_), _) => "guarded",
        (None, true) => "stale",
        (None, false) => "fresh",
    };
    let mut rows: BTreeMap<&'static str, usize> = Verdict::ALL
        .iter()
        .map(|verdict| (verdict.as_str(), 0))
        .collect();
    for row in &node.rows {
        *rows.entry(row.verdict().as_str()).or_default() += 1;
    }
    rows.insert("total", node.rows.len());
    NodeLine {
        node: node.answer.node.clone(),
        address: node.address.to_string(),
        version: node.answer.version.clone(),
        index: store.index,
        age_ms: store.age_ms,
        state,
        guard: store.guard.clone(),
        error: node.answer.store_trouble(),
        clock_ahead_ms: node.ahead.map(clock_millis),
        haproxy: node.answer.haproxy.clone(),
        rival: node.answer.rival.clone(),
        rows,
    }
}

fn clock_millis(ahead: SignedDuration) -> i64 {
    i64::try_from(ahead.as_millis()).unwrap_or(i64::MAX)
}

/// `2 drain, 1 ready`.
fn counts(counted: &BTreeMap<impl Display, usize>) -> String {
    let parts: Vec<String> = counted
        .iter()
        .map(|(what, count)| format!("{count} {what}"))
        .collect();
    parts.join(", ")
}

/// The rows as the store wants them.
fn row_lines(snapshot: &Snapshot, knowledge: &Knowledge, now: Timestamp) -> Vec<RowLine> {
    let present = Outlook::present(snapshot, now);
    let with_desired = |mut line: RowLine| {
        if let Some(keys) = knowledge.known.rows.get(&line.row) {
            let desired = present.desired(keys);
            line.desired = Some(desired.to_string());
            line.decided_by = present.deciding(keys).map(|(key, _)| key.clone());
            line.in_rotation = desired.in_rotation();
        }
        line
    };
    let lines = answered_lines(knowledge, Some(&present));
    lines.into_iter().map(with_desired).collect()
}

/// The rows as agents answer them. One that does as it was answered, and was answered something else than is desired by
/// now, is pending.
fn answered_lines(knowledge: &Knowledge, present: Option<&Outlook<'_>>) -> Vec<RowLine> {
    let line = |row: &Key| RowLine {
        row: row.clone(),
        desired: None,
        decided_by: None,
        verdicts: BTreeMap::new(),
        answered: BTreeMap::new(),
        in_rotation: true,
    };
    let rows = knowledge.known.rows.keys();
    let mut lines: BTreeMap<&Key, RowLine> = rows.map(|row| (row, line(row))).collect();
    let answers = || knowledge.census.nodes.iter().flat_map(|node| &node.rows);
    let yet_to_ask: BTreeSet<&str> = answers()
        .filter(|answer| answer.is_yet_to_ask())
        .map(|answer| answer.row.as_str())
        .collect();
    for answer in answers().filter(|answer| !answer.is_yet_to_ask()) {
        let of_row = answer.keys().and_then(|(row, _)| lines.get_mut(&row));
        let Some(line) = of_row else {
            continue;
        };
        let verdict = present.map_or(answer.verdict(), |present| answer.verdict_on(present).0);
        *line.verdicts.entry(verdict.as_str()).or_default() += 1;
        if let Some(word) = answer.answer.clone().filter(|word| !word.is_empty()) {
            line.in_rotation &= !says_out(&word);
            *line.answered.entry(word).or_default() += 1;
        }
    }
    let is_known =
        |line: &RowLine| !line.verdicts.is_empty() || !yet_to_ask.contains(line.row.as_str());
    lines.into_values().filter(is_known).collect()
}

/// Whether an agent's answer keeps a row from new traffic.
fn says_out(answer: &str) -> bool {
    let out = ["drain", "maint", "0%"];
    answer.split(' ').any(|word| out.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::Census;
    use crate::fleet::answers::{NodeAnswer, RowAnswer, StoreAnswer};
    use haplane_core::target::Known;

    #[test]
    fn whoever_is_in_trouble_comes_first() {
        let node = |name: &str, verdict: &str| Node {
            address: "127.0.0.1:9".parse().unwrap(),
            answer: NodeAnswer {
                node: name.to_owned(),
                store: StoreAnswer {
                    age_ms: Some(10),
                    ..StoreAnswer::default()
                },
                ..NodeAnswer::default()
            },
            ahead: None,
            rows: vec![RowAnswer {
                row: "web/a".to_owned(),
                keys: vec!["web/a".to_owned()],
                answer: Some("drain".to_owned()),
                verdict: verdict.to_owned(),
                ..RowAnswer::default()
            }],
        };
        let absent = Missing {
            name: Some("lb-9".to_owned()),
            address: "192.0.2.9:9778".to_owned(),
            why: "gone".to_owned(),
        };
        let nodes = vec![node("lb-1", "converged"), node("lb-2", "diverged")];
        let census = Census {
            nodes,
            absent: vec![absent],
        };
        let knowledge = Knowledge {
            census,
            known: Known::default(),
            out_of_reach: Vec::new(),
        };
        let table = Summary::without_store(&knowledge).node_table().render(None);
        let firsts = table
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(' '));
        let names: Vec<&str> = firsts.map(|(name, _)| name).collect();
        assert_eq!(names, ["lb-9", "lb-2", "lb-1"], "{table}");
    }

    #[test]
    fn what_never_asked_and_is_not_late_is_no_row_yet() {
        let row = |name: &str, answer: Option<&str>, verdict: &str| RowAnswer {
            row: name.to_owned(),
            answer: answer.map(str::to_owned),
            verdict: verdict.to_owned(),
            enrolled: Some(true),
            ..RowAnswer::default()
        };
        let census = Census {
            nodes: vec![Node {
                address: "127.0.0.1:9".parse().unwrap(),
                answer: NodeAnswer::default(),
                ahead: None,
                rows: vec![
                    row("web/a", Some("ready 100%"), "converged"),
                    row("web/slot-1", None, "pending"),
                    row("web/late", None, "silent"),
                ],
            }],
            absent: Vec::new(),
        };
        let known = Known {
            rows: census.rows(),
            ..Known::default()
        };
        let knowledge = Knowledge {
            census,
            known,
            out_of_reach: Vec::new(),
        };
        let lines = answered_lines(&knowledge, None);
        let names: Vec<&str> = lines.iter().map(|line| line.row.as_str()).collect();
        assert_eq!(names, ["web/a", "web/late"]);
    }
}
