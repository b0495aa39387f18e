//! What outlives whom: HAProxy reloaded and restarted, the agent killed, Consul away.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use haplane_testkit::consul::{Consul, Options};
use haplane_testkit::eventually::{eventually, throughout};
use haplane_testkit::haproxy::{Config, Haproxy, Version};
use haplane_testkit::origin::Origin;

use crate::agent_process::{Agent, Launch, PATIENCE};
use crate::haproxy_rows::{AT_ONCE, DEFAULTS, DRAIN, MAINT, READY, differences, enrolled, states};

/// Four rows in four states.
const DESIRED: [(&str, Option<&str>, (i64, i64)); 4] = [
    ("web/ready", None, (READY, 100)),
    ("web/drain", Some("drain"), (DRAIN, 100)),
    ("web/maint", Some("maint"), (MAINT, 100)),
    ("web/half", Some("50%"), (READY, 50)),
];

fn wanted() -> BTreeMap<String, (i64, i64)> {
    DESIRED
        .map(|(row, _, state)| (row.to_owned(), state))
        .into()
}

async fn desire(consul: &Consul) {
    consul.put("haplane/state/.haplane", "").await;
    for (row, value, _) in DESIRED {
        if let Some(value) = value {
            consul.put(&format!("haplane/state/{row}"), value).await;
        }
    }
}

fn config(agent: &Agent, origin: &Origin) -> Config {
    let lines = DESIRED.map(|(row, _, _)| {
        let server = row.trim_start_matches("web/");
        let asks = enrolled(agent.checks(), row);
        format!(" server {server} {} weight 100 {asks}\n", origin.address())
    });
    let text = format!("{DEFAULTS}\nbackend web\n{}", lines.concat());
    Config::new(&text).global(AT_ONCE)
}

async fn show_what_is_desired(what: &str, haproxy: &Haproxy) {
    let what = format!("{what} in {:?}", haproxy.version());
    eventually(&what, PATIENCE, async || {
        differences(&wanted(), &states(haproxy).await)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reloaded_and_a_restarted_haproxy_take_the_state_up_again() {
    let consul = Consul::start(Options::new()).await;
    desire(&consul).await;
    let agent = Launch::on_consul(&consul).ready().await;
    let origin = Origin::start("origin");
    let mut haproxies = Vec::new();
    for version in Version::ALL {
        let config = config(&agent, &origin);
        haproxies.push(Haproxy::start(version, config.clone()).await);
        haproxies.push(Haproxy::start(version, config.master_worker()).await);
    }
    for haproxy in &mut haproxies {
        show_what_is_desired("at first", haproxy).await;
        let before = haproxy.pid().await;
        haproxy.reload().await;
        assert_ne!(haproxy.pid().await, before, "a new process");
        show_what_is_desired("after a reload", haproxy).await;
        haproxy.restart().await;
        show_what_is_desired("after a restart", haproxy).await;
    }
    // What changes meanwhile reaches the new processes, too.
    consul.delete("haplane/state/web/drain").await;
    consul.put("haplane/state/web/half", "drain").await;
    let mut wanted = wanted();
    wanted.insert("web/drain".to_owned(), (READY, 100));
    wanted.insert("web/half".to_owned(), (DRAIN, 50));
    for haproxy in &haproxies {
        eventually("a change after all this", PATIENCE, async || {
            differences(&wanted, &states(haproxy).await)
        })
        .await;
    }
}

/// Until the first snapshot HAProxy is refused, which changes nothing.
async fn is_refused(agent: &Agent) -> Result<(), String> {
    match agent.ask("web/ready").await {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_agent_changes_nothing_and_a_new_one_listens_only_when_it_knows() {
    let mut consul = Consul::start(Options::new()).await;
    desire(&consul).await;
    let launch = Launch::on_consul(&consul);
    let mut agent = launch.clone().ready().await;
    let origin = Origin::start("origin");
    let mut haproxies = Vec::new();
    for version in Version::ALL {
        haproxies.push(Haproxy::start(version, config(&agent, &origin)).await);
    }
    for haproxy in &haproxies {
        show_what_is_desired("at first", haproxy).await;
    }
    let stays = async |what: &str| {
        let lasting = Duration::from_millis(700);
        let look = async |haproxy: &Haproxy| {
            throughout(what, lasting, async || {
                differences(&wanted(), &states(haproxy).await)
            })
            .await;
        };
        tokio::join!(look(&haproxies[0]), look(&haproxies[1]));
    };

    agent.process().kill();
    for haproxy in &haproxies {
        eventually("an agent that HAProxy cannot reach", PATIENCE, async || {
            let row = haproxy.stat("web/drain").await;
            let status = row.get("agent_status").trim_start_matches("* ").to_owned();
            if status == "L4CON" {
                Ok(())
            } else {
                Err(status)
            }
        })
        .await;
    }
    stays("no agent").await;

    consul.freeze().await;
    agent.replace(&launch);
    let unready = eventually(
        "an agent that waits for Consul",
        PATIENCE,
        async || match agent.page("/readyz").await {
            Ok(answer) => Ok(answer),
            Err(error) => Err(error.to_string()),
        },
    )
    .await;
    assert_eq!(unready.status, 503, "{}", unready.text());
    assert!(
        unready.text().starts_with("no snapshot yet: "),
        "{}",
        unready.text()
    );
    let both = async {
        throughout(
            "no answer from nothing",
            Duration::from_millis(700),
            async || is_refused(&agent).await,
        )
        .await;
    };
    tokio::join!(stays("an agent without a snapshot"), both);
    assert_eq!(agent.page("/healthz").await.unwrap().status, 200);
    let node = agent.json("/v1/node").await;
    assert!(node["store"]["index"].is_null(), "{node}");

    consul.thaw();
    agent.becomes_ready().await;
    stays("an agent that knows again").await;

    // Consul goes away under a running agent: it answers as before, HAProxy loses nothing.
    consul.kill();
    eventually("the failure told", PATIENCE, async || {
        let error = agent.json("/v1/node").await["store"]["error"].clone();
        if error.is_string() {
            Ok(())
        } else {
            Err(error)
        }
    })
    .await;
    stays("no Consul").await;
    assert_eq!(agent.ask("web/drain").await.unwrap(), "drain");
    assert_eq!(agent.page("/readyz").await.unwrap().status, 200);
    consul.launch();
    consul.ready().await;
    consul.delete("haplane/state/web/drain").await;
    agent.answers("web/drain", "ready 100%").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_last_good_snapshot_it_answers_while_the_store_is_away() {
    let mut consul = Consul::start(Options::new()).await;
    desire(&consul).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("last-good.json");
    let launch = Launch::on_consul(&consul).flags(&["--last-good", file.to_str().unwrap()]);
    let mut agent = launch.clone().ready().await;
    eventually("the snapshot kept", PATIENCE, async || {
        std::fs::read_to_string(&file).map_err(|error| error.to_string())
    })
    .await;
    consul.kill();
    agent.replace(&launch);
    agent.answers("web/drain", "drain").await;
    agent.answers("web/half", "ready 50%").await;
    let ready = agent.page("/readyz").await.unwrap();
    assert_eq!(ready.status, 200);
    assert!(ready.text().starts_with("degraded: "), "{}", ready.text());
    consul.launch();
    consul.ready().await;
    agent.becomes_ready().await;
    consul.put("haplane/state/web/drain", "maint").await;
    agent.answers("web/drain", "maint").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_last_good_snapshot_that_cannot_be_replaced_is_taken_away() {
    let consul = Consul::start(Options::new()).await;
    desire(&consul).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("last-good.json");
    let launch = Launch::on_consul(&consul).flags(&["--last-good", file.to_str().unwrap()]);
    let agent = launch.clone().ready().await;
    eventually("the snapshot kept", PATIENCE, async || {
        std::fs::read_to_string(&file).map_err(|error| error.to_string())
    })
    .await;
    // Where the new one would be written aside, there is no place for it.
    std::fs::create_dir(folder.path().join("last-good.json.new")).unwrap();
    consul.put("haplane/state/web/half", "drain").await;
    agent.answers("web/half", "drain").await;
    eventually("the old one gone, and told", PATIENCE, async || {
        let metrics = agent.page("/metrics").await.unwrap().text();
        let told = metrics.contains("haplane_last_good_failing{reason=\"not_kept\"} 1");
        (told && !file.exists()).then_some(()).ok_or(metrics)
    })
    .await;
}
