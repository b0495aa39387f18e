//! A Consul that says too little must not bring a drained server back: what HAProxy sees of it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use haplane_core::guard::SETTLE;
use haplane_testkit::consul::{Consul, Options, Token};
use haplane_testkit::eventually::eventually;
use haplane_testkit::haproxy::{Config, Haproxy, Version};
use haplane_testkit::origin::Origin;
use jiff::{SignedDuration, Timestamp};

use crate::agent_process::{Agent, Launch, PATIENCE};
use crate::command::Haplane;
use crate::haproxy_rows::{
    AT_ONCE, DEFAULTS, DRAIN, MAINT, READY, differences, enrolled, states, unmoved,
};

/// From the moment that the store is well to the first right answer, with a second for a busy
/// machine: the longest pause between two reads is 2 s.
const RECOVERY: Duration = Duration::from_secs(4);

const READ_STATE: &str = r#"key_prefix "haplane/state/" { policy = "read" }"#;

type States = BTreeMap<String, (i64, i64)>;

fn rows(drained: (i64, i64), kept_out: (i64, i64)) -> States {
    let all = [
        ("web/a", (READY, 1)),
        ("web/b", drained),
        ("web/c", kept_out),
    ];
    all.map(|(row, state)| (row.to_owned(), state)).into()
}

/// `web/b` is drained by a group and `web/c` in maintenance by its own key.
fn as_desired() -> States {
    rows((DRAIN, 1), (MAINT, 1))
}

async fn desire(consul: &Consul) {
    consul.put("haplane/state/.haplane", "").await;
    consul.put("haplane/state/canary", "drain").await;
    consul.put("haplane/state/web/c", "maint").await;
}

async fn haproxy_beside(agent: &Agent) -> (Haproxy, Origin) {
    let origin = Origin::start("origin");
    let servers = [("a", "web/a"), ("b", "web/b canary"), ("c", "web/c")];
    let lines = servers.map(|(name, words)| {
        let asks = enrolled(agent.checks(), words);
        format!(" server {name} {} {asks}\n", origin.address())
    });
    let text = format!("{DEFAULTS}\nbackend web\n{}", lines.concat());
    let config = Config::new(&text).global(AT_ONCE);
    (Haproxy::start(Version::V28, config).await, origin)
}

async fn shows(haproxy: &Haproxy, wanted: &States, within: Duration) {
    eventually("the rows as wanted", within, async || {
        differences(wanted, &states(haproxy).await)
    })
    .await;
}

/// Waits until the agent refuses what the store says, for this reason, and tells it everywhere.
///
/// A query that waits was permitted when it came: what wakes it first still brings everything, and
/// only the one after it shows what is denied now.
async fn refuses(agent: &Agent, reason: &str, mut meanwhile: impl AsyncFnMut()) {
    let what = format!("guarded: {reason}");
    let guard = eventually(&what, PATIENCE, async || {
        meanwhile().await;
        let store = agent.json("/v1/node").await["store"].clone();
        if store["guard"]["reason"] == reason {
            Ok(store["guard"].clone())
        } else {
            Err(store)
        }
    })
    .await;
    assert!(guard["since"].as_str().unwrap().ends_with('Z'), "{guard}");
    assert!(!guard["detail"].as_str().unwrap().is_empty(), "{guard}");
    let series = format!("haplane_store_guard_active{{reason=\"{reason}\"}}");
    assert!(agent.metric(&series).await > 0.5, "{series}");
}

/// Writes a key that nobody asks for, which wakes whoever waits.
async fn wake(consul: &Consul) {
    let text = format!("ready until={}", Timestamp::now());
    consul.put("haplane/state/nobody", text).await;
}

/// Waits until it refuses nothing any more.
async fn trusts_again(agent: &Agent) {
    eventually("no guard", RECOVERY, async || {
        let store = agent.json("/v1/node").await["store"].clone();
        if store["guard"].is_null() && store["error"].is_null() {
            Ok(())
        } else {
            Err(store)
        }
    })
    .await;
    let page = agent.page("/metrics").await.unwrap().ok().text();
    let active = page
        .lines()
        .filter(|line| line.starts_with("haplane_store_guard_active{") && !line.ends_with(" 0"));
    assert_eq!(active.count(), 0, "{page}");
}

/// How often a text stands in the log.
fn told(agent: &Agent, text: &str) -> usize {
    agent.log().matches(text).count()
}

const REFUSED: &str = "what the store says is refused";

/// An agent with a token that may read the state, or not, as the policy `reader` says.
async fn with_token(consul: &Consul, rules: &str) -> (Launch, Token) {
    consul.set_policy("reader", rules).await;
    let token = consul.create_token(&["reader"]).await;
    let launch = Launch::on_consul(consul).with("CONSUL_HTTP_TOKEN", &token.secret);
    (launch, token)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_without_rights_at_start_answers_nobody() {
    let consul = Consul::start(Options::new().acl()).await;
    desire(&consul).await;
    let (launch, _) = with_token(&consul, "").await;
    let mut agent = launch.start();
    let (haproxy, _origin) = haproxy_beside(&agent).await;
    haproxy
        .command("set server web/b state drain; set server web/c state maint")
        .await;
    unmoved("no answer", &haproxy, &as_desired(), async {
        eventually("the reason told", PATIENCE, async || {
            let ready = agent
                .page("/readyz")
                .await
                .map_err(|error| error.to_string())?;
            let causes = ["token", "haplane/state/"];
            let named = causes.iter().all(|cause| ready.text().contains(cause));
            if ready.status == 503 && named {
                Ok(())
            } else {
                Err(ready.text())
            }
        })
        .await;
        assert!(
            agent.ask("web/b canary").await.is_err(),
            "it does not listen"
        );
        consul.set_policy("reader", READ_STATE).await;
        let permitted = Instant::now();
        agent.becomes_ready().await;
        assert!(permitted.elapsed() < RECOVERY, "{:?}", permitted.elapsed());
        trusts_again(&agent).await;
    })
    .await;
    consul.delete("haplane/state/canary").await;
    shows(&haproxy, &rows((READY, 1), (MAINT, 1)), PATIENCE).await;
}

/// A list without the key looks whole, and nothing was known before: only asked for by name, the key
/// is denied.
#[tokio::test(flavor = "multi_thread")]
async fn a_right_to_all_but_one_key_at_start_does_not_bring_its_rows_back() {
    let consul = Consul::start(Options::new().acl()).await;
    desire(&consul).await;
    let (launch, _) = with_token(&consul, READ_STATE).await;
    let mut agent = launch.clone().ready().await;
    let (haproxy, _origin) = haproxy_beside(&agent).await;
    shows(&haproxy, &as_desired(), PATIENCE).await;

    let all_but_one = format!(r#"{READ_STATE} key "haplane/state/canary" {{ policy = "deny" }}"#);
    unmoved("a right less", &haproxy, &as_desired(), async {
        agent.process().kill();
        consul.set_policy("reader", &all_but_one).await;
        agent.replace(&launch);
        agent.becomes_ready().await;
        for (words, answer) in [
            ("web/a", "ready 100%"),
            ("web/a zone", "ready 100%"),
            ("web/c canary", "maint"),
            ("web/b canary", ""),
            ("canary", ""),
        ] {
            agent.answers(words, answer).await;
        }
        refuses(&agent, "denied", async || ()).await;
        let detail = agent.json("/v1/node").await["store"]["guard"]["detail"].to_string();
        assert!(detail.contains("the key canary"), "{detail}");
        assert_eq!(told(&agent, "the store denies a key"), 1, "{}", agent.log());
        assert!(
            agent
                .metric("haplane_refused_total{reason=\"denied_key\"}")
                .await
                > 0.5
        );

        consul.set_policy("reader", READ_STATE).await;
        wake(&consul).await;
        agent.answers("web/b canary", "drain").await;
        eventually("no guard", PATIENCE, async || {
            let guard = agent.json("/v1/node").await["store"]["guard"].clone();
            if guard.is_null() { Ok(()) } else { Err(guard) }
        })
        .await;
        trusts_again(&agent).await;
    })
    .await;
}

/// What was proven with other rights, or a while ago, lets no row in: neither where a key's time has ended
/// nor where one was cleared.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_comes_in_only_on_a_proof_from_after_the_change() {
    let consul = Consul::start(Options::new().acl()).await;
    desire(&consul).await;
    let (launch, _) = with_token(&consul, READ_STATE).await;
    let agent = launch.ready().await;
    let (haproxy, _origin) = haproxy_beside(&agent).await;
    shows(&haproxy, &as_desired(), PATIENCE).await;
    // The absence of `canary` is proven: `web/b` is in rotation on it.
    consul.delete("haplane/state/canary").await;
    shows(&haproxy, &rows((READY, 1), (MAINT, 1)), PATIENCE).await;

    let end = Timestamp::now() + SignedDuration::from_secs(6);
    let drained = format!("drain until={end}");
    consul.put("haplane/state/web/b", drained.as_str()).await;
    shows(&haproxy, &as_desired(), PATIENCE).await;
    let all_but_one = format!(r#"{READ_STATE} key "haplane/state/canary" {{ policy = "deny" }}"#);
    unmoved("an end and a hidden key", &haproxy, &as_desired(), async {
        consul.set_policy("reader", &all_but_one).await;
        // The query that waits was still permitted.
        consul.put("haplane/state/tick", "50%").await;
        agent.answers("tick", "ready 50%").await;
        consul.put("haplane/state/canary", "maint").await;
        eventually("the end", PATIENCE, async || {
            if Timestamp::now() > end {
                Ok(())
            } else {
                Err(end)
            }
        })
        .await;
        agent.answers("web/b canary", "").await;
        refuses(&agent, "denied", async || ()).await;
        // The same where a key is cleared.
        consul.put("haplane/state/web/b", "drain").await;
        agent.answers("web/b canary", "drain").await;
        consul.delete("haplane/state/web/b").await;
        agent.answers("web/b canary", "").await;
    })
    .await;
    consul.set_policy("reader", READ_STATE).await;
    wake(&consul).await;
    shows(&haproxy, &rows((MAINT, 1), (MAINT, 1)), PATIENCE).await;
}

/// Somebody wrote it without the escapes that haplane would use.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_at_its_raw_path_is_asked_for_too() {
    let consul = Consul::start(Options::new().acl()).await;
    desire(&consul).await;
    consul.put("haplane/state/web/a:1", "drain").await;
    let without = format!(r#"{READ_STATE} key "haplane/state/web/a:1" {{ policy = "deny" }}"#);
    let (launch, _) = with_token(&consul, &without).await;
    let agent = launch.ready().await;
    agent.answers("web/b:1", "ready 100%").await;
    agent.answers("web/a:1", "").await;
    refuses(&agent, "denied", async || ()).await;
    consul.set_policy("reader", READ_STATE).await;
    wake(&consul).await;
    agent.answers("web/a:1", "drain").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_taken_from_a_running_agent_change_no_row() {
    let consul = Consul::start(Options::new().acl()).await;
    desire(&consul).await;
    let (launch, _) = with_token(&consul, READ_STATE).await;
    let agent = launch.ready().await;
    let (haproxy, _origin) = haproxy_beside(&agent).await;
    shows(&haproxy, &as_desired(), PATIENCE).await;

    // All rights, then only those to some keys: such a list comes with 200 and looks whole.
    let marker_only = r#"key "haplane/state/.haplane" { policy = "read" }"#;
    for (rules, reason) in [("", "marker_missing"), (marker_only, "denied")] {
        let before = told(&agent, REFUSED);
        unmoved("rights taken", &haproxy, &as_desired(), async {
            consul.set_policy("reader", rules).await;
            refuses(&agent, reason, async || wake(&consul).await).await;
            assert_eq!(
                agent.page("/readyz").await.unwrap().status,
                200,
                "it answers on"
            );
            assert_eq!(told(&agent, REFUSED) - before, 1, "{}", agent.log());

            consul.set_policy("reader", READ_STATE).await;
            trusts_again(&agent).await;
        })
        .await;
    }
    consul.put("haplane/state/canary", "ready").await;
    shows(&haproxy, &rows((READY, 1), (MAINT, 1)), PATIENCE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_token_changes_no_row_and_a_new_one_in_its_file_is_found() {
    let consul = Consul::start(Options::new().acl()).await;
    desire(&consul).await;
    let (_, token) = with_token(&consul, READ_STATE).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, &token.secret).unwrap();
    let agent = Launch::on_consul(&consul)
        .with("CONSUL_HTTP_TOKEN_FILE", file.to_str().unwrap())
        .ready()
        .await;
    let (haproxy, _origin) = haproxy_beside(&agent).await;
    shows(&haproxy, &as_desired(), PATIENCE).await;
    unmoved("a deleted token", &haproxy, &as_desired(), async {
        consul.delete_token(&token).await;
        eventually("the denial counted", PATIENCE, async || {
            wake(&consul).await;
            let denied = agent
                .metric("haplane_store_errors_total{kind=\"denied\"}")
                .await;
            if denied > 0.5 { Ok(()) } else { Err(denied) }
        })
        .await;
        let new = consul.create_token(&["reader"]).await;
        std::fs::write(&file, new.secret).unwrap();
        trusts_again(&agent).await;
    })
    .await;
    consul.delete("haplane/state/web/c").await;
    shows(&haproxy, &rows((DRAIN, 1), (READY, 1)), PATIENCE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_emptied_consul_changes_no_row_until_somebody_initialises_it() {
    let mut consul = Consul::start(Options::new()).await;
    desire(&consul).await;
    let agent = Launch::on_consul(&consul).ready().await;
    let (haproxy, _origin) = haproxy_beside(&agent).await;
    shows(&haproxy, &as_desired(), PATIENCE).await;
    unmoved(
        "a Consul without any data",
        &haproxy,
        &as_desired(),
        async {
            consul.restart_empty().await;
            refuses(&agent, "marker_missing", async || {}).await;
            // A key by hand does not make it believable.
            consul.put("haplane/state/canary", "ready").await;
            refuses(&agent, "marker_missing", async || {}).await;
            assert_eq!(told(&agent, REFUSED), 1, "{}", agent.log());
        },
    )
    .await;
    let haplane = Haplane::on(format!("consul:{}", consul.url()));
    haplane.run(&["init"]).exits(0);
    refuses(&agent, "refilling", async || {}).await;
    let settled = SETTLE + RECOVERY;
    shows(&haproxy, &rows((READY, 1), (READY, 1)), settled).await;
    trusts_again(&agent).await;
    assert_eq!(told(&agent, "initialised anew"), 1, "{}", agent.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_consul_is_obeyed_and_told() {
    let consul = Consul::start(Options::new()).await;
    desire(&consul).await;
    let agent = Launch::on_consul(&consul).ready().await;
    let (haproxy, _origin) = haproxy_beside(&agent).await;
    shows(&haproxy, &as_desired(), PATIENCE).await;
    let saved = consul.snapshot().await;
    for value in ["maint", "ready", "50%", "ready"] {
        consul.put("haplane/state/canary", value).await;
    }
    consul.delete("haplane/state/web/c").await;
    // The default weight is 1: of half of it nothing is left while it lasts.
    shows(&haproxy, &rows((READY, 1), (READY, 1)), PATIENCE).await;
    // Its next read waits by now, as it does nearly always.
    eventually("a read that waits", PATIENCE, async || {
        let age = agent.json("/v1/node").await["store"]["age_ms"].clone();
        if age.as_u64() > Some(300) {
            Ok(())
        } else {
            Err(age)
        }
    })
    .await;
    consul.restore(saved).await;
    shows(&haproxy, &as_desired(), RECOVERY).await;
    assert!(agent.metric("haplane_store_restores_seen_total").await > 0.5);
    assert_eq!(
        told(&agent, "restored from an earlier time"),
        1,
        "{}",
        agent.log()
    );
    consul.delete("haplane/state/canary").await;
    shows(&haproxy, &rows((READY, 1), (MAINT, 1)), RECOVERY).await;
}
