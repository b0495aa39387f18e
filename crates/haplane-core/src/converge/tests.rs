use jiff::Timestamp;

use super::*;
use crate::snapshot::{Pair, Snapshot};

fn key(text: &str) -> Key {
    text.parse().unwrap()
}

fn row(line: &str, index: u64, verdict: Verdict) -> RowReport {
    let keys: Vec<Key> = line.split(' ').map(key).collect();
    RowReport {
        row: keys[0].clone(),
        keys,
        answer: "drain".to_owned(),
        index,
        asked_ago: Some(Duration::from_millis(800)),
        verdict,
        cause: None,
        observed: None,
    }
}

fn node(name: &str, index: u64, rows: Vec<RowReport>) -> NodeReport {
    NodeReport {
        node: name.to_owned(),
        index: Some(index),
        store_trouble: None,
        haproxy_trouble: Vec::new(),
        rival: None,
        rows,
    }
}

fn canary() -> Scope {
    Scope::Keys([key("canary")].into())
}

fn prove_canary(nodes: &[NodeReport], absent: &[Absentee]) -> Proof {
    let pair = Pair {
        path: "canary".to_owned(),
        value: b"drain".to_vec(),
        version: 7,
        log_id: None,
    };
    let snapshot = Snapshot::new(7, [pair]);
    let present = Outlook::present(&snapshot, Timestamp::UNIX_EPOCH);
    prove(7, &canary(), &present, nodes, absent)
}

fn why(proof: &Proof) -> Vec<String> {
    let told = |laggard: &Laggard| {
        let row = laggard.row.as_ref().map_or("*", Key::as_str);
        format!("{} {row}: {}", laggard.node, laggard.why)
    };
    proof.laggards.iter().map(told).collect()
}

#[test]
fn all_there() {
    let rows = || {
        vec![
            row("web/a canary", 7, Verdict::Converged),
            row("web/b canary", 8, Verdict::Unobserved),
            row("web/main", 3, Verdict::Diverged),
        ]
    };
    let proof = prove_canary(&[node("lb1", 7, rows()), node("lb2", 9, rows())], &[]);
    assert!(proof.holds(), "{proof:?}");
    assert_eq!(
        proof.rows,
        Tally {
            total: 2,
            converged: 2
        },
        "distinct rows of the scope only"
    );
    assert_eq!(
        proof.nodes,
        Tally {
            total: 2,
            converged: 2
        }
    );
}

#[test]
fn nobody_proves_nothing() {
    assert!(!prove_canary(&[], &[]).holds());
}

#[test]
fn each_kind_of_laggard_is_named_with_its_cause() {
    let mut cut_off = node("cut", 6, vec![row("web/a canary", 6, Verdict::Unobserved)]);
    cut_off.store_trouble = Some("cannot reach Consul".to_owned());
    let mut stopped = node(
        "stopped",
        7,
        vec![row("web/a canary", 7, Verdict::Unobserved)],
    );
    stopped.haproxy_trouble = vec!["/run/haproxy.sock does not answer".to_owned()];
    let nodes = [
        node("good", 7, vec![row("web/a canary", 7, Verdict::Converged)]),
        cut_off,
        stopped,
        node("silent", 7, vec![row("web/a canary", 6, Verdict::Silent)]),
        node("late", 7, vec![row("web/a canary", 6, Verdict::Unobserved)]),
        node(
            "by-hand",
            7,
            vec![row("web/a canary", 7, Verdict::Diverged)],
        ),
        node("slow", 7, vec![row("web/a canary", 7, Verdict::Pending)]),
        node("old-cfg", 7, vec![row("web/a", 7, Verdict::Converged)]),
    ];
    let gone = [Absentee {
        node: "gone".to_owned(),
        why: "connection refused".to_owned(),
    }];
    let proof = prove_canary(&nodes, &gone);
    assert!(!proof.holds());
    assert_eq!(
        proof.nodes,
        Tally {
            total: 9,
            converged: 1
        }
    );
    assert_eq!(
        proof.rows,
        Tally {
            total: 1,
            converged: 0
        }
    );
    insta::assert_snapshot!(why(&proof).join("\n"));
}

#[test]
fn a_node_without_the_row_at_all_has_another_role() {
    let nodes = [
        node("main", 7, vec![row("web/a canary", 7, Verdict::Converged)]),
        node("pages", 7, vec![row("pages/a", 7, Verdict::Converged)]),
    ];
    assert!(prove_canary(&nodes, &[]).holds());
}

#[test]
fn an_edit_by_hand_that_raises_no_index_is_still_waited_for() {
    let stale = RowReport {
        answer: "ready 100%".to_owned(),
        ..row("web/a canary", 7, Verdict::Unobserved)
    };
    let proof = prove_canary(&[node("lb", 7, vec![stale.clone()])], &[]);
    assert_eq!(
        why(&proof),
        ["lb web/a: answered \"ready 100%\" although the store says drain"]
    );
    let older = RowReport {
        index: 6,
        ..stale.clone()
    };
    let proof = prove_canary(&[node("lb", 7, vec![older])], &[]);
    assert_eq!(why(&proof).len(), 1, "answered before the write");
    let newer = RowReport { index: 8, ..stale };
    assert!(
        prove_canary(&[node("lb", 8, vec![newer])], &[]).holds(),
        "a later write decided otherwise"
    );
}

#[test]
fn an_answer_is_weighed_with_its_weight() {
    let pair = |path: &str, value: &str| Pair {
        path: path.to_owned(),
        value: value.as_bytes().to_vec(),
        version: 7,
        log_id: None,
    };
    let snapshot = Snapshot::new(7, [pair("half", "50%"), pair("out", "maint")]);
    let present = Outlook::present(&snapshot, Timestamp::UNIX_EPOCH);
    let contradicts = |answer: &str, index: u64, line: &str| {
        let keys: Vec<Key> = line.split(' ').map(key).collect();
        contradiction(answer, index, &keys, &present).is_some()
    };
    for (answer, index, line, expected) in [
        ("ready 50%", 7, "web/a half", false),
        ("up ready 50%", 5, "web/a half", false),
        ("ready 100%", 5, "web/a half", true),
        ("ready 100%", 8, "web/a half", false),
        ("maint", 7, "web/a out", false),
        ("ready 100%", 7, "web/a out", true),
        ("ready", 7, "web/a", false),
        ("drain", 6, "web/a", true),
        ("", 7, "web/a out", false),
    ] {
        assert_eq!(
            contradicts(answer, index, line),
            expected,
            "{answer} {index} {line}"
        );
    }
}
