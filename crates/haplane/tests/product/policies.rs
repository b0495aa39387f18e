//! The Consul policies that are shipped: each is enough for its job, and for no more.

use std::time::Duration;

use haplane_testkit::consul::{Consul, MANAGEMENT_TOKEN, Options};
use haplane_testkit::eventually::eventually;
use haplane_testkit::http::Request;

use crate::agent::Agent;
use crate::checkout::text;
use crate::command::Haplane;

async fn with_policy(consul: &Consul, name: &str) -> Haplane {
    consul
        .set_policy(name, &text(&format!("packaging/consul-acl/{name}.hcl")))
        .await;
    let token = consul.create_token(&[name]).await;
    Haplane::on(format!("consul:{}", consul.url())).with("CONSUL_HTTP_TOKEN", &token.secret)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_policy_allows_its_job_and_no_more() {
    let consul = Consul::start(Options::new().acl()).await;
    let writer = with_policy(&consul, "writer").await;
    writer.run(&["init"]).exits(0);
    writer.run(&["set", "canary", "drain", "--force"]).exits(0);

    let reader = with_policy(&consul, "reader").await;
    let shown = reader.run(&["show"]).exits(0);
    assert!(shown.stdout.contains("alice"), "the log too: {shown:?}");
    reader.run(&["set", "canary", "maint", "--force"]).exits(5);

    let agent = with_policy(&consul, "agent").await;
    agent.run(&["set", "canary", "maint", "--force"]).exits(5);
    let _running = Agent::start(&agent).await;
    let registered =
        Request::get("/v1/health/service/haplane-agent").header("X-Consul-Token", MANAGEMENT_TOKEN);
    eventually(
        "the agent is registered",
        Duration::from_secs(10),
        async || {
            let answer = registered.send(&consul.target()).await.unwrap().ok();
            let services = answer.json();
            match services.as_array().map(Vec::len) {
                Some(1) => Ok(()),
                _ => Err(services),
            }
        },
    )
    .await;
}
