//! Several pools from one source: zones, backends, weights, groups; one pool's trouble is nobody else's.

use std::collections::BTreeMap;

use haplane_testkit::agent_peer::{RecordingAgent, Say};
use haplane_testkit::eventually::eventually;
use haplane_testkit::haproxy::{Config, Haproxy, Version};
use haplane_testkit::http::{Request, Target};
use haplane_testkit::ports::Port;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::stage::{PATIENCE, settings};

fn config(agent: u16) -> Config {
    let agent = format!(
        "agent-check agent-addr 127.0.0.1 agent-port {agent} agent-inter 200ms agent-send \"@free\\n\""
    );
    Config::new(&format!(
        "defaults\n mode http\n timeout connect 1s\n timeout client 5s\n timeout server 5s\n\
         backend web\n server-template a- 1-3 127.0.0.1:1 disabled weight 100 {agent}\n\
         server-template b- 1-2 127.0.0.1:1 disabled weight 100 {agent}\n\
         backend api\n server-template a- 1-3 127.0.0.1:1 disabled weight 50\n"
    ))
}

/// Which addresses are in rotation with which weight, by backend and prefix.
async fn rotation(haproxy: &Haproxy) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for server in haproxy.servers().await {
        let slots = format!("{}/{}", server.get("be_name"), &server.get("srv_name")[..1]);
        let addresses = found.entry(slots).or_default();
        if server.number("srv_admin_state") & 1 == 0 {
            addresses.push(format!(
                "{} w{}",
                server.get("srv_addr"),
                server.get("srv_uweight")
            ));
        }
    }
    for addresses in found.values_mut() {
        addresses.sort();
    }
    found
}

fn configuration(
    haproxy: &Haproxy,
    agent: &RecordingAgent,
    http: &Port,
    hosts: &std::path::Path,
) -> String {
    let pool = |name: &str, backend: &str, slots: &str, more: &str| {
        format!(
            "[[pool]]\nname = \"{name}\"\nbackend = \"{backend}\"\nslots = \"{slots}\"\nsource = \"file:{}\"\n{more}\n",
            hosts.display()
        )
    };
    [
        format!(
            "[sync]\nsocket = \"{}\"\nhttp = \"{}\"\nreconcile = \"300ms\"\nagent = \"{}\"\n",
            haproxy.admin_socket().display(),
            http.address(),
            agent.address()
        ),
        pool(
            "web-a",
            "web",
            "a-",
            "zone = \"a\"\ngroups = [\"canary\", \"zone/a\"]",
        ),
        pool("web-b", "web", "b-", "zone = \"b\""),
        pool("api-a", "api", "a-", "zone = \"a\""),
        // Their trouble is nobody else's.
        pool("gone", "nobackend", "a-", ""),
        pool("fileless", "api", "x-", "").replace(&hosts.display().to_string(), "/nowhere/hosts"),
    ]
    .concat()
}

#[tokio::test]
async fn zones_backends_weights_and_groups() {
    let agent = RecordingAgent::start(Say::Text("ready 100%\n".into()));
    agent.say("@free", Say::Text("maint\n".into()));
    agent.say("web/heavy", Say::Text("ready 40%\n".into()));
    let haproxy = Haproxy::start(Version::V28, config(agent.address().port())).await;
    let dir = tempfile::tempdir().unwrap();
    let (hosts, http) = (dir.path().join("hosts"), Port::reserve());
    std::fs::write(
        &hosts,
        "127.0.0.11:80 id=one zone=a\n127.0.0.12:80 id=heavy zone=a weight=40 groups=batch,canary\n\
         127.0.0.13:80 id=three zone=b\n127.0.0.14:80 id=four zone=b\n127.0.0.15:80 id=five zone=b\n\
         127.0.0.16:80 id=nowhere\n",
    )
    .unwrap();
    let toml = configuration(&haproxy, &agent, &http, &hosts);
    let stop = CancellationToken::new();
    let running = tokio::spawn(haplane_sync::run(settings(&toml), "test", stop.clone()));
    eventually("every pool is in line", PATIENCE, || async {
        let seen = rotation(&haproxy).await;
        let texts = |list: &[&str]| {
            list.iter()
                .map(|text| (*text).to_owned())
                .collect::<Vec<_>>()
        };
        let wanted = BTreeMap::from([
            (
                "web/a".to_owned(),
                texts(&["127.0.0.11 w100", "127.0.0.12 w40"]),
            ),
            (
                "web/b".to_owned(),
                texts(&["127.0.0.14 w100", "127.0.0.15 w100"]),
            ),
            (
                "api/a".to_owned(),
                texts(&["127.0.0.11 w50", "127.0.0.12 w20"]),
            ),
        ]);
        // Two of the three of zone b fit: which two is told by their ids.
        let fits = seen.get("web/b").is_some_and(|slots| slots.len() == 2);
        let others =
            seen.get("web/a") == wanted.get("web/a") && seen.get("api/a") == wanted.get("api/a");
        if fits && others { Ok(()) } else { Err(seen) }
    })
    .await;
    let words: Vec<_> = agent
        .asks()
        .iter()
        .map(|ask| String::from_utf8_lossy(&ask.bytes).trim().to_owned())
        .collect();
    assert!(
        words
            .iter()
            .any(|words| words == "web/heavy batch canary zone/a @40%"),
        "{words:?}"
    );
    assert!(
        words.iter().any(|words| words == "web/one canary zone/a"),
        "{words:?}"
    );

    let response = Request::get("/v1/pools")
        .send(&Target::Tcp(http.address()))
        .await
        .unwrap();
    let pools = response.json();
    let by_name = |name: &str| -> Value {
        pools
            .as_array()
            .unwrap()
            .iter()
            .find(|pool| pool["pool"] == name)
            .unwrap()
            .clone()
    };
    assert_eq!(
        by_name("web-b")["processes"][0]["homeless"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    assert_eq!(by_name("fileless")["held"]["reason"], "failed");
    let error = by_name("gone")["processes"][0]["error"].clone();
    assert!(
        error
            .as_str()
            .unwrap()
            .starts_with("HAProxy has no backend named nobackend"),
        "{error}"
    );
    eventually(
        "only the pools with a trouble of their own are not in line",
        PATIENCE,
        || async {
            let target = Target::Tcp(http.address());
            let ready = Request::get("/readyz").send(&target).await.unwrap();
            let (status, text) = (ready.status, ready.text());
            let named = |pool: &str| text.contains(&format!("pool {pool} "));
            if status == 503
                && named("gone")
                && named("fileless")
                && !named("web-a")
                && !named("api-a")
            {
                Ok(())
            } else {
                Err(text)
            }
        },
    )
    .await;
    stop.cancel();
    running.await.unwrap().unwrap();
}
