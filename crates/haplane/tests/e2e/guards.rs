//! What a writer is kept from doing by mistake.

use std::io::{BufRead as _, BufReader};
use std::time::{Duration, Instant};

use haplane_testkit::consul::{Consul, Options};
use haplane_testkit::fake_consul::{FakeConsul, Reply};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::command::{Haplane, run_of};
use crate::fleet::Fleet;

#[tokio::test(flavor = "multi_thread")]
async fn slips_floors_and_forgotten_groups() {
    let fleet = Fleet::start(1).await;
    let haplane = &fleet.haplane;

    let slip = haplane.run(&["set", "canry", "drain"]).exits(3);
    assert!(
        slip.stderr.contains("did you mean canary?"),
        "{}",
        slip.stderr
    );
    haplane.run(&["set", "canry", "drain", "--force"]).exits(0);
    haplane.run(&["clear", "canry"]).exits(0);
    haplane.run(&["drain", "web/*mars*"]).exits(3);
    haplane.run(&["drain", "-z", "mars"]).exits(3);

    let refused = haplane
        .run(&[
            "set",
            "web/*",
            "drain",
            "--min-ready",
            "50%",
            "--dry-run",
            "--json",
        ])
        .exits(3);
    assert!(
        refused.stderr.contains("web 100% -> 0%"),
        "{}",
        refused.stderr
    );
    assert_eq!(refused.json()["changed"], json!([]));
    haplane
        .run(&["set", "-z", "us-east1-b", "drain", "--min-ready", "50%"])
        .exits(0);
    haplane
        .run(&["set", "-z", "us-east1-c", "drain", "--min-ready", "50%"])
        .exits(3);
    haplane
        .run(&[
            "set",
            "-z",
            "us-east1-c",
            "drain",
            "--min-ready",
            "50%",
            "--force-below-floor",
        ])
        .exits(0);

    haplane.run(&["set", "canary", "drain"]).exits(0);
    haplane
        .run(&["set", "canary_web/gke-cny-web", "drain"])
        .exits(0);
    let kept = haplane
        .run(&["ready", "canary_web/gke-cny-web", "--json"])
        .exits(0);
    assert_eq!(
        kept.json()["kept_out"],
        json!([{"row": "canary_web/gke-cny-web", "key": "canary", "value": "drain"}])
    );
    let explicit = haplane
        .run(&["ready", "canary_web/gke-cny-web", "--explicit", "--json"])
        .exits(0);
    assert_eq!(explicit.json()["kept_out"], json!([]));
    assert_eq!(
        explicit.json()["brought_in"],
        kept.json()["kept_out"],
        "canary = drain is overridden, and that is said"
    );
    assert_eq!(
        fleet.value("canary_web/gke-cny-web").await.unwrap(),
        "ready"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ramp_goes_step_by_step_and_stops_when_somebody_interferes() {
    let mut fleet = Fleet::start(1).await;
    let words = [
        "ramp",
        "canary",
        "25%,50%,100%",
        "--every",
        "1s",
        "--wait",
        "--json",
    ];
    fleet.haplane.run(&["set", "canary", "drain"]).exits(0);
    let ramp = fleet.haplane.run(&words).exits(0).json();
    assert_eq!(
        ramp["changed"],
        json!([{"key": "canary", "before": "drain", "after": null}]),
        "at 100% the key is gone, as with ready"
    );
    let log = fleet.haplane.run(&["log", "--json"]).exits(0).json();
    let steps: Vec<&Value> = log["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| &entry["changes"][0]["after"])
        .collect();
    assert_eq!(json!(steps), json!([null, "50%", "25%", "drain"]));
    let row = fleet.balancers[0]
        .haproxy
        .server("canary_web/gke-cny-web")
        .await;
    assert_eq!(row.number("srv_uweight"), row.number("srv_iweight"));

    // From absent it comes back to where it began, which is not nothing.
    let words = ["ramp", "canary", "25%,100%", "--every", "1s"];
    let around = fleet.haplane.run(&words).exits(0);
    assert!(
        around.stdout.ends_with("every key is what it was before\n"),
        "{around:?}"
    );

    let words = ["ramp", "canary", "25%,50%,100%", "--every", "3s"];
    let ramp = fleet.in_background(&words);
    fleet.becomes("canary", "25%").await;
    let bob = fleet.haplane.with("USER", "bob");
    bob.run(&["set", "canary", "drain"]).exits(0);
    let stopped = run_of(ramp.wait_with_output().unwrap()).exits(3);
    assert_eq!(fleet.value("canary").await.unwrap(), "drain");
    for words in ["bob", "to go on: haplane ramp canary 50%,100% --every 3s"] {
        assert!(stopped.stderr.contains(words), "{words} in {stopped:?}");
    }

    // Also where the first step finds the key as it wants it.
    fleet.haplane.run(&["set", "canary", "25%"]).exits(0);
    let mut ramp = fleet.in_background(&words);
    let mut said = BufReader::new(ramp.stderr.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("25% is written") {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "it ended");
    }
    bob.run(&["set", "canary", "maint"]).exits(0);
    run_of(ramp.wait_with_output().unwrap()).exits(3);
    assert_eq!(fleet.value("canary").await.unwrap(), "maint");

    // Proven, and lost before the next step: that one is not written.
    fleet.haplane.run(&["clear", "canary"]).exits(0);
    let ramp = fleet.in_background(&words);
    fleet.becomes("canary", "25%").await;
    fleet.haplane.run(&["wait", "canary"]).exits(0);
    fleet.balancers[0].agent.process().kill();
    let stopped = run_of(ramp.wait_with_output().unwrap()).exits(4);
    assert_eq!(fleet.value("canary").await.unwrap(), "25%");
    assert!(stopped.stderr.contains("does not answer"), "{stopped:?}");
}

/// The lost one may be the one where too little would be left.
#[tokio::test(flavor = "multi_thread")]
async fn a_floor_needs_every_load_balancer() {
    let mut fleet = Fleet::start(2).await;
    fleet.balancers[1].agent.process().kill();
    let words = ["set", "canary", "50%", "--min-ready", "10%"];
    let refused = fleet.haplane.run(&words).exits(3);
    for said in [
        "lb-02: its agent at",
        "haplane forget",
        "--force-below-floor",
    ] {
        assert!(refused.stderr.contains(said), "{said} in {refused:?}");
    }
    assert_eq!(fleet.value("canary").await, None);
    fleet.haplane.run(&["forget", "lb-02", "--yes"]).exits(0);
    fleet.haplane.run(&words).exits(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_environment_can_demand_a_yes() {
    let consul = Consul::start(Options::new()).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = format!(
        "store = \"dir:/nowhere\"\n[env.gprd]\nstore = \"consul:{}\"\nconfirm = true\n\
         dashboard = \"https://dashboards.example/canary\"\n",
        consul.url()
    );
    std::fs::write(file.path(), text).unwrap();
    let haplane = Haplane::without_store().with("HAPLANE_CONFIG", file.path().to_str().unwrap());
    haplane.run(&["--env", "gprd", "init", "--yes"]).exits(0);
    let refused = haplane
        .run(&["--env", "gprd", "set", "canary", "drain", "--json"])
        .exits(3);
    assert!(refused.stderr.contains("--yes"), "{}", refused.stderr);
    let document = refused.json();
    assert_eq!(document["changed"], json!([]), "{document}");
    assert!(document["index"].is_u64(), "{document}");
    assert_eq!(document["error"]["exit"], 3, "{document}");
    let ramp = ["--env", "gprd", "ramp", "canary", "10%,50%", "--force"];
    let ramp = haplane.run(&ramp).exits(3).stderr;
    let rest = "to go on: haplane --env gprd ramp canary 10%,50% --force";
    assert!(ramp.contains(rest), "{ramp}");
    assert!(consul.get("haplane/state/canary").await.is_none());
    haplane
        .run(&["--env", "gprd", "set", "canary", "drain", "--dry-run"])
        .exits(0);
    haplane
        .run(&["--env", "gprd", "set", "canary", "drain", "--yes"])
        .exits(0);
    let begun = Instant::now();
    haplane
        .run(&["--env", "gprd", "drain", "canary", "--grace", "60s"])
        .exits(3);
    assert!(
        begun.elapsed() < Duration::from_secs(30),
        "asked before the grace, not after it"
    );
    let status = haplane
        .run(&["canary", "--status", "--env", "gprd", "--json"])
        .exits(0)
        .json();
    assert_eq!(status["dashboard"], "https://dashboards.example/canary");
    let slip = haplane.run(&["show", "--env", "gprod"]).exits(2);
    assert!(
        slip.stderr.contains("did you mean gprd?"),
        "{}",
        slip.stderr
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_writers_at_once_leave_one_history() {
    let consul = Consul::start(Options::new()).await;
    let haplane = Haplane::on(format!("consul:{}", consul.url()));
    haplane.run(&["init"]).exits(0);
    let writers: Vec<_> = (0..20)
        .map(|n| {
            let (first, second) = (format!("k{}", n % 3), format!("k{}", (n + 1) % 3));
            let weight = format!("{n}%");
            let mut command = haplane.command(&["set", &first, &second, &weight, "--json"]);
            command
                .stdout(std::process::Stdio::piped())
                .stderr(std::process::Stdio::piped());
            command.spawn().unwrap()
        })
        .collect();
    let mut written = 0;
    for writer in writers {
        let run = run_of(writer.wait_with_output().unwrap());
        match run.exit {
            0 => written += 1,
            3 => assert!(run.stderr.contains("meanwhile"), "{run:?}"),
            _ => panic!("{run:?}"),
        }
    }
    assert!(written >= 1);
    let log = haplane
        .run(&["log", "--limit", "100", "--json"])
        .exits(0)
        .json();
    let entries = log["entries"].as_array().unwrap();
    assert_eq!(
        entries.len(),
        written,
        "who succeeded is in the log, who did not is not"
    );
    // Each key's history is a chain: what one found is what another left.
    for key in ["k0", "k1", "k2"] {
        let changes: Vec<&Value> = entries
            .iter()
            .flat_map(|entry| entry["changes"].as_array().unwrap())
            .filter(|change| change["key"] == key)
            .collect();
        let now = consul.get(&format!("haplane/state/{key}")).await;
        let mut value = now.map_or(json!(null), |entry| {
            json!(String::from_utf8(entry.value).unwrap())
        });
        for _ in 0..changes.len() {
            let wrote = changes.iter().find(|change| change["after"] == value);
            value = wrote.unwrap_or_else(|| panic!("nobody wrote {value} to {key}: {changes:?}"))["before"].clone();
        }
        assert_eq!(value, json!(null), "{key}: {changes:?}");
    }
}

/// A clock of another host cannot be set back by a test, so a made-up agent says what time it is.
#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_is_over_by_a_load_balancers_clock_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let agent = FakeConsul::start();
    let haplane =
        Haplane::on(format!("dir:{}", dir.path().display())).with("HAPLANE_AGENTS", &agent.url());
    haplane.run(&["init"]).exits(0);
    let row =
        json!({"row": "web/a", "keys": ["web/a"], "answer": "ready 100%", "verdict": "converged"});
    agent.always("/v1/rows", Reply::status(200, json!([row]).to_string()));
    let clock_is = |ahead: i64| {
        let now = Timestamp::now() + SignedDuration::from_secs(ahead);
        let node = json!({"node": "lb-1", "now": now});
        agent.always("/v1/node", Reply::status(200, node.to_string()));
    };
    let for_an_hour = ["set", "web/a", "drain", "--for", "1h"];

    clock_is(3 * 3600 + 30 * 60 + 30);
    let refused = haplane.run(&for_an_hour).exits(3);
    let told = "its clock is 3h 30m ahead of this host's";
    assert!(refused.stderr.contains(told), "{refused:#?}");
    let state = haplane.run(&["show", "--json"]).json();
    assert_eq!(state["keys"], json!([]));
    let status = haplane.run(&["status"]);
    assert!(status.stdout.contains(told), "{status:#?}");
    // What has no end needs no clock.
    let set = haplane.run(&["set", "web/a", "maint"]).exits(0);
    assert!(!set.stderr.contains("clock"), "{set:#?}");

    clock_is(-600);
    let warned = haplane.run(&for_an_hour).exits(0);
    assert!(warned.stderr.contains("behind this host's"), "{warned:#?}");
    let status = haplane.run(&["status", "--json"]).json();
    let ahead = status["nodes"][0]["clock_ahead_ms"].as_i64().unwrap();
    assert!((-630_000..=-600_000).contains(&ahead), "{ahead}");

    clock_is(0);
    let quiet = haplane
        .run(&["set", "web/a", "50%", "--for", "1h"])
        .exits(0);
    assert!(!quiet.stderr.contains("clock"), "{quiet:#?}");
}
