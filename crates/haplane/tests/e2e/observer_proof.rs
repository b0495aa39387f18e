//! What is observed decides a proof, and its cause is the reason that the proof gives.

use std::time::Duration;

use haplane_testkit::eventually::eventually;
use haplane_testkit::haproxy::{Config, Haproxy, Version};
use haplane_testkit::origin::Origin;
use serde_json::Value;

use crate::haproxy_rows::{AT_ONCE, DEFAULTS, enrolled};
use crate::observer_site::Site;

/// A frozen HAProxy is asked for two seconds, its rows are silent after two more.
const UNTIL_NAMED: Duration = Duration::from_secs(15);

/// Asks for a proof of `canary` until it is not given, and one of its reasons holds all these texts.
async fn is_refused_for(site: &Site, texts: &[&str]) {
    let agents = format!("http://{}", site.agent.http());
    eventually("a proof that is not given", UNTIL_NAMED, async || {
        let words = [
            "wait",
            "canary",
            "--agents",
            &agents,
            "--timeout",
            "0s",
            "--json",
        ];
        let run = site.haplane(&words);
        let document: Value = serde_json::from_str(&run.stdout).map_err(|_| Value::Null)?;
        let laggards = document["laggards"].as_array().cloned().unwrap_or_default();
        let is_named = |laggard: &Value| {
            let why = laggard["why"].as_str().unwrap_or_default();
            texts.iter().all(|text| why.contains(text))
        };
        if run.exit == 4 && laggards.iter().any(is_named) {
            Ok(())
        } else {
            Err(document)
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_proof_while_haproxy_does_otherwise() {
    let site = Site::start(&["s"], &[]).await;
    let origin = Origin::start("o");
    let agent = |words: &str| enrolled(site.agent.checks(), words);
    let sections = format!(
        "{DEFAULTS}
backend web
    server a {origin} weight 100 {a}
    server b {origin} weight 100 {b}
backend static
    balance source
    server s {origin} weight 10 {s}
",
        origin = origin.address(),
        a = agent("web/a canary"),
        b = agent("web/b"),
        s = agent("static/s half"),
    );
    let mut haproxy = Haproxy::start(Version::V28, Config::new(&sections).global(AT_ONCE)).await;
    site.look_at("s", &haproxy);
    site.row_is("web/a", "converged", &[]).await;
    let agents = format!("http://{}", site.agent.http());
    let proof_within = |timeout: &str, words: &[&str]| {
        let all = [
            words,
            &["--agents", &agents, "--timeout", timeout, "--json"],
        ]
        .concat();
        site.haplane(&all)
    };
    let proof = |words: &[&str]| proof_within("20s", words);
    proof(&["set", "canary", "drain", "--wait"]).exits(0);
    assert_eq!(haproxy.server("web/a").await.number("srv_admin_state"), 8);
    let refused = proof_within("5s", &["set", "half", "50%", "--wait"]);
    let why = refused.exits(4).json()["waited"]["laggards"][0]["why"].clone();
    assert!(
        why.as_str().unwrap().contains("algorithm is static"),
        "{why}"
    );

    // Set by hand, for good: its agent check is disabled.
    haproxy
        .command("disable agent web/a; set server web/a state ready")
        .await;
    is_refused_for(&site, &["agent check is disabled", "ready, not drain"]).await;
    haproxy.command("enable agent web/a").await;
    proof(&["wait", "canary"]).exits(0);

    haproxy.process().freeze().await;
    is_refused_for(&site, &["is not observed", "hangs"]).await;
    haproxy.process().thaw();
    proof(&["wait", "canary"]).exits(0);
}
