//! A Consul that denies: every message names the missing permission.

use haplane_testkit::consul::{Consul, MANAGEMENT_TOKEN, Options};

use crate::agent_process::Launch;
use crate::command::Haplane;

async fn with_policy(consul: &Consul, rules: &str) -> Haplane {
    consul.set_policy("p", rules).await;
    let token = consul.create_token(&["p"]).await;
    Haplane::on(format!("consul:{}", consul.url())).with("CONSUL_HTTP_TOKEN", &token.secret)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_denied_is_status_5_and_names_the_permission() {
    let consul = Consul::start(Options::new().acl()).await;
    let nobody = Haplane::on(format!("consul:{}", consul.url()));
    let manager = nobody.with("CONSUL_HTTP_TOKEN", MANAGEMENT_TOKEN);
    for words in [
        &["show"][..],
        &["set", "canary", "drain"],
        &["clear", "canary"],
        &["init"],
    ] {
        let run = nobody.run(words).exits(5);
        assert!(
            run.stderr.contains("haplane/state/"),
            "{words:?}: {}",
            run.stderr
        );
    }
    manager.run(&["init"]).exits(0);
    manager.run(&["set", "canary", "drain"]).exits(0);

    let read_state = r#"key_prefix "haplane/state/" { policy = "read" }"#;
    let reader = with_policy(&consul, read_state).await;
    let set = reader.run(&["set", "canary", "maint"]).exits(5);
    assert!(set.stderr.contains("write"), "{}", set.stderr);

    let all = r#"key_prefix "haplane/" { policy = "write" }"#;
    let writer = with_policy(&consul, all).await;
    writer.run(&["set", "canary", "maint"]).exits(0);
    writer.run(&["clear", "canary"]).exits(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_without_the_log_is_told_so() {
    let consul = Consul::start(Options::new().acl()).await;
    let nobody = Haplane::on(format!("consul:{}", consul.url()));
    let manager = nobody.with("CONSUL_HTTP_TOKEN", MANAGEMENT_TOKEN);
    manager.run(&["init"]).exits(0);
    manager.run(&["set", "canary", "drain"]).exits(0);
    let reader = with_policy(
        &consul,
        r#"key_prefix "haplane/state/" { policy = "read" }"#,
    )
    .await;
    let show = reader.run(&["show"]).exits(0);
    assert!(show.stdout.contains("canary  drain"), "{}", show.stdout);
    assert!(show.stderr.contains("haplane/log/"), "{}", show.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_read_the_state_still_sees_the_agents() {
    let consul = Consul::start(Options::new().acl()).await;
    let nobody = Haplane::on(format!("consul:{}", consul.url()));
    let manager = nobody.with("CONSUL_HTTP_TOKEN", MANAGEMENT_TOKEN);
    manager.run(&["init"]).exits(0);
    manager.run(&["set", "canary", "drain"]).exits(0);
    let agent = Launch::registered(&consul, "lb-01")
        .with("CONSUL_HTTP_TOKEN", MANAGEMENT_TOKEN)
        .ready()
        .await;
    agent.answers("web/a canary", "drain").await;
    let rules = r#"service "haplane-agent" { policy = "read" } node_prefix "" { policy = "read" }"#;
    let run = with_policy(&consul, rules)
        .await
        .run(&["status", "--json"])
        .exits(5);
    let status = run.json();
    let message = status["error"]["message"].as_str().unwrap();
    assert!(message.contains("haplane/state/"), "{message}");
    assert_eq!(status["nodes"][0]["node"], "lb-01", "Consul names it");
    assert_eq!(status["rows"][0]["row"], "web/a");
}

/// What is drained and hidden is no "yes" for a pipeline, and a log that is denied is not an empty one.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_token_may_not_see_is_not_taken_for_absent() {
    let consul = Consul::start(Options::new().acl()).await;
    let nobody = Haplane::on(format!("consul:{}", consul.url()));
    let manager = nobody.with("CONSUL_HTTP_TOKEN", MANAGEMENT_TOKEN);
    manager.run(&["init"]).exits(0);
    manager.run(&["set", "canary", "drain"]).exits(0);
    let partly = with_policy(
        &consul,
        r#"key "haplane/state/.haplane" { policy = "read" }
           key_prefix "haplane/state/web/" { policy = "write" }
           key "haplane/log/x" { policy = "read" }"#,
    )
    .await;
    for words in [
        &["canary", "--is-active"][..],
        &["canary", "--status", "--json"],
        &["show", "canary"],
        &["clear", "canary"],
        &["ready", "canary", "--json"],
        &["log"],
    ] {
        let run = partly.run(words).exits(5);
        assert!(
            run.stderr.contains("key_prefix") && run.stderr.contains("read"),
            "{words:?}: {}",
            run.stderr
        );
    }
    let failed = partly.run(&["clear", "canary", "--json"]).exits(5).json();
    assert_eq!(failed["changed"], serde_json::json!([]), "{failed}");
    let show = partly.run(&["show", "web/a"]).exits(0);
    assert!(show.stdout.contains("absent"), "{}", show.stdout);
}
