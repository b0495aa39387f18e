//! What stays in rotation, as a real HAProxy has it: backup servers, slots, keys in front of others, and patterns that
//! take out everything.

use haplane_testkit::eventually::eventually;
use haplane_testkit::haproxy::{Config, Haproxy, Version};
use haplane_testkit::origin::Origin;
use serde_json::{Value, json};

use crate::agent_process::PATIENCE;
use crate::command::Run;
use crate::haproxy_rows::{AT_ONCE, DEFAULTS, enrolled};
use crate::observer_site::Site;

/// A server: its name, its parameters, and the words that it sends.
type Line = (&'static str, &'static str, &'static str);

/// A site whose agent observes one HAProxy with these backends.
struct Stage {
    site: Site,
    _haproxy: Haproxy,
}

impl Stage {
    async fn new(backends: &[(&str, &[Line])]) -> Self {
        let site = Site::start(&["a"], &[]).await;
        let server = |&(name, parameters, words): &Line| {
            let asks = enrolled(site.agent.checks(), words);
            format!("    server {name} {parameters} {asks}\n")
        };
        let section = |(backend, servers): &(&str, &[Line])| {
            let servers: String = servers.iter().map(server).collect();
            format!("\nbackend {backend}\n{servers}")
        };
        let sections: String = backends.iter().map(section).collect();
        let text = format!("{DEFAULTS}{sections}");
        let haproxy = Haproxy::start(Version::V28, Config::new(&text).global(AT_ONCE)).await;
        site.look_at("a", &haproxy);
        Self {
            site,
            _haproxy: haproxy,
        }
    }

    fn run(&self, words: &[&str]) -> Run {
        let agents = format!("http://{}", self.site.agent.http());
        let words: Vec<&str> = words.iter().copied().chain(["--agents", &agents]).collect();
        self.site.haplane(&words)
    }

    /// What a dry run says of the backends, once it says this.
    async fn foresees(&self, words: &[&str], wanted: Value) {
        let what = format!("{words:?} to leave {wanted}");
        eventually(&what, PATIENCE, async || {
            let words: Vec<&str> = words
                .iter()
                .copied()
                .chain(["--dry-run", "--json", "--force-below-floor"])
                .collect();
            let told = self.run(&words);
            match serde_json::from_str::<Value>(&told.stdout) {
                Ok(document) if document["backends"] == wanted => Ok(()),
                _ => Err(told),
            }
        })
        .await;
    }
}

fn share(backend: &str, before: u64, after: u64) -> Value {
    json!([{"backend": backend, "before": before, "after": after}])
}

const NOWHERE: &str = "127.0.0.1:9";

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_is_no_capacity() {
    let stage = Stage::new(&[(
        "web",
        &[
            ("web-1", NOWHERE, "web/web-1"),
            ("web-2", NOWHERE, "web/web-2"),
            ("spare", "127.0.0.1:9 backup", "web/spare"),
        ],
    )])
    .await;
    // Until its numbers were read, HAProxy does not tell that it is a backup.
    eventually("the backup to be known", PATIENCE, async || {
        let rows = stage.site.agent.json("/v1/rows").await;
        let spare = rows
            .as_array()
            .unwrap()
            .iter()
            .find(|row| row["row"] == "web/spare");
        match spare {
            Some(row) if row["last_asked"].is_string() && row["observed"]["backup"] == true => {
                Ok(())
            }
            _ => Err(rows),
        }
    })
    .await;
    stage
        .foresees(&["drain", "web/spare"], share("web", 100, 100))
        .await;
    stage
        .foresees(&["drain", "web/web-*"], share("web", 100, 0))
        .await;
    let refused = stage
        .run(&["drain", "web/web-*", "--min-ready", "15%", "--dry-run"])
        .exits(3);
    assert!(refused.stderr.contains("web 100% -> 0%"), "{refused:#?}");
    stage
        .foresees(&["drain", "web/web-1"], share("web", 100, 50))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_in_slots_are_the_capacity() {
    let stage = Stage::new(&[(
        "dyn",
        &[
            ("dyn-1", NOWHERE, "dyn/web-7 canary"),
            ("dyn-2", NOWHERE, "dyn/web-8"),
            ("dyn-3", "127.0.0.1:9 disabled", "@free"),
            ("dyn-4", "127.0.0.1:9 disabled", "@free"),
        ],
    )])
    .await;
    stage
        .foresees(&["drain", "dyn/*"], share("dyn", 100, 0))
        .await;
    stage
        .foresees(&["drain", "canary"], share("dyn", 100, 50))
        .await;
    stage
        .run(&["drain", "dyn/*", "--min-ready", "90%"])
        .exits(3);
    stage
        .run(&["drain", "canary", "--min-ready", "60%"])
        .exits(3);
    stage
        .run(&["drain", "canary", "--min-ready", "50%", "--drain-only"])
        .exits(0);
    stage
        .foresees(&["drain", "dyn/web-8"], share("dyn", 50, 0))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_back_from_maintenance_is_seen_before_it_comes() {
    let origin = Origin::start("o");
    let server = format!("{} check inter 100ms", origin.address());
    let server: &'static str = server.leak();
    let stage = Stage::new(&[("web", &[("a", server, "web/a"), ("b", server, "web/b")])]).await;
    stage
        .foresees(&["drain", "web/a"], share("web", 100, 50))
        .await;
    stage.run(&["set", "web/a", "maint", "--wait"]).exits(0);
    stage
        .foresees(&["ready", "web/a"], share("web", 50, 100))
        .await;
    // It moves nothing that its backend would show, and is shown all the same.
    stage
        .foresees(&["set", "web/a", "drain"], share("web", 50, 50))
        .await;
    let told = stage.run(&["ready", "web/a"]).exits(0).stdout;
    assert!(told.contains("web      50%          100%"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_another_key_decides_are_named() {
    let stage = Stage::new(&[(
        "web",
        &[
            ("a", NOWHERE, "web/a zone/us-east1-b"),
            ("cny", NOWHERE, "web/cny canary zone/us-east1-b"),
        ],
    )])
    .await;
    stage
        .foresees(&["drain", "canary"], share("web", 100, 50))
        .await;
    stage.run(&["set", "canary", "100%"]).exits(0);
    let drained = stage
        .run(&["set", "zone/us-east1-b", "drain", "--json"])
        .exits(0);
    assert!(
        drained
            .stderr
            .contains("stays in rotation: web/cny, by canary = 100%"),
        "{drained:#?}"
    );
    let document = drained.json();
    assert_eq!(document["rows"], json!(["web/a"]));
    assert_eq!(
        document["kept_in"],
        json!([{"row": "web/cny", "key": "canary", "value": "100%"}])
    );

    // A ramp to 100% leaves no key behind, and what stands behind it decides again.
    let words = ["ramp", "canary", "50%,100%", "--every", "1s", "--json"];
    let ramp = stage.run(&words).exits(0);
    assert_eq!(
        ramp.json()["changed"],
        json!([{"key": "canary", "before": "100%", "after": null}])
    );
    assert_eq!(
        ramp.json()["kept_out"],
        json!([{"row": "web/cny", "key": "zone/us-east1-b", "value": "drain"}])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pattern_never_takes_out_everything_unasked() {
    let stage = Stage::new(&[
        (
            "web",
            &[
                ("web-us-east1-b", NOWHERE, "web/web-us-east1-b"),
                ("web-us-east1-c", NOWHERE, "web/web-us-east1-c"),
            ],
        ),
        ("api", &[("api-us-east1-b", NOWHERE, "api/api-us-east1-b")]),
        ("canary_web", &[("cny", NOWHERE, "canary_web/cny canary")]),
        (
            "haplane-heartbeat",
            &[("self", NOWHERE, "haplane-heartbeat/self")],
        ),
    ])
    .await;
    stage
        .foresees(&["drain", "api/*"], share("api", 100, 0))
        .await;
    stage
        .foresees(&["drain", "canary"], share("canary_web", 100, 0))
        .await;
    for words in [
        &["drain", "*/*"][..],
        &["drain", "**", "--dry-run"],
        &["set", "*/*", "0%"],
        &["drain", "-z", "us-east1"],
    ] {
        let refused = stage.run(words).exits(3);
        for said in ["leaves nothing in", "--min-ready 0%"] {
            assert!(refused.stderr.contains(said), "{words:?}: {refused:#?}");
        }
    }
    let region = stage.run(&["drain", "-z", "us-east1"]).exits(3);
    assert!(
        region
            .stderr
            .contains("zone us-east1 is several: us-east1-b, us-east1-c"),
        "{region:#?}"
    );
    for words in [
        &["drain", "-z", "us-east1-b", "--dry-run"][..],
        &["drain", "canary_*/*", "--dry-run"],
        &["drain", "web/*", "--dry-run"],
        &["canary", "--disable", "--drain-only"],
        &["canary", "--enable"],
    ] {
        stage.run(words).exits(0);
    }
    let all = stage
        .run(&[
            "drain",
            "*/*",
            "--min-ready",
            "0%",
            "--drain-only",
            "--json",
        ])
        .exits(0)
        .json();
    let rows = all["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4, "the heartbeat beats on: {rows:?}");
}
