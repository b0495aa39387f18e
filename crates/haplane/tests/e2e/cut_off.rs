//! Consul away for one of them: for an agent, for whoever asks.

use haplane_testkit::eventually::eventually;
use serde_json::json;

use crate::agent_process::{Launch, PATIENCE};
use crate::command::Haplane;
use crate::fleet::{Fleet, laggards};
use crate::relay::Relay;

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_cut_off_from_consul_is_the_laggard() {
    let mut fleet = Fleet::start(3).await;
    let relay = Relay::to(fleet.consul.address()).await;
    let launch = Launch::on(relay.store())
        .with("HAPLANE_NODE", "lb-02")
        .registering();
    fleet.balancers[1].agent.replace(&launch);
    fleet.balancers[1].agent.becomes_ready().await;
    fleet.haplane.run(&["wait", "--json"]).exits(0);

    relay.cut();
    let words = [
        "set",
        "canary",
        "drain",
        "--wait",
        "--timeout",
        "4s",
        "--json",
    ];
    let run = fleet.haplane.run(&words).exits(4);
    let waited = &run.json()["waited"];
    assert_eq!(waited["converged"], false);
    assert_eq!(waited["nodes"], json!({"total": 3, "converged": 2}));
    let named = laggards(waited);
    assert!(
        named.iter().all(|one| one.starts_with("lb-02 ")),
        "{named:?}"
    );
    assert!(
        named[0].contains("its snapshot is of index") && named[0].contains("cannot reach Consul"),
        "{named:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_store_agents_tell_what_they_know() {
    let fleet = Fleet::start(2).await;
    fleet
        .haplane
        .run(&["set", "canary", "drain", "--wait"])
        .exits(0);
    let relay = Relay::to(fleet.consul.address()).await;
    let local = fleet.balancers[0].agent.http().to_string();
    let haplane = Haplane::on(relay.store()).with("HAPLANE_HTTP_LISTEN", &local);
    haplane.run(&["status"]).exits(0);
    relay.cut();

    let both: Vec<String> = fleet
        .balancers
        .iter()
        .map(|one| one.agent.http().to_string())
        .collect();
    let both = both.join(",");
    let run = haplane
        .run(&["status", "--agents", &both, "--json"])
        .exits(5);
    let status = run.json();
    assert_eq!(status["error"]["exit"], 5);
    assert_eq!(status["index"], json!(null));
    assert_eq!(status["nodes"].as_array().unwrap().len(), 2);
    let row = &status["rows"][0];
    assert_eq!(row["row"], "canary_web/gke-cny-web");
    assert_eq!(row["desired"], json!(null), "nobody can say");
    assert_eq!(row["answered"], json!({"drain": 2}));
    assert_eq!(status["unused_keys"], json!([]));

    // Consul cannot name the agents either; the one beside is there all the same.
    let run = haplane.run(&["status"]).exits(5);
    assert!(
        run.stdout.contains("the store cannot be read"),
        "{}",
        run.stdout
    );
    assert!(
        run.stdout.contains("lb-01") && run.stdout.contains("1 drain"),
        "{}",
        run.stdout
    );
    assert!(
        run.stdout.contains("agents cannot be looked up"),
        "{}",
        run.stdout
    );
    assert!(run.stderr.contains("refused"), "{}", run.stderr);

    let why = haplane
        .run(&["why", "canary_web/gke-cny-web", "--json"])
        .exits(5)
        .json();
    assert_eq!(why["error"]["exit"], 5);
    assert_eq!(why["nodes"][0]["answer"], "drain");
    assert_eq!(why["keys"][1]["key"], "canary");
    assert_eq!(why["keys"][1]["decides"], true);
    assert_eq!(why["desired"], json!(null));
    let unknown = haplane.run(&["why", "web/nobody"]).exits(5);
    assert!(
        unknown.stdout.contains("no agent that answers knows"),
        "{unknown:?}"
    );
    watched(&haplane).await;
}

/// `--watch` goes on while the store is away.
async fn watched(haplane: &Haplane) {
    let seen = tempfile::NamedTempFile::new().unwrap();
    let mut command = haplane.command(&["status", "--watch"]);
    command
        .stdout(seen.reopen().unwrap())
        .stderr(std::process::Stdio::null());
    let mut watching = command.spawn().unwrap();
    eventually("two looks", PATIENCE, async || {
        let text = std::fs::read_to_string(seen.path()).unwrap();
        match text.matches("the store cannot be read").count() {
            0 | 1 => Err(text),
            _ => Ok(()),
        }
    })
    .await;
    watching.kill().unwrap();
    watching.wait().unwrap();
}
