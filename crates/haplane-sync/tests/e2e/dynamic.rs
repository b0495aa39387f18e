//! Servers that are added and deleted at run time instead of slots.

use haplane_testkit::agent_peer::{RecordingAgent, Say};
use haplane_testkit::eventually::eventually;
use haplane_testkit::haproxy::Version;
use haplane_testkit::traffic::send;

use crate::stage::{PATIENCE, Slots, Stage, origins, refs};

/// The template's one slot stands for a server of the configuration, which is not ours.
fn config() -> Slots {
    Slots::plain(1)
}

fn pool(parameters: &str) -> String {
    format!(
        "mode = \"dynamic\"\nmax_servers = 4\nslots = \"dyn-\"\nserver_parameters = \"{}\"\nmax_removal = \"100%\"",
        parameters.replace('"', "\\\"")
    )
}

async fn names(stage: &Stage) -> Vec<String> {
    let servers = stage.haproxy.servers().await;
    let mut names: Vec<_> = servers
        .iter()
        .map(|server| server.get("srv_name").to_owned())
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn servers_are_added_and_deleted() {
    Version::each(async |version| {
        let mut stage = Stage::new(version, config()).await;
        let origins = origins(6);
        stage.list(&refs(&origins[..3]));
        stage.start("", &pool("check inter 100ms rise 1 weight 100"));
        stage.serves_up(&refs(&origins[..3])).await;
        assert_eq!(
            names(&stage).await,
            ["dyn-i0", "dyn-i1", "dyn-i2", "web-1"],
            "{version:?}"
        );
        let shares = send(stage.frontend.address(), 9).await;
        assert_eq!((shares.of("i0"), shares.failed()), (3, 0), "{version:?}");

        // Full, and everything replaced: what left is deleted, what does not fit is listed.
        stage.list(&refs(&origins[1..]));
        stage.serves_up(&refs(&origins[1..5])).await;
        let pool = stage.pool().await;
        assert_eq!(
            pool["processes"][0]["homeless"][0]["instance"], "i5",
            "{pool}"
        );
        stage.list(&refs(&origins[5..]));
        stage.serves_up(&refs(&origins[5..])).await;
        eventually("the others are deleted", PATIENCE, || async {
            let names = names(&stage).await;
            if names == ["dyn-i5", "web-1"] {
                Ok(())
            } else {
                Err(names)
            }
        })
        .await;

        // A reload forgets dynamic servers.
        stage.haproxy.reload().await;
        stage.serves_up(&refs(&origins[5..])).await;
        stage.stop().await;
    })
    .await;
}

/// The agent of a dynamic server starts with health 0: only told otherwise, or by the word `up`, would it come up.
#[tokio::test]
async fn enrolled_dynamic_servers_come_up_and_keep_their_state() {
    Version::each(async |version| {
        let agent = RecordingAgent::start(Say::Text("ready 100%\n".into()));
        agent.say("web/i1", Say::Text("drain\n".into()));
        let mut stage = Stage::new(version, config()).await;
        let origins = origins(2);
        stage.list(&refs(&origins));
        let parameters = format!(
            "check inter 100ms rise 1 weight 100 agent-check agent-addr 127.0.0.1 agent-port {} agent-inter 200ms",
            agent.address().port()
        );
        stage.start(
            &format!("agent = \"{}\"", agent.address()),
            &pool(&parameters),
        );
        eventually("one serves, the other drains", PATIENCE, || async {
            let shares = send(stage.frontend.address(), 4).await;
            if shares.of("i0") == 4 {
                Ok(())
            } else {
                Err(shares)
            }
        })
        .await;
        let state = stage
            .haproxy
            .server("web/dyn-i1")
            .await
            .number("srv_admin_state");
        assert_eq!(state & 8, 8, "{version:?}");
        let words: Vec<_> = agent
            .asks()
            .iter()
            .map(|ask| String::from_utf8_lossy(&ask.bytes).trim_end().to_owned())
            .collect();
        assert!(words.iter().any(|words| words == "web/i0"), "{words:?}");
        assert_eq!(origins[1].served(), 0);
        stage.list(&refs(&origins[..1]));
        eventually("the other is deleted", PATIENCE, || async {
            let names = names(&stage).await;
            if names == ["dyn-i0", "web-1"] {
                Ok(())
            } else {
                Err(names)
            }
        })
        .await;
        stage.stop().await;
    })
    .await;
}

/// HAProxy refuses a server that was never there: no slot shows it, so everything else must. (Once a pool of which not one
/// server could be added was told as ready, in line, and without anybody who has no slot.)
#[tokio::test]
async fn a_server_that_haproxy_will_not_take_is_told_until_it_is_in() {
    Version::each(async |version| {
        let mut stage = Stage::new(version, config()).await;
        let origins = origins(2);
        stage.list(&refs(&origins));
        // Only one server can have the number.
        stage.start("", &pool("weight 100 id 77"));
        stage.serves(&refs(&origins[..1])).await;
        let told = eventually("who is kept out", PATIENCE, || async {
            let pool = stage.pool().await;
            let process = pool["processes"][0].clone();
            if process["failing"] == serde_json::json!(["i1"]) {
                Ok(process)
            } else {
                Err(pool)
            }
        })
        .await;
        let error = told["error"].as_str().unwrap();
        assert!(error.starts_with("add dyn-i1: HAProxy answered"), "{error}");
        assert_eq!(told["last_success"], serde_json::Value::Null, "{told}");
        // Tried again in a plan, or waiting for that: at no moment it looks well.
        for _ in 0..20 {
            let (status, text) = stage.get("/readyz").await;
            assert_eq!(status, 503, "{text}");
            assert!(text.contains("add dyn-i1"), "{text}");
        }
        let (_, metrics) = stage.get("/metrics").await;
        assert!(
            metrics.contains("haplane_sync_failing{pool=\"web\"} 1"),
            "{metrics}"
        );

        stage.list(&refs(&origins[1..]));
        stage.serves(&refs(&origins[1..])).await;
        eventually("all is well again", PATIENCE, || async {
            let ready = stage.get("/readyz").await;
            let process = stage.pool().await["processes"][0].clone();
            if ready.0 == 200 && process["failing"] == serde_json::json!([]) {
                Ok(())
            } else {
                Err((ready, process))
            }
        })
        .await;
        stage.stop().await;
    })
    .await;
}
