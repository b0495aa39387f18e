//! The heartbeat, over a real HAProxy.

use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

use haplane_testkit::eventually::eventually;
use haplane_testkit::haproxy::{Config, Haproxy, Version};
use haplane_testkit::http::{Request, Target};
use haplane_testkit::ports::Port;
use haplane_testkit::process::{Process, Signal};
use serde_json::{Value, json};

use crate::agent::{Agent, Folder};
use crate::command::Haplane;

/// The backend that docs/alerts.md tells everybody to have, sooner asked, beside one that takes traffic.
fn config(agent: &Agent) -> Config {
    let page = include_str!("../../../../docs/alerts.md");
    let start = page.find("backend haplane-heartbeat").expect("the backend");
    let (backend, _) = page[start..].split_once("```").expect("its end");
    let backend = backend
        .replace("9777", &agent.checks.to_string())
        .replace("agent-inter 2s", "agent-inter 200ms");
    let check = format!(
        "agent-check agent-addr 127.0.0.1 agent-port {} agent-inter 200ms",
        agent.checks
    );
    Config::new(&format!(
        "defaults\n mode http\n timeout connect 1s\n timeout client 5s\n timeout server 5s\n\
         {backend}\
         backend web\n server a 127.0.0.1:9 {check} agent-send \"web/a\\n\"\n \
         server b 127.0.0.1:9 {check} agent-send \"web/b\\n\"\n"
    ))
}

/// Until HAProxy has asked for all its rows.
async fn all_ask(agent: &Agent) {
    eventually("the rows ask", Duration::from_secs(10), async || {
        let rows = agent.get("/v1/rows").await.unwrap().json();
        if rows.as_array().is_some_and(|rows| rows.len() == 3) {
            Ok(())
        } else {
            Err(rows)
        }
    })
    .await;
}

fn keys(haplane: &Haplane) -> Value {
    haplane.run(&["show", "--json"]).exits(0).json()["keys"].clone()
}

fn entries(haplane: &Haplane) -> usize {
    let log = haplane.run(&["log", "--json"]).exits(0).json();
    log["entries"].as_array().unwrap().len()
}

#[tokio::test]
async fn whatever_becomes_of_a_beat_the_row_is_back() {
    let folder = Folder::new();
    let haplane = folder.haplane();
    let agent = Agent::start(&haplane).await;
    let agents = agent.page().trim_end_matches('/').to_owned();
    let mut haproxy = Haproxy::start(Version::V28, config(&agent)).await;
    all_ask(&agent).await;
    let once = |timeout: &'static str| {
        ["heartbeat", "--once", "--agents", &agents, timeout].map(str::to_owned)
    };
    let beat = |timeout| {
        let words = once(timeout);
        haplane.run(&words.each_ref().map(String::as_str))
    };
    let nothing_left = || {
        assert_eq!(keys(&haplane), json!([]));
        assert_eq!(
            entries(&haplane),
            0,
            "one a minute would push the others out"
        );
    };
    for _ in 0..2 {
        let proven = beat("--timeout=10s").exits(0);
        assert!(proven.stdout.contains("proven: drained in"), "{proven:?}");
        nothing_left();
    }

    // HAProxy does not follow.
    haproxy.process().freeze().await;
    let late = beat("--timeout=1s").exits(4);
    assert!(
        late.stderr
            .contains("haplane-heartbeat/self is ready until"),
        "{late:?}"
    );
    // Nobody has seen the row back, so it stays told to be, for a while, and by one log entry at most.
    let told_ready = || {
        let keys = keys(&haplane);
        assert_eq!(
            (&keys[0]["value"], &keys[0]["by"], entries(&haplane)),
            (&json!("ready"), &json!("heartbeat"), 1),
            "{keys}"
        );
        assert!(keys[0]["until"].is_string(), "{keys}");
    };
    told_ready();

    let logs = tempfile::tempdir().unwrap();
    let begin = || {
        let words = once("--timeout=60s");
        let command = haplane.command(&words.each_ref().map(String::as_str));
        Process::spawn("haplane heartbeat", command, &logs.path().join("log"))
    };
    let drained = async || {
        eventually(
            "the beat has drained its row",
            Duration::from_secs(10),
            async || {
                let keys = keys(&haplane);
                let is_drained = keys[0]["value"] == "drain";
                if is_drained {
                    Ok(keys[0].clone())
                } else {
                    Err(keys)
                }
            },
        )
        .await
    };
    // Interrupted, it finishes the way back first, and ends by the signal.
    for signal in [Signal::INT, Signal::TERM] {
        let mut beating = begin();
        let key = drained().await;
        assert_eq!(key["by"], "heartbeat", "{key}");
        assert!(
            key["until"].is_string() && key["forgotten"] == false,
            "{key}"
        );
        beating.signal(signal);
        let end = beating.exit(Duration::from_secs(20)).await;
        assert_eq!(end.signal(), Some(signal.as_raw()), "{}", beating.log());
        assert!(
            beating.log().contains("is ready until"),
            "{}",
            beating.log()
        );
        told_ready();
    }
    // Killed, it leaves a value that ends by itself; the next beat takes it away.
    let mut beating = begin();
    drained().await;
    beating.kill();
    haproxy.process().thaw();
    assert_eq!(keys(&haplane)[0]["by"], "heartbeat");
    beat("--timeout=10s").exits(0);
    nothing_left();
}

/// Such an agent brings nothing back when a value is gone: the row is told, and seen, to be ready before it is.
#[tokio::test]
async fn the_row_is_back_where_agents_keep_what_was() {
    let folder = Folder::new();
    let haplane = folder.haplane();
    let agent = Agent::start_with(&["--absent=keep"], &haplane, Port::reserve()).await;
    let agents = agent.page().trim_end_matches('/').to_owned();
    let haproxy = Haproxy::start(Version::V28, config(&agent)).await;
    all_ask(&agent).await;
    for _ in 0..2 {
        haplane
            .run(&["heartbeat", "--once", "--agents", &agents, "--timeout=10s"])
            .exits(0);
        assert_eq!(keys(&haplane), json!([]));
        let row = haproxy.server("haplane-heartbeat/self").await;
        assert_eq!(row.number("srv_admin_state") & 8, 0, "{row:?}");
    }
}

#[tokio::test]
async fn a_beat_takes_no_row_that_is_not_its_own() {
    let folder = Folder::new();
    let haplane = folder.haplane();
    let agent = Agent::start(&haplane).await;
    let agents = agent.page().trim_end_matches('/').to_owned();
    let beat = |words: &[&str]| {
        let all = [&["heartbeat", "--once", "--agents", &agents], words].concat();
        haplane.run(&all)
    };
    let nobody = beat(&[]).exits(3);
    assert!(nobody.stderr.contains("no HAProxy asks for"), "{nobody:?}");

    let _haproxy = Haproxy::start(Version::V28, config(&agent)).await;
    all_ask(&agent).await;
    let in_use = beat(&["web/a"]).exits(3);
    assert!(
        in_use.stderr.contains("not alone in its backend (web/b)"),
        "{in_use:?}"
    );
    beat(&["web/nobody"]).exits(3);
    beat(&["canary"]).exits(3);
    assert_eq!(keys(&haplane), json!([]), "nothing was written");
    beat(&["web/a", "--force"]).exits(0);

    // A value of somebody else's stays.
    haplane
        .run(&[
            "set",
            "haplane-heartbeat/self",
            "maint",
            "--agents",
            &agents,
        ])
        .exits(0);
    let theirs = beat(&[]).exits(3);
    assert!(
        theirs.stderr.contains("is maint, written by alice"),
        "{theirs:?}"
    );
    assert_eq!(keys(&haplane)[0]["value"], "maint");

    let nowhere = haplane
        .run(&["heartbeat", "--once", "--agents", "http://127.0.0.1:1"])
        .exits(5);
    assert!(
        nowhere.stderr.contains("no agent can be asked"),
        "{nowhere:?}"
    );
}

#[tokio::test]
async fn the_heartbeat_is_proven_by_haproxy_and_stops_with_it() {
    let folder = Folder::new();
    let haplane = folder.haplane();
    let agent = Agent::start(&haplane).await;
    let agents = agent.page().trim_end_matches('/').to_owned();
    let haproxy = Haproxy::start(Version::V28, config(&agent)).await;
    all_ask(&agent).await;

    let port = Port::reserve();
    let listen = port.address().to_string();
    let logs = tempfile::tempdir().unwrap();
    let command = haplane.command(&[
        "heartbeat",
        "--every=200ms",
        "--timeout=1s",
        "--heartbeat-listen",
        &listen,
        "--agents",
        &agents,
    ]);
    let mut beating = Process::spawn("haplane heartbeat", command, &logs.path().join("log"));
    let metrics = async || {
        let target = Target::Tcp(port.address());
        match Request::get("/metrics").send(&target).await {
            Ok(answer) => answer.text(),
            Err(error) => error.to_string(),
        }
    };
    let number = |text: &str, name: &str| -> Option<f64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse().ok()
    };
    eventually("two beats", Duration::from_secs(20), async || {
        let text = metrics().await;
        match number(&text, "haplane_heartbeats_total{result=\"ok\"}") {
            Some(beats) if beats >= 2.0 => Ok(()),
            _ => Err(text),
        }
    })
    .await;
    let seen = metrics().await;
    assert!(number(&seen, "haplane_heartbeat_last_success_timestamp_seconds").unwrap() > 1e9);
    assert!(seen.contains("haplane_heartbeat_seconds_bucket"), "{seen}");

    drop(haproxy);
    eventually("late beats", Duration::from_secs(20), async || {
        let text = metrics().await;
        match number(&text, "haplane_heartbeats_total{result=\"late\"}") {
            Some(beats) if beats >= 1.0 => Ok(()),
            _ => Err(text),
        }
    })
    .await;

    // Its end is a beat's end too.
    beating.signal(Signal::TERM);
    let end = beating.exit(Duration::from_secs(20)).await;
    assert_eq!(end.code(), Some(0), "{}", beating.log());
    assert_ne!(keys(&haplane)[0]["value"], "drain");
}
