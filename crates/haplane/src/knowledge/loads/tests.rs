//! What counts as capacity, and how much of it.

use haplane_core::Snapshot;
use haplane_core::floor::{Share, shares};
use serde_json::{Value, json};

use super::*;
use crate::fleet::answers::NodeAnswer;

fn row(name: &str, keys: &[&str], observed: Value) -> RowAnswer {
    RowAnswer {
        row: name.to_owned(),
        keys: keys.iter().map(|&key| key.to_owned()).collect(),
        observed: (!observed.is_null()).then_some(observed),
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

/// A slot: HAProxy shows it, and nobody asks by its name.
fn slot(name: &str, admin: &str, operational: &str) -> RowAnswer {
    let seen = json!({"admin": admin, "operational": operational, "configured_weight": 100});
    RowAnswer {
        enrolled: Some(true),
        ..row(name, &[], seen)
    }
}

/// An instance in a slot: it asks, and HAProxy shows nothing of that name.
fn instance(name: &str, answer: &str) -> RowAnswer {
    RowAnswer {
        answer: Some(answer.to_owned()),
        enrolled: None,
        verdict: "unobserved".to_owned(),
        ..row(name, &[name], Value::Null)
    }
}

/// The shares when these keys are written, on top of what is stored.
fn told(rows: Vec<RowAnswer>, stored: &[(&str, &str)], written: &[(&str, &str)]) -> Vec<String> {
    let node = Node {
        address: "127.0.0.1:9".parse().unwrap(),
        answer: NodeAnswer::default(),
        ahead: None,
        rows,
    };
    let snapshot = Snapshot::default();
    let values = |pairs: &[(&str, &str)]| {
        let value = |(key, value): &(&str, &str)| (key.parse().unwrap(), value.parse().ok());
        pairs.iter().map(value).collect::<Vec<_>>()
    };
    let before = Outlook::present(&snapshot, "2026-11-29T12:00:00Z".parse().unwrap());
    let before = before.with(values(stored));
    let after = before.clone().with(values(written));
    let shares = shares(&loads(&node, &before, &after));
    shares.iter().map(Share::to_string).collect()
}

fn seen(admin: &str, operational: &str, weight: u64) -> Value {
    json!({"admin": admin, "operational": operational, "configured_weight": weight})
}

#[test]
fn weights_health_and_what_was_set_by_hand_count() {
    let rows = vec![
        row("web/a", &["web/a", "canary"], seen("ready", "up", 50)),
        row("web/b", &["web/b"], seen("ready", "up", 100)),
        row("web/down", &["web/down"], seen("ready", "down", 100)),
        row("web/by-hand", &["web/by-hand"], seen("drain", "up", 100)),
        row("web/not-enrolled", &[], seen("ready", "up", 50)),
        row("web/slot1", &[], seen("maint", "down", 100)),
    ];
    assert_eq!(told(rows, &[], &[("canary", "drain")]), ["web 50% -> 37%"]);
}

#[test]
fn what_comes_out_of_maintenance_counts_as_it_is_meant() {
    let rows = vec![row("web/a", &["web/a"], seen("maint", "down", 100))];
    assert_eq!(
        told(rows, &[("web/a", "maint")], &[("web/a", "ready")]),
        ["web 0% -> 100%"]
    );
}

#[test]
fn half_of_a_weight_of_one_is_nothing() {
    let rows = |seen: &dyn Fn() -> Value| {
        let names = ["web/a", "web/b"];
        names.map(|name| row(name, &[name], seen())).to_vec()
    };
    let both = [("web/a", "50%"), ("web/b", "50%")];
    let small = rows(&|| seen("ready", "up", 1));
    assert_eq!(told(small, &[], &both), ["web 100% -> 0%"]);
    let unknown = rows(&|| json!({"admin": "ready", "operational": "up"}));
    assert_eq!(told(unknown, &[], &both), ["web 100% -> 50%"]);
}

#[test]
fn a_backup_is_no_capacity() {
    let mut spare = seen("ready", "up", 100);
    spare["backup"] = json!(true);
    let rows = vec![
        row("web/a", &["web/a"], seen("ready", "up", 100)),
        row("web/spare", &["web/spare"], spare),
    ];
    assert_eq!(told(rows, &[], &[("web/a", "drain")]), ["web 100% -> 0%"]);
}

#[test]
fn instances_in_slots_are_the_capacity_and_free_slots_are_none() {
    let mut rows = vec![
        slot("dyn/dyn-1", "ready", "up"),
        slot("dyn/dyn-2", "ready", "up"),
        slot("dyn/dyn-3", "maint", "down"),
        instance("dyn/web-7", "ready 100%"),
        instance("dyn/web-8", "ready 100%"),
        row("@free", &[], Value::Null),
    ];
    let both = [("dyn/web-7", "drain"), ("dyn/web-8", "drain")];
    assert_eq!(told(rows.clone(), &[], &both), ["dyn 100% -> 0%"]);
    assert_eq!(told(rows.clone(), &[], &both[..1]), ["dyn 100% -> 50%"]);

    // One slot of the two is down. Which instance it holds nobody can tell: perhaps the one that stays.
    rows[0] = slot("dyn/dyn-1", "ready", "down");
    assert_eq!(told(rows.clone(), &[], &both[..1]), ["dyn 50% -> 0%"]);

    // An instance with a tenth of a slot's weight, beside a row of its own.
    rows[0] = slot("dyn/dyn-1", "ready", "up");
    rows[4] = instance("dyn/web-8", "ready 10%");
    rows.push(row("dyn/own", &["dyn/own"], seen("ready", "up", 90)));
    assert_eq!(told(rows, &[], &both[..1]), ["dyn 100% -> 50%"]);
}

#[test]
fn without_a_socket_rows_count_alike() {
    let rows = vec![
        instance("web/a", "ready 100%"),
        instance("web/b", "ready 100%"),
        instance("web/c", "drain"),
    ];
    let stored = [("web/c", "drain")];
    assert_eq!(
        told(rows, &stored, &[("web/a", "drain")]),
        ["web 66% -> 33%"]
    );
}

#[test]
fn what_another_agent_answers_stays_where_it_is() {
    let rows = vec![
        slot("web/theirs", "ready", "up"),
        row("web/a", &["web/a"], seen("ready", "up", 100)),
    ];
    assert_eq!(told(rows, &[], &[("web/a", "drain")]), ["web 100% -> 50%"]);
}
