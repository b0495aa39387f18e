//! The heartbeat, over a real HAProxy.

use std::time::Duration;

use haplane_testkit::eventually::eventually;
use haplane_testkit::haproxy::{Config, Haproxy, Version};
use haplane_testkit::http::{Request, Target};
use haplane_testkit::ports::Port;
use haplane_testkit::process::Process;

use crate::agent::{Agent, Folder};

fn config(agent: &Agent) -> Config {
    Config::new(&format!(
        "defaults\n mode http\n timeout connect 1s\n timeout client 5s\n timeout server 5s\n\
         backend haplane-heartbeat\n \
         server self 127.0.0.1:9 agent-check agent-addr 127.0.0.1 agent-port {} agent-inter 200ms \
         agent-send \"haplane-heartbeat/self\\n\"\n",
        agent.checks
    ))
}

#[tokio::test]
async fn the_heartbeat_is_proven_by_haproxy_and_stops_with_it() {
    let folder = Folder::new();
    let haplane = folder.haplane();
    let agent = Agent::start(&haplane).await;
    let agents = agent.page().trim_end_matches('/').to_owned();
    let once = ["heartbeat", "--once", "--agents", &agents];
    let nobody = haplane.run(&once).exits(4);
    assert!(nobody.stderr.contains("no HAProxy asks for"), "{nobody:?}");

    let haproxy = Haproxy::start(Version::V28, config(&agent)).await;
    eventually("the row asks", Duration::from_secs(10), async || {
        let rows = agent.get("/v1/rows").await.unwrap().json();
        if rows.as_array().is_some_and(|rows| !rows.is_empty()) {
            Ok(())
        } else {
            Err(rows)
        }
    })
    .await;
    // Each beat is a flip.
    let first = haproxy
        .stat("haplane-heartbeat/self")
        .await
        .get("status")
        .to_owned();
    haplane.run(&once).exits(0);
    let second = haproxy
        .stat("haplane-heartbeat/self")
        .await
        .get("status")
        .to_owned();
    assert_ne!(first, second);
    let log = haplane.run(&["log", "--json"]).exits(0).json();
    assert_eq!(
        log["entries"].as_array().unwrap().len(),
        0,
        "no entries of it"
    );

    let port = Port::reserve();
    let listen = port.address().to_string();
    let folder = tempfile::tempdir().unwrap();
    let command = haplane.command(&[
        "heartbeat",
        "--every=200ms",
        "--timeout=1s",
        "--heartbeat-listen",
        &listen,
        "--agents",
        &agents,
    ]);
    let _beating = Process::spawn("haplane heartbeat", command, &folder.path().join("log"));
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
}
