//! Out of rotation and back, interrupted and contradicted.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::command::run_of;
use crate::fleet::Fleet;

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_ends_in_maint_and_its_way_back_ramps() {
    let fleet = Fleet::start(2).await;
    let done = fleet
        .haplane
        .run(&[
            "drain",
            "-z",
            "us-east1-b",
            "--grace",
            "1s",
            "--wait",
            "--json",
        ])
        .exits(0)
        .json();
    assert_eq!(
        done["changed"],
        json!([{"key": "web/gke-us-east1-b-web", "before": null, "after": "maint"}])
    );
    assert_eq!(done["rows"], json!(["web/gke-us-east1-b-web"]));
    assert_eq!(
        done["backends"],
        json!([{"backend": "web", "before": 100, "after": 66}])
    );
    assert_eq!(done["waited"]["converged"], true);
    let log = fleet.haplane.run(&["log", "--json"]).exits(0).json();
    assert_eq!(
        log["entries"].as_array().unwrap().len(),
        2,
        "drain, then maint"
    );

    let ready = fleet
        .haplane
        .run(&["ready", "web/gke-us-east1-b-web", "--wait"])
        .exits(0);
    assert!(
        !ready.stderr.contains("slowstart"),
        "from maint it ramps: {}",
        ready.stderr
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_who_says_ready_during_the_drain_is_obeyed() {
    let fleet = Fleet::start(1).await;
    let drain = fleet.in_background(&["canary", "--disable", "--grace", "3s", "--json"]);
    fleet.becomes("canary", "drain").await;
    let bob = fleet.haplane.with("USER", "bob");
    bob.run(&["set", "canary", "ready"]).exits(0);
    let drain = run_of(drain.wait_with_output().unwrap()).exits(3);
    assert_eq!(
        fleet.value("canary").await.unwrap(),
        "ready",
        "never maint over somebody's ready"
    );
    assert!(drain.stderr.contains("bob"), "{}", drain.stderr);
    assert_eq!(drain.json()["changed"][0]["after"], "drain");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_drain_goes_on_with_the_rest_of_its_grace() {
    let fleet = Fleet::start(1).await;
    let begun = Instant::now();
    let words = ["drain", "canary", "--grace", "5s"];
    let mut drain = fleet.in_background(&words);
    fleet.becomes("canary", "drain").await;
    drain.kill().unwrap();
    drain.wait().unwrap();
    let changed = fleet
        .haplane
        .run(&["drain", "canary", "--grace", "5s", "--json"])
        .exits(0)
        .json();
    assert_eq!(
        changed["changed"],
        json!([{"key": "canary", "before": "drain", "after": "maint"}])
    );
    assert!(
        begun.elapsed() >= Duration::from_secs(5),
        "not shorter than the grace"
    );
    assert!(
        begun.elapsed() < Duration::from_secs(9),
        "not a whole grace more"
    );
    let again = fleet
        .haplane
        .run(&["drain", "canary", "--json"])
        .exits(0)
        .json();
    assert_eq!(again["changed"], json!([]), "done is done");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_away_during_the_drain_loses_no_step() {
    let mut fleet = Fleet::start(1).await;
    let drain = fleet.in_background(&["drain", "canary", "--grace", "2s", "--json"]);
    fleet.becomes("canary", "drain").await;
    fleet.consul.kill();
    tokio::time::sleep(Duration::from_secs(3)).await;
    fleet.consul.launch();
    fleet.consul.ready().await;
    run_of(drain.wait_with_output().unwrap()).exits(0);
    assert_eq!(fleet.value("canary").await.unwrap(), "maint");
}

/// Sends SIGINT, as Ctrl-C does, or SIGTERM, as a pipeline does. It ends by that signal, so that a loop around it ends.
/// Gives what it said.
fn end_by(signal: Signal, child: Child) -> (String, String) {
    kill_process(Pid::from_child(&child), signal).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.signal(), Some(signal.as_raw()), "{output:?}");
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_command_says_what_it_leaves() {
    let mut fleet = Fleet::start(1).await;
    let words = ["drain", "canary", "--grace", "60s", "--json"];
    let mut drain = fleet.in_background(&words);
    // It says so when it begins to wait for the sessions.
    let mut said = BufReader::new(drain.stderr.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("draining canary") {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "it ended");
    }
    let (stdout, _) = end_by(Signal::INT, drain);
    said.read_to_string(&mut line).unwrap();
    assert!(
        line.contains("canary stays at drain")
            && line.contains("`haplane ready canary`")
            && line.contains("run the same command again"),
        "{line}"
    );
    let document: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(document["changed"][0]["after"], "drain");
    assert_eq!(document["error"]["exit"], 130);
    assert_eq!(fleet.value("canary").await.unwrap(), "drain");

    fleet.balancers[0].agent.process().kill();
    let words = ["set", "canary", "maint", "--wait", "--timeout", "60s"];
    let set = fleet.in_background(&words);
    fleet.becomes("canary", "maint").await;
    // Consul may have said so to us before it said so to the command.
    let (_, stderr) = end_by(Signal::TERM, set);
    let told = ["written and stays", "on its way; `haplane show`"];
    assert!(told.iter().any(|words| stderr.contains(words)), "{stderr}");

    // Where nothing had to be written, it is the proof that is waited for.
    let again = [
        "set",
        "canary",
        "maint",
        "--wait",
        "--timeout",
        "60s",
        "--json",
    ];
    let begun = Instant::now();
    loop {
        let mut set = fleet.in_background(&again);
        // The agent that does not answer is warned of just before the write is looked at.
        let mut said = BufReader::new(set.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert!(line.contains("does not answer"), "{line}");
        tokio::time::sleep(begun.elapsed()).await;
        let (stdout, _) = end_by(Signal::INT, set);
        if stdout.is_empty() {
            // It had not come so far, which it may: a signal then just ends it.
            assert!(begun.elapsed() < Duration::from_secs(30), "no document");
            continue;
        }
        let document: Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(document["changed"], json!([]), "{document}");
        assert_eq!(document["error"]["exit"], 130, "{document}");
        break;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_drain_does_is_told_before_it_waits() {
    let fleet = Fleet::start(1).await;
    let words = ["canary", "--disable", "--grace", "60s"];
    let mut drain = fleet.in_background(&words);
    let mut said = BufReader::new(drain.stdout.take().unwrap());
    let mut told = String::new();
    while !told.contains("canary_web  100%         0%") {
        assert!(said.read_line(&mut told).unwrap() > 0, "it ended: {told}");
    }
    for part in [
        "changed 1 key\n",
        "canary  absent  drain\n",
        "moves 2 rows: canary_web/gke-cny-web, canary_web/gke-cny-web2\n",
    ] {
        assert!(told.contains(part), "{part} in {told}");
    }
    assert_eq!(fleet.value("canary").await.unwrap(), "drain", "it waits");
    kill_process(Pid::from_child(&drain), Signal::TERM).unwrap();
    drain.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_lost_during_a_drain_is_waited_for_and_named() {
    let mut fleet = Fleet::start(2).await;
    let begun = Instant::now();
    let drain = fleet.in_background(&["drain", "canary", "--grace", "5s", "--json"]);
    let contradicted = fleet.in_background(&["drain", "web/gke-us-east1-b-web", "--grace", "5s"]);
    fleet.becomes("canary", "drain").await;
    fleet.becomes("web/gke-us-east1-b-web", "drain").await;
    let lost = &mut fleet.balancers[1];
    lost.agent.process().kill();
    lost.haproxy.kill().await;
    let bob = fleet.haplane.with("USER", "bob");
    bob.run(&["set", "web/gke-us-east1-b-web", "ready"])
        .exits(0);

    let run = run_of(drain.wait_with_output().unwrap()).exits(0);
    assert!(
        begun.elapsed() >= Duration::from_secs(5),
        "the whole grace: nobody knows of the lost node's sessions"
    );
    assert_eq!(run.json()["changed"][0]["after"], "maint");
    assert_eq!(fleet.value("canary").await.unwrap(), "maint");
    assert!(run.stderr.contains("lb-02: its agent at"), "{}", run.stderr);
    let run = run_of(contradicted.wait_with_output().unwrap()).exits(3);
    assert!(run.stderr.contains("bob"), "{}", run.stderr);
    assert_eq!(
        fleet.value("web/gke-us-east1-b-web").await.unwrap(),
        "ready",
        "never maint over somebody's ready"
    );
}
