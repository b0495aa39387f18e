//! `init`, `show`, `set` and `clear` on a real Consul.

use haplane_testkit::consul::{Consul, Options};
use serde_json::json;

use crate::command::Haplane;

async fn start() -> (Consul, Haplane) {
    let consul = Consul::start(Options::new()).await;
    let haplane = Haplane::on(format!("consul:{}", consul.url()));
    (consul, haplane)
}

#[tokio::test(flavor = "multi_thread")]
async fn one_command_is_one_transaction_with_its_log_entry() {
    let (consul, haplane) = start().await;
    haplane.run(&["init"]).exits(0);
    let words = [
        "set",
        "canary",
        "web/a:1",
        "drain",
        "--reason",
        "bad deploy",
        "--ticket",
        "INC-7",
        "--json",
    ];
    let set = haplane.run(&words).exits(0).json();
    assert_eq!(
        set["changed"],
        json!([
            {"key": "canary", "before": null, "after": "drain"},
            {"key": "web/a:1", "before": null, "after": "drain"},
        ])
    );
    assert_eq!(set["waited"], json!(null));
    let index = set["index"].as_u64().unwrap();

    let keys = consul.list("haplane/state/").await;
    let names: Vec<&str> = keys.iter().map(|entry| entry.key.as_str()).collect();
    assert_eq!(
        names,
        [
            "haplane/state/.haplane",
            "haplane/state/canary",
            "haplane/state/web/a,3A1"
        ]
    );
    assert_eq!(keys[1].modify_index, index);
    assert_eq!(keys[2].modify_index, index, "all in one transaction");
    let log = consul.list("haplane/log/").await;
    assert_eq!(log.len(), 1);
    assert_eq!(
        log[0].key,
        format!("haplane/log/{:016x}", keys[1].flags),
        "the flags name the entry"
    );
    let entry: serde_json::Value = serde_json::from_slice(&log[0].value).unwrap();
    assert_eq!(entry["by"], "alice");
    assert_eq!(entry["reason"], "bad deploy");
    assert_eq!(
        entry["command"],
        "haplane set canary web/a:1 drain --reason 'bad deploy' --ticket INC-7 --json"
    );

    let show = haplane.run(&["show", "--json"]).exits(0).json();
    assert_eq!(show["index"], index);
    let canary = &show["keys"][0];
    assert_eq!(canary["key"], "canary");
    assert_eq!(canary["value"], "drain");
    assert_eq!(canary["valid"], true);
    assert_eq!(canary["until"], json!(null));
    assert_eq!(
        (&canary["by"], &canary["ticket"]),
        (&json!("alice"), &json!("INC-7"))
    );
    assert!(canary["since"].as_str().unwrap().ends_with('Z'));

    let again = haplane.run(&words).exits(0).json();
    assert_eq!(again["changed"], json!([]));
    assert_eq!(again["index"], index);
    assert_eq!(
        consul.list("haplane/log/").await.len(),
        1,
        "nothing changed, nothing logged"
    );

    let cleared = haplane.run(&["clear", "canary", "--json"]).exits(0).json();
    assert_eq!(
        cleared["changed"],
        json!([{"key": "canary", "before": "drain", "after": null}])
    );
    assert!(cleared["index"].as_u64().unwrap() > index);
    assert!(consul.get("haplane/state/canary").await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_written_by_hand_says_so_and_what_is_no_value_is_replaced() {
    let (consul, haplane) = start().await;
    haplane.run(&["init"]).exits(0);
    consul.put("haplane/state/canary", "drain\n").await;
    consul.put("haplane/state/web/a", "down").await;
    consul
        .put("haplane/state/web/b", "drain until=2020-01-01T00:00:00Z")
        .await;
    consul.put("haplane/state2/web/c", "drain").await;
    let show = haplane.run(&["show", "--json"]).exits(0).json();
    let told: Vec<_> = show["keys"]
        .as_array()
        .unwrap()
        .iter()
        .map(|key| {
            json!([
                key["key"],
                key["value"],
                key["valid"],
                key["by"],
                key["until"],
                key["expired"]
            ])
        })
        .collect();
    assert_eq!(
        json!(told),
        json!([
            ["canary", "drain", true, null, null, false],
            ["web/a", "down", false, null, null, false],
            ["web/b", "drain", true, null, "2020-01-01T00:00:00Z", true],
        ])
    );
    let set = haplane
        .run(&["set", "web/a", "50%", "--json"])
        .exits(0)
        .json();
    assert_eq!(
        set["changed"],
        json!([{"key": "web/a", "before": "down", "after": "50%"}])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_keys_are_two_transactions_and_an_end_is_written_beside_the_word() {
    let (consul, haplane) = start().await;
    haplane.run(&["init"]).exits(0);
    let keys: Vec<String> = (0..100).map(|n| format!("web/s{n}")).collect();
    let mut words = vec!["set"];
    words.extend(keys.iter().map(String::as_str));
    words.extend(["maint", "--for", "2h", "--json"]);
    let set = haplane.run(&words).exits(0).json();
    assert_eq!(set["changed"].as_array().unwrap().len(), 100);
    assert_eq!(
        consul.list("haplane/log/").await.len(),
        2,
        "62 keys and the rest"
    );
    let last = consul.get("haplane/state/web/s99").await.unwrap();
    assert_eq!(last.modify_index, set["index"].as_u64().unwrap());
    let text = String::from_utf8(last.value).unwrap();
    assert!(
        text.starts_with("maint until=20") && text.ends_with('Z'),
        "{text}"
    );

    let dry = haplane
        .run(&["clear", "web/*", "--dry-run", "--json"])
        .exits(0)
        .json();
    assert_eq!(dry["changed"].as_array().unwrap().len(), 100);
    assert_eq!(
        consul.list("haplane/state/web/").await.len(),
        100,
        "a dry run writes nothing"
    );
    haplane.run(&["clear", "web/*"]).exits(0);
    assert!(consul.list("haplane/state/web/").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_marker_nothing_read_is_believed_and_init_makes_it() {
    let (consul, haplane) = start().await;
    consul.put("haplane/state/canary", "drain").await;
    let show = haplane.run(&["show", "--json"]).exits(3);
    let message = show.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(
        message.contains("haplane init") && message.contains("token"),
        "{message}"
    );
    assert_eq!(show.json()["error"]["exit"], 3);

    let init = haplane.run(&["init", "--json"]).exits(0).json();
    assert_eq!(init["made_marker"], true);
    assert!(consul.get("haplane/state/.haplane").await.is_some());
    let again = haplane.run(&["init", "--json"]).exits(0).json();
    assert_eq!(again["made_marker"], false);
    haplane.run(&["show"]).exits(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_prefix_of_other_tools_is_read_without_marker_when_told_so() {
    let (consul, haplane) = start().await;
    consul
        .put("gitlab-haproxy-agent/state/canary", "drain")
        .await;
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = "state_prefix = \"gitlab-haproxy-agent/state\"\n[agent]\nrequire_marker = false\n";
    std::fs::write(file.path(), text).unwrap();
    let config = file.path().to_str().unwrap();
    let show = haplane
        .run(&["show", "--config", config, "--json"])
        .exits(0)
        .json();
    assert_eq!(show["keys"][0]["key"], "canary");
    haplane
        .run(&["set", "web/a", "maint", "--config", config])
        .exits(0);
    let keys = consul.list("gitlab-haproxy-agent/state/").await;
    let names: Vec<&str> = keys.iter().map(|entry| entry.key.as_str()).collect();
    assert_eq!(
        names,
        [
            "gitlab-haproxy-agent/state/canary",
            "gitlab-haproxy-agent/state/web/a"
        ],
        "it is written, and no marker is made"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mistyped_prefix_is_no_second_truth() {
    let (consul, haplane) = start().await;
    haplane.run(&["init"]).exits(0);
    for words in [
        &["set", "canary", "drain"][..],
        &["set", "canary", "drain", "--force", "--dry-run"],
        &["drain", "canary", "--drain-only"],
        &["ready", "canary"],
        &["ramp", "canary", "10%,100%"],
        &["clear", "canary"],
        &["canary", "--disable"],
        &["heartbeat", "--once"],
        &["show"],
    ] {
        let words: Vec<&str> = words.iter().copied().chain(["--prefix", "nope/"]).collect();
        let refused = haplane.run(&words).exits(3);
        let place = format!("nope/state/ in consul:{}", consul.url());
        for said in [place.as_str(), "haplane init"] {
            assert!(refused.stderr.contains(said), "{words:?}: {refused:#?}");
        }
    }
    assert!(consul.list("nope").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consul_that_is_gone_is_status_5_and_one_document() {
    let (mut consul, haplane) = start().await;
    consul.kill();
    let set = haplane.run(&["set", "canary", "drain", "--json"]).exits(5);
    assert_eq!(set.json()["error"]["exit"], 5);
    assert!(
        set.stderr.contains(&consul.address().port().to_string()),
        "{}",
        set.stderr
    );
}
