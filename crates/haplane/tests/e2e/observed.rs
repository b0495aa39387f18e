//! Proof and drains where the agents see what their HAProxy really does.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use haplane_testkit::consul::{Consul, Options};
use haplane_testkit::eventually::eventually;
use haplane_testkit::haproxy::{Config, Haproxy, Version};
use haplane_testkit::origin::Origin;
use haplane_testkit::ports::Port;
use serde_json::json;
use tempfile::TempDir;

use crate::agent_process::{Agent, Launch, PATIENCE};
use crate::command::{Haplane, run_of};
use crate::fleet::laggards;
use crate::haproxy_rows::{AT_ONCE, DEFAULTS, enrolled};

/// One load balancer whose agent looks at its socket.
struct Balancer {
    haplane: Haplane,
    consul: Consul,
    haproxy: Haproxy,
    agent: Agent,
    frontend: Port,
    _origin: Origin,
    _dir: TempDir,
}

impl Balancer {
    /// `interval` is that of the agent checks.
    async fn start(interval: &str) -> Self {
        let consul = Consul::start(Options::new()).await;
        let haplane = Haplane::on(format!("consul:{}", consul.url()));
        haplane.run(&["init"]).exits(0);
        // A socket whose place is known before HAProxy runs: the agent is there for the first ask.
        let dir = tempfile::Builder::new()
            .prefix("ob")
            .tempdir_in("/tmp")
            .unwrap();
        let socket = dir.path().join("user.sock");
        let agent = Launch::registered(&consul, "lb-01")
            .flags(&["--haproxy-socket", socket.to_str().unwrap()])
            .ready()
            .await;
        let (origin, frontend) = (Origin::start("o"), Port::reserve());
        let server = |name: &str, words: &str| {
            let asks = enrolled(agent.checks(), words).replace("200ms", interval);
            format!("    server {name} {} weight 100 {asks}\n", origin.address())
        };
        let sections = format!(
            "{DEFAULTS}\nfrontend f\n    bind 127.0.0.1:{frontend}\n    default_backend web\n\
             backend web\n    server plain {} weight 100\n{}{}",
            origin.address(),
            server("a", "web/a canary"),
            server("b", "web/b"),
        );
        let config = Config::new(&sections).global(AT_ONCE).global(&format!(
            "stats socket {} mode 600 level user",
            socket.display()
        ));
        let haproxy = Haproxy::start(Version::V28, config).await;
        let balancer = Self {
            haplane,
            consul,
            haproxy,
            agent,
            frontend,
            _origin: origin,
            _dir: dir,
        };
        balancer.converges().await;
        balancer
    }

    /// Waits until all rows have asked and are seen to do as they were told.
    async fn converges(&self) {
        eventually("both rows converged", PATIENCE, async || {
            let status = self.haplane.run(&["status", "--json"]).json();
            let rows = status["nodes"][0]["rows"].clone();
            if rows["converged"] == 2 {
                Ok(())
            } else {
                Err(status)
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_ends_when_the_sessions_are_seen_to_be_gone() {
    let balancer = Balancer::start("200ms").await;
    let haplane = &balancer.haplane;

    // A connection that somebody keeps open through the row that is drained.
    haplane.run(&["set", "web/b", "maint", "--wait"]).exits(0);
    balancer
        .haproxy
        .command("set server web/plain state maint")
        .await;
    let mut client = TcpStream::connect(balancer.frontend.address()).unwrap();
    client
        .write_all(b"GET /slow HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n12")
        .unwrap();
    eventually("a session", PATIENCE, async || {
        let sessions = balancer.haproxy.stat("web/a").await.number("scur");
        if sessions == 1 { Ok(()) } else { Err(sessions) }
    })
    .await;

    let begun = Instant::now();
    let mut drain = haplane.command(&["drain", "canary", "--grace", "120s", "--wait", "--json"]);
    let drain = drain
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    eventually("the drain", PATIENCE, async || {
        let bits = balancer
            .haproxy
            .server("web/a")
            .await
            .number("srv_admin_state");
        if bits & 8 == 8 { Ok(()) } else { Err(bits) }
    })
    .await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    let entry = balancer.consul.get("haplane/state/canary").await.unwrap();
    assert_eq!(entry.value, b"drain", "somebody is still served");

    client.write_all(b"34567890").unwrap();
    let mut first = [0; 12];
    client.read_exact(&mut first).unwrap();
    drop(client);
    let run = run_of(drain.wait_with_output().unwrap()).exits(0);
    assert!(
        begun.elapsed() < Duration::from_mins(1),
        "not the whole grace"
    );
    assert_eq!(run.json()["changed"][0]["after"], "maint");
    assert_eq!(run.json()["waited"]["converged"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sessions_of_a_lost_node_are_not_taken_for_gone() {
    let balancer = Balancer::start("200ms").await;
    let mut agent = Launch::registered(&balancer.consul, "lb-02").ready().await;
    let asks = enrolled(agent.checks(), "web/a canary");
    let sections = format!("{DEFAULTS}\nbackend web\n    server a 127.0.0.1:9 {asks}\n");
    let mut haproxy = Haproxy::start(Version::V28, Config::new(&sections).global(AT_ONCE)).await;

    let begun = Instant::now();
    let mut drain = balancer
        .haplane
        .command(&["drain", "canary", "--grace", "5s", "--json"]);
    let drain = drain
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    eventually("the drain", PATIENCE, async || {
        let bits = haproxy.server("web/a").await.number("srv_admin_state");
        if bits & 8 == 8 { Ok(()) } else { Err(bits) }
    })
    .await;
    agent.process().kill();
    haproxy.kill().await;

    let run = run_of(drain.wait_with_output().unwrap()).exits(0);
    assert!(
        begun.elapsed() >= Duration::from_secs(5),
        "lb-01 alone is seen to serve nobody"
    );
    assert_eq!(run.json()["changed"][0]["after"], "maint");
    assert!(run.stderr.contains("lb-02: its agent at"), "{}", run.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_set_by_hand_or_does_not_ask_is_named_with_its_cause() {
    let mut balancer = Balancer::start("20s").await;
    let haplane = balancer.haplane.clone();

    balancer
        .haproxy
        .command("set server web/a state maint")
        .await;
    eventually("the change by hand", PATIENCE, async || {
        let run = haplane.run(&["wait", "--timeout", "0s", "--json"]);
        let named = laggards(&run.json());
        // Before two intervals are over it might still be on its way; after that it is said outright.
        let says = |one: &String| one.contains("in maint") || one.contains("own socket");
        let told = named
            .iter()
            .any(|one| one.starts_with("lb-01 web/a:") && says(one));
        if run.exit == 4 && told {
            Ok(())
        } else {
            Err(named)
        }
    })
    .await;
    let why = haplane.run(&["why", "web/a", "--json"]).exits(0).json();
    assert_ne!(why["nodes"][0]["verdict"], "converged");
    assert_eq!(why["nodes"][0]["observed"]["admin"], "maint");
    balancer
        .haproxy
        .command("set server web/a state ready")
        .await;
    balancer.converges().await;

    balancer.haproxy.command("disable agent web/b").await;
    let words = ["set", "web/b", "50%", "--wait", "--timeout", "8s", "--json"];
    let named = laggards(&haplane.run(&words).exits(4).json()["waited"]);
    assert!(
        named[0].starts_with("lb-01 web/b:") && named[0].contains("agent check is disabled"),
        "{named:?}"
    );

    balancer.haproxy.kill().await;
    let run = haplane
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
    let named = laggards(&run.json()["waited"]);
    assert!(
        named
            .iter()
            .any(|one| one.starts_with("lb-01 *: its HAProxy at")),
        "{named:?}"
    );
    assert!(balancer.agent.process().exited().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_out_of_reach_are_named_and_count_for_their_backend() {
    let balancer = Balancer::start("200ms").await;
    let haplane = &balancer.haplane;
    let status = haplane.run(&["status", "--json"]).exits(0).json();
    assert_eq!(status["not_enrolled"], json!(["web/plain"]));
    let why = haplane.run(&["why", "web/plain"]).exits(3);
    assert!(why.stderr.contains("not enrolled"), "{}", why.stderr);
    let set = haplane
        .run(&["set", "web/plain", "drain", "--force"])
        .exits(0);
    assert!(set.stderr.contains("not enrolled"), "{}", set.stderr);

    let dry = haplane
        .run(&["drain", "web/*", "--dry-run", "--json"])
        .exits(0)
        .json();
    assert_eq!(
        dry["backends"],
        json!([{"backend": "web", "before": 100, "after": 33}])
    );
    haplane
        .run(&["drain", "web/*", "--min-ready", "34%", "--dry-run"])
        .exits(3);
    balancer
        .haproxy
        .command("set server web/plain state maint")
        .await;
    eventually("the one set by hand not to count", PATIENCE, async || {
        let run = haplane.run(&["drain", "web/*", "--min-ready", "10%", "--dry-run"]);
        if run.exit == 3 { Ok(()) } else { Err(run) }
    })
    .await;
}
