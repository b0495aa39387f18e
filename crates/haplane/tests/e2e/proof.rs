//! The proof that a write took, and who is named when it did not.

use std::time::{Duration, Instant};

use haplane_testkit::eventually::eventually;
use haplane_testkit::http::Request;
use serde_json::json;

use crate::command::Haplane;
use crate::fleet::{Fleet, LONG_SILENCE, laggards};

#[tokio::test(flavor = "multi_thread")]
async fn one_command_reaches_every_load_balancer_and_says_so() {
    let fleet = Fleet::start(12).await;
    let words = [
        "canary",
        "--disable",
        "--drain-only",
        "--wait",
        "--reason",
        "bad",
        "--json",
    ];
    let run = fleet.haplane.run(&words).exits(0);
    let done = run.json();
    assert_eq!(
        done["rows"],
        json!(["canary_web/gke-cny-web", "canary_web/gke-cny-web2"])
    );
    let waited = &done["waited"];
    assert_eq!(waited["converged"], true);
    assert_eq!(waited["nodes"], json!({"total": 12, "converged": 12}));
    assert_eq!(waited["rows"], json!({"total": 2, "converged": 2}));
    assert_eq!(waited["laggards"], json!([]));
    assert_eq!(
        waited["unobserved_nodes"], 12,
        "these agents have no socket"
    );
    for balancer in &fleet.balancers {
        let row = balancer.haproxy.server("canary_web/gke-cny-web").await;
        assert_eq!(row.number("srv_admin_state") & 8, 8, "HAProxy drains it");
    }

    let status = fleet
        .haplane
        .run(&["canary", "--status", "--json"])
        .exits(0)
        .json();
    assert_eq!(status["active"], false);
    assert_eq!(
        (&status["value"], &status["by"]),
        (&json!("drain"), &json!("alice"))
    );
    fleet.haplane.run(&["canary", "--is-active"]).exits(7);
    // What is only known to have been told is not passed off for more.
    for words in [&["wait"][..], &["status"]] {
        let run = fleet.haplane.run(words).exits(0);
        let said = "no agent sees its HAProxy ([haproxy] socket)";
        assert!(run.stdout.contains(said), "{run:?}");
    }

    let first = fleet.balancers[0].agent.http();
    let twice = format!("{first},http://{first}");
    let waited = fleet.haplane.run(&["wait", "--agents", &twice, "--json"]);
    assert_eq!(
        waited.exits(0).json()["nodes"]["total"],
        1,
        "who is named twice proves itself once"
    );

    let why = fleet
        .haplane
        .run(&["why", "canary_web/gke-cny-web", "--json"])
        .exits(0)
        .json();
    assert_eq!(why["keys"][1]["key"], "canary");
    assert_eq!(why["keys"][1]["decides"], true);
    assert_eq!(why["nodes"].as_array().unwrap().len(), 12);
    assert_eq!(why["nodes"][2]["answer"], "drain");
    assert_eq!(why["meta"]["reason"], "bad");
    let unknown = fleet
        .haplane
        .run(&["why", "canary_web/gke-cny-wbe"])
        .exits(3);
    assert!(
        unknown
            .stderr
            .contains("did you mean canary_web/gke-cny-web"),
        "{unknown:?}"
    );

    let back = fleet
        .haplane
        .run(&["canary", "--enable", "--wait", "--json"])
        .exits(0);
    assert!(
        back.stderr.contains("slowstart"),
        "leaving drain does not ramp: {}",
        back.stderr
    );
    fleet.haplane.run(&["canary", "--is-active"]).exits(0);
    let status = fleet.haplane.run(&["status", "--json"]).exits(0).json();
    assert_eq!(status["nodes"].as_array().unwrap().len(), 12);
    assert_eq!(status["rows"][0]["desired"], "ready");
    assert_eq!(status["unused_keys"], json!([]));
    let log = fleet.haplane.run(&["log", "--json"]).exits(0).json();
    assert_eq!(log["entries"].as_array().unwrap().len(), 2);
    assert_eq!(
        log["entries"][0]["changes"][0]["after"],
        json!(null),
        "newest first"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_does_not_do_it_is_named() {
    let mut fleet = Fleet::start(3).await;

    // An agent that is stopped.
    fleet.balancers[0].agent.process().kill();
    let run = fleet
        .haplane
        .run(&[
            "set",
            "canary",
            "drain",
            "--wait",
            "--timeout",
            "3s",
            "--json",
        ])
        .exits(4);
    let document = run.json();
    assert_eq!(
        document["changed"][0]["after"], "drain",
        "it is written all the same"
    );
    assert_eq!(document["error"]["exit"], 4);
    let named = laggards(&document["waited"]);
    assert_eq!(named.len(), 1, "{named:?}");
    assert!(named[0].starts_with("lb-01 *: its agent at"), "{named:?}");
    let launch = fleet.balancers[0].launch.clone();
    fleet.balancers[0].agent.replace(&launch);
    fleet.haplane.run(&["wait", "--json"]).exits(0);

    // One that is registered where nobody can be asked.
    let nowhere = json!({
        "ID": "haplane-agent-lb-99", "Name": "haplane-agent", "Port": 0, "Meta": {"node": "lb-99"}
    });
    let register = Request::put("/v1/agent/service/register", nowhere.to_string());
    let _ = fleet.consul.request(register).await.unwrap().ok();
    let waited = fleet.haplane.run(&["wait", "--timeout", "0s", "--json"]);
    let named = laggards(&waited.exits(4).json());
    assert!(named[0].starts_with("lb-99 *: its agent at"), "{named:?}");
    fleet.haplane.run(&["forget", "lb-99"]).exits(0);
    let services = Request::get("/v1/agent/services");
    let services = fleet.consul.request(services).await.unwrap().ok().json();
    assert!(
        services.get("haplane-agent-lb-99").is_none(),
        "its Consul agent would announce it again: {services}"
    );

    // An HAProxy that is stopped, and one row of another that does not ask any more.
    fleet.balancers[1].haproxy.kill().await;
    fleet.balancers[2]
        .haproxy
        .command("disable agent canary_web/gke-cny-web")
        .await;
    eventually("silence", LONG_SILENCE, async || {
        let run = fleet
            .haplane
            .run(&["wait", "canary", "--timeout", "0s", "--json"]);
        let named = laggards(&run.json());
        let silent = named.iter().filter(|one| one.contains("not asked")).count();
        if run.exit == 4 && silent == 3 {
            Ok(())
        } else {
            Err(named)
        }
    })
    .await;
    let run = fleet
        .haplane
        .run(&["wait", "canary", "--timeout", "0s", "--json"])
        .exits(4);
    let named = laggards(&run.json());
    assert!(
        named[0].starts_with("lb-02 canary_web/gke-cny-web:"),
        "{named:?}"
    );
    assert!(
        named[2].starts_with("lb-03 canary_web/gke-cny-web:"),
        "{named:?}"
    );
    assert_eq!(run.json()["nodes"], json!({"total": 3, "converged": 1}));

    // Gone for good.
    fleet.balancers[1].agent.process().kill();
    fleet.haplane.run(&["forget", "lb-02", "--json"]).exits(0);
    fleet.haplane.run(&["forget", "lb-02"]).exits(3);
    fleet.balancers[2]
        .haproxy
        .command("enable agent canary_web/gke-cny-web")
        .await;
    let waited = fleet.haplane.run(&["wait", "--json"]).exits(0).json();
    assert_eq!(waited["nodes"], json!({"total": 2, "converged": 2}));
}

/// A store or a prefix that was mistyped has keys, a log and an index like any other.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_of_another_store_proves_nothing() {
    let fleet = Fleet::start(1).await;
    let folder = tempfile::tempdir().unwrap();
    let agent = format!("http://{}", fleet.balancers[0].agent.http());
    let elsewhere = Haplane::on(format!("dir:{}", folder.path().display()));
    let prefix = fleet.haplane.with("HAPLANE_PREFIX", "nope");
    for haplane in [elsewhere, prefix] {
        let haplane = haplane.with("HAPLANE_AGENTS", &agent);
        haplane.run(&["init"]).exits(0);
        let words = [
            "set",
            "canary",
            "drain",
            "--force",
            "--wait",
            "--timeout",
            "1s",
            "--json",
        ];
        let run = haplane.run(&words).exits(4).json();
        assert_eq!(run["waited"]["converged"], false);
        let why = laggards(&run["waited"]).join("\n");
        assert!(why.contains("it follows another store: consul"), "{why}");
        assert_eq!(
            run["rows"],
            json!([]),
            "it moves no row that anybody serves"
        );

        let status = haplane.run(&["status", "--json"]).json();
        assert_eq!(status["nodes"], json!([]));
        let error = status["unreachable"][0]["error"].as_str().unwrap();
        assert!(error.contains("another store"), "{error}");
        let why = haplane.run(&["why", "web/gke-us-east1-b-web"]);
        assert!(why.stderr.contains("another store"), "{why:?}");
    }
}

/// Break glass: nobody waits twice for a store that takes connections and does not answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_does_not_answer_is_waited_for_once() {
    let mut fleet = Fleet::start(1).await;
    let agent = fleet.balancers[0].agent.http().to_string();
    fleet.consul.freeze().await;
    for words in [
        &["status", "--json"][..],
        &["why", "canary_web/gke-cny-web", "--json"],
    ] {
        let haplane = fleet.haplane.with("HAPLANE_HTTP_LISTEN", &agent);
        let begun = Instant::now();
        let told = haplane.run(words).exits(5).json();
        // One read is given up after 10 s.
        assert!(begun.elapsed() < Duration::from_secs(18), "{words:?}");
        assert!(
            told.to_string().contains("canary_web/gke-cny-web"),
            "the local agent answers: {told}"
        );
    }
    fleet.consul.thaw();
}
