//! Seeds: named rows, their ports, and what a new process makes of them.

use haplane_core::resolve::{Absent, Policy};
use haplane_core::seed::{Seed, States, seed, write};
use haplane_core::snapshot::{Pair, Snapshot};
use haplane_haproxy::AdminState;
use haplane_haproxy::cfg::{Config, Context, SourceFile};
use haplane_haproxy::server_state::{HEADER, read_answer};
use jiff::Timestamp;

const CONFIG: &str = r#"global
 server-state-file /var/lib/seed
defaults
 load-server-state-from-file global
 default-server agent-addr 127.0.0.1 agent-port 9777 agent-inter 2s weight 100
backend web
 server a 192.0.2.1:80 agent-check agent-send "web/a canary\n"
 server b 192.0.2.2:8080 agent-check agent-send "web/b\n" check port 9000
 server c db.example:81 agent-check agent-send "web/c\n"
 server off 192.0.2.4:80 agent-check agent-send "web/off canary\n" disabled
 server plain 192.0.2.5:80
 server low 192.0.2.6:-5 agent-check agent-send "web/low canary\n"
backend slots
 server-template s 2 127.0.0.1:1 agent-check agent-send "@free\n"
"#;

fn config(text: &str) -> Config {
    Config::parse(
        vec![SourceFile::new("haproxy.cfg", text)],
        &Context::default(),
    )
}

fn snapshot(keys: &[(&str, &str)]) -> Snapshot {
    let pair = |(key, value): &(&str, &str)| Pair {
        path: (*key).to_owned(),
        value: value.as_bytes().to_vec(),
        version: 1,
        log_id: None,
    };
    Snapshot::new(1, keys.iter().map(pair))
}

fn desired(keys: &[(&str, &str)], policy: Policy) -> Seed {
    seed(
        &config(CONFIG),
        States::Desired {
            snapshot: &snapshot(keys),
            now: Timestamp::UNIX_EPOCH,
            policy,
        },
    )
}

/// `row state port weight`.
fn told(seed: &Seed) -> Vec<String> {
    seed.rows
        .iter()
        .map(|row| format!("{} {} {} {}", row.row, row.state, row.port, row.weight))
        .collect()
}

#[test]
fn rows_out_of_rotation_and_other_weights_are_named() {
    let seed = desired(
        &[("canary", "drain"), ("web/b", "maint"), ("web/c", "50%")],
        Policy::default(),
    );
    assert_eq!(
        told(&seed),
        [
            "web/a drain 80 100",
            "web/b maint 8080 100",
            "web/c ready 81 50",
            "slots/s1 maint 1 100",
            "slots/s2 maint 1 100",
        ]
    );
    let skipped: Vec<_> = seed
        .skipped
        .iter()
        .map(|(row, _)| row.to_string())
        .collect();
    assert_eq!(skipped, ["web/low"], "a port that the file cannot say");
    let text = write(&config(CONFIG), &seed, "lb-01").unwrap();
    assert_eq!(text.lines().count(), 3 + 5);
}

#[test]
fn what_is_ready_or_over_or_not_ours_is_not_named() {
    let over = [
        ("canary", "drain until=1969-01-01T00:00:00Z"),
        ("web/b", "nonsense"),
        ("web/plain", "drain"),
    ];
    let only_slots = ["slots/s1 maint 1 100", "slots/s2 maint 1 100"];
    assert_eq!(told(&desired(&over, Policy::default())), only_slots);
    let keep = Policy {
        absent: Absent::Keep,
        ..Policy::default()
    };
    assert_eq!(told(&desired(&[], keep)), only_slots);
}

#[test]
fn the_running_process_as_the_next_best() {
    let rows = "2 web 1 a 192.0.2.1 2 8 100 100 1 1 0 2 0 22 0 0 - 1443 - 0 0 - - 0\n\
                2 web 2 b 192.0.2.2 2 0 7 100 1 1 0 2 0 22 0 0 - 80 - 0 0 - - 0\n\
                2 web 3 c 192.0.2.3 2 0 7 50 1 1 0 2 0 22 0 0 - 80 - 0 0 - - 0\n\
                2 web 4 gone 192.0.2.3 2 8 7 50 1 1 0 2 0 22 0 0 - 80 - 0 0 - - 0\n";
    let rows = read_answer(&format!("1\n{HEADER}\n{rows}\n")).unwrap();
    let seed = seed(&config(CONFIG), States::Running(&rows));
    // The port is the configuration's, and a changed configured weight wins.
    assert_eq!(told(&seed), ["web/a drain 80 100", "web/b ready 8080 7"]);
    assert!(write(&config(CONFIG), &seed, "").is_ok());
}

#[test]
fn a_drain_beside_a_weight_of_zero_is_told() {
    let text = CONFIG.replace("weight 100", "weight 0");
    let snapshot = snapshot(&[("canary", "drain")]);
    let states = States::Desired {
        snapshot: &snapshot,
        now: Timestamp::UNIX_EPOCH,
        policy: Policy::default(),
    };
    let seed = seed(&config(&text), states);
    assert_eq!(seed.rows[0].state, AdminState::Drain);
    assert!(write(&config(&text), &seed, "").is_ok());
}
