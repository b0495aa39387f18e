//! What a real Consul can say that must not be believed, and the way back.

use std::time::Duration;

use haplane_core::guard::{Arrival, Refusal, SETTLE};
use haplane_core::marker;
use haplane_store::consul::{ConsulSettings, ConsulStore, Secret, TokenSettings};
use haplane_store::{Store as _, StoreErrorKind, Transaction, WatchSettings};
use haplane_testkit::consul::{Cluster, Consul, Options, Token};
use haplane_testkit::eventually::{eventually, throughout};
use haplane_testkit::http::Request;
use tokio::net::TcpStream;

use crate::consul::open;
use crate::contract::write;
use crate::follower::{Follower, RECOVERY, SOON, says};

const READ: &str = r#"key_prefix "haplane/state/" { policy = "read" }"#;
const MARKER_ONLY: &str = r#"key "haplane/state/.haplane" { policy = "read" }"#;
const ELSEWHERE: &str = r#"key_prefix "other/" { policy = "read" }"#;

/// Keys that an agent obeys, written as an operator's command would.
async fn drained(consul: &Consul) {
    let store = with_token(consul, haplane_testkit::consul::MANAGEMENT_TOKEN);
    write(
        &store,
        &[("canary", Some("drain")), ("web/a", Some("maint"))],
    )
    .await;
    // What must never leak in.
    consul.put("haplane/state2/leak", "maint").await;
    consul.put("haplane/state/folder/", "").await;
}

fn with_token(consul: &Consul, secret: &str) -> ConsulStore {
    let settings = ConsulSettings {
        address: consul.url().parse().unwrap(),
        token: TokenSettings::Literal(Secret::new(secret)),
        ..ConsulSettings::default()
    };
    let prefix = |text: &str| text.parse().unwrap();
    ConsulStore::new(settings, prefix("haplane/state"), prefix("haplane/log")).unwrap()
}

async fn reader(consul: &Consul, rules: &str) -> Token {
    consul.set_policy("agent", rules).await;
    consul.create_token(&["agent"]).await
}

fn follow(consul: &Consul, token: &Token) -> Follower {
    Follower::start(with_token(consul, &token.secret))
}

#[tokio::test]
async fn a_token_without_rights_at_the_start_reads_nothing_as_truth() {
    let consul = Consul::start(Options::new().acl()).await;
    drained(&consul).await;
    let token = reader(&consul, ELSEWHERE).await;
    let follower = follow(&consul, &token);
    let refused = follower.until_refused(Refusal::MarkerMissing).await;
    assert!(refused.snapshot.is_none());
    let detail = refused.guard.unwrap().detail;
    assert!(
        detail.contains("key \"haplane/state/.haplane\""),
        "{detail}"
    );
    consul.set_policy("agent", READ).await;
    let view = follower.until_says("canary", "drain", RECOVERY).await;
    let snapshot = view.snapshot.unwrap();
    assert_eq!(
        snapshot.keys().len(),
        2,
        "no neighbour, no folder: {snapshot:?}"
    );
    assert_eq!(snapshot.invalid().len(), 0);
}

#[tokio::test]
async fn a_token_that_does_not_exist_is_an_error_that_names_it() {
    let consul = Consul::start(Options::new().acl()).await;
    drained(&consul).await;
    let secret = "01234567-0123-0123-0123-0123456789ab";
    let follower = Follower::start(with_token(&consul, secret));
    let view = follower.until_failing().await;
    let failure = view.failure.unwrap();
    assert_eq!(failure.kind, StoreErrorKind::Denied);
    assert!(failure.what.contains("ACL not found"), "{}", failure.what);
    assert!(!failure.what.contains(secret), "{}", failure.what);
    assert!(view.snapshot.is_none());
}

#[tokio::test]
async fn rights_lost_while_running_change_nothing() {
    let consul = Consul::start(Options::new().acl()).await;
    drained(&consul).await;
    let token = reader(&consul, READ).await;
    let follower = follow(&consul, &token);
    follower.until_says("canary", "drain", SOON).await;

    // The policy now speaks of another prefix; a write wakes the query that was parked.
    consul.set_policy("agent", ELSEWHERE).await;
    consul.put("haplane/state/web/b", "ready").await;
    let refused = follower.until_refused(Refusal::MarkerMissing).await;
    assert_eq!(
        refused
            .snapshot
            .as_deref()
            .and_then(|s| says(s, "canary"))
            .as_deref(),
        Some("drain")
    );
    consul.set_policy("agent", READ).await;
    follower.until_says("web/b", "ready", RECOVERY).await;

    // Only the marker can still be read: every key seems deleted.
    consul.set_policy("agent", MARKER_ONLY).await;
    consul.put("haplane/state/web/b", "50%").await;
    follower.until_refused(Refusal::Denied).await;
    consul.set_policy("agent", READ).await;
    follower.until_says("web/b", "50%", RECOVERY).await;

    // One key alone is hidden.
    let but_one = format!(r#"{READ} key "haplane/state/canary" {{ policy = "deny" }}"#);
    consul.set_policy("agent", &but_one).await;
    consul.put("haplane/state/web/b", "25%").await;
    follower.until_refused(Refusal::Denied).await;
    consul.set_policy("agent", READ).await;
    follower.until_says("web/b", "25%", RECOVERY).await;

    // The token loses its policy, gets it back, and is deleted.
    consul.set_token_policies(&token, &[]).await;
    consul.put("haplane/state/web/b", "drain").await;
    follower.until_refused(Refusal::MarkerMissing).await;
    consul.set_token_policies(&token, &["agent"]).await;
    follower.until_says("web/b", "drain", RECOVERY).await;
    consul.delete_token(&token).await;
    consul.put("haplane/state/web/b", "maint").await;
    follower
        .until("denied", SOON, |view| {
            view.failure
                .as_ref()
                .is_some_and(|f| f.kind == StoreErrorKind::Denied)
        })
        .await;

    follower.has_always_said("canary", "drain");
    follower.has_always_said("web/a", "maint");
}

#[tokio::test]
async fn a_new_token_in_the_file_is_taken_up_by_itself() {
    let consul = Consul::start(Options::new().acl()).await;
    drained(&consul).await;
    let old = reader(&consul, READ).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    std::fs::write(&file, format!("{}\n", old.secret)).unwrap();
    let settings = ConsulSettings {
        address: consul.url().parse().unwrap(),
        token: TokenSettings::File(file.clone()),
        ..ConsulSettings::default()
    };
    let prefix = |text: &str| text.parse().unwrap();
    let store = ConsulStore::new(settings, prefix("haplane/state"), prefix("haplane/log"));
    let follower = Follower::start(store.unwrap());
    follower.until_says("canary", "drain", SOON).await;
    let new = consul.create_token(&["agent"]).await;
    consul.delete_token(&old).await;
    follower.until_failing().await;
    std::fs::write(&file, &new.secret).unwrap();
    follower.until_says("canary", "drain", RECOVERY).await;
    follower.has_always_said("canary", "drain");
}

#[tokio::test]
async fn a_restart_with_much_data_never_shows_the_past() {
    const KEYS: usize = 12_800;
    let mut consul = Consul::start(Options::new()).await;
    let name = |n: usize| format!("haplane/state/web/server-{n:05}");
    consul.put("haplane/state/.haplane", "m").await;
    for generation in ["ready", "drain"] {
        let keys = (0..KEYS).map(|n| (name(n), generation.to_owned()));
        consul.put_many(keys).await;
    }
    let follower = Follower::start(open(&consul.url(), "haplane"));
    follower.until_says("web/server-12799", "drain", SOON).await;
    for _ in 0..3 {
        consul.kill();
        follower.until_failing().await;
        consul.launch();
        consul.ready().await;
        follower
            .until_says("web/server-00000", "drain", RECOVERY)
            .await;
    }
    // And one that starts while Consul replays its log has no memory to compare with.
    consul.kill();
    let newcomer = Follower::start(open(&consul.url(), "haplane"));
    newcomer.until_failing().await;
    consul.launch();
    newcomer.until_says("web/server-12799", "drain", SOON).await;
    for follower in [follower, newcomer] {
        follower.every_snapshot(|snapshot| {
            let counts = snapshot.counts(jiff::Timestamp::now());
            if counts.drain == KEYS && counts.ready == 0 {
                Ok(())
            } else {
                Err(format!("{counts:?}"))
            }
        });
    }
}

#[tokio::test]
async fn a_restart_without_data_is_refused_until_it_is_initialised() {
    let mut consul = Consul::start(Options::new()).await;
    drained(&consul).await;
    let follower = Follower::start(open(&consul.url(), "haplane"));
    follower.until_says("canary", "drain", SOON).await;
    consul.restart_empty().await;
    let refused = follower.until_refused(Refusal::MarkerMissing).await;
    assert!(refused.guard.unwrap().detail.contains("haplane init"));
    follower.has_always_said("canary", "drain");
    // The new store is obeyed once somebody vouches for it and nothing more comes into it, well before
    // its index has come to where the old one's was.
    write(&open(&consul.url(), "haplane"), &[("canary", Some("50%"))]).await;
    follower.until_refused(Refusal::Refilling).await;
    follower.has_always_said("canary", "drain");
    follower
        .until_says("canary", "50%", SETTLE + RECOVERY)
        .await;
    assert_eq!(follower.arrivals().last(), Some(&Arrival::Reinitialised));
}

#[tokio::test]
async fn an_older_backup_is_obeyed_and_told() {
    let consul = Consul::start(Options::new()).await;
    let store = open(&consul.url(), "haplane");
    write(&store, &[("canary", Some("50%")), ("web/a", Some("drain"))]).await;
    let backup = consul.snapshot().await;
    for text in ["drain", "maint", "25%"] {
        write(&store, &[("canary", Some(text))]).await;
    }
    let follower = Follower::start(open(&consul.url(), "haplane"));
    follower.until_says("canary", "25%", SOON).await;
    // Between two reads of the watch.
    consul.restore(backup.clone()).await;
    follower.until_says("canary", "50%", RECOVERY).await;
    assert_eq!(follower.arrivals().last(), Some(&Arrival::Restored));
    follower.has_always_said("web/a", "drain");
    // While a read is parked for long.
    write(&store, &[("canary", Some("maint"))]).await;
    let contact = follower
        .until_says("canary", "maint", RECOVERY)
        .await
        .contact;
    follower
        .until("the next park", SOON, |view| view.contact != contact)
        .await;
    // Its next read waits by now, as it does nearly always.
    let parked = Duration::from_millis(300);
    follower
        .until("a read that waits", SOON, |view| {
            view.contact.unwrap().instant.elapsed() > parked
        })
        .await;
    consul.restore(backup).await;
    follower.until_says("canary", "50%", RECOVERY).await;
    assert_eq!(follower.arrivals().last(), Some(&Arrival::Restored));
    // What comes after it is seen as ever.
    write(&store, &[("canary", Some("maint"))]).await;
    follower.until_says("canary", "maint", RECOVERY).await;
}

#[tokio::test]
async fn leader_quorum_and_local_agent_may_go_and_come_back() {
    let mut cluster = Cluster::start().await;
    let url = cluster.client.url();
    write(&open(&url, "haplane"), &[("canary", Some("drain"))]).await;
    // A query that waits at a server which loses its quorum ends only with its wait.
    let settings = WatchSettings {
        wait: Duration::from_secs(2),
        ..WatchSettings::default()
    };
    let follower = Follower::start_with(open(&url, "haplane"), settings);
    follower.until_says("canary", "drain", SOON).await;

    // The leader goes; the others elect one.
    let leader = cluster.leader().await;
    cluster.servers[leader].kill();
    follower.until_failing().await;
    cluster.client.ready().await;
    follower.until_says("canary", "drain", RECOVERY).await;

    // Another one goes, and the quorum with it.
    let next = (leader + 1) % 3;
    cluster.servers[next].kill();
    follower
        .until("a failure", SOON + SOON, |view| view.failure.is_some())
        .await;
    cluster.servers[next].launch();
    cluster.servers[leader].launch();
    cluster.client.ready().await;
    follower.until_says("canary", "drain", RECOVERY).await;

    // The local agent goes.
    cluster.client.kill();
    follower.until_failing().await;
    cluster.client.launch();
    cluster.client.ready().await;
    follower.until_says("canary", "drain", RECOVERY).await;

    follower.has_always_said("canary", "drain");
    // And after all that, a write arrives as ever.
    write(&open(&url, "haplane"), &[("canary", Some("maint"))]).await;
    follower.until_says("canary", "maint", RECOVERY).await;
}

#[tokio::test]
async fn a_frozen_consul_changes_nothing() {
    let mut consul = Consul::start(Options::new()).await;
    drained(&consul).await;
    let settings = WatchSettings {
        wait: Duration::from_secs(1),
        wait_after_change: Duration::from_secs(1),
        ..WatchSettings::default()
    };
    let follower = Follower::start_with(open(&consul.url(), "haplane"), settings);
    follower.until_says("canary", "drain", SOON).await;
    consul.freeze().await;
    let before = follower.view().contact.unwrap();
    follower
        .until("a timeout", Duration::from_secs(20), |view| {
            view.failure
                .as_ref()
                .is_some_and(|f| f.kind == StoreErrorKind::Timeout)
        })
        .await;
    assert_eq!(
        follower.view().contact,
        Some(before),
        "the age of the view grows"
    );
    consul.thaw();
    follower.until_says("canary", "drain", RECOVERY).await;
    follower.has_always_said("canary", "drain");
}

#[tokio::test]
async fn the_connection_limit_is_an_error_like_any_other() {
    let consul = Consul::start(Options::new().max_connections(10)).await;
    drained(&consul).await;
    let mut hogs = Vec::new();
    // Connections that have ended are counted for a moment longer: more, until there lastingly is no
    // room.
    let mut refused = 0;
    eventually("no room", SOON, async || {
        hogs.push(TcpStream::connect(consul.address()).await.unwrap());
        let room = consul.request(Request::get("/v1/status/leader")).await;
        refused = if room.is_err() { refused + 1 } else { 0 };
        if refused == 10 { Ok(()) } else { Err(refused) }
    })
    .await;
    let follower = Follower::start(open(&consul.url(), "haplane"));
    follower
        .until("no connection", SOON, |view| {
            view.failure
                .as_ref()
                .is_some_and(|f| f.kind == StoreErrorKind::Unreachable)
        })
        .await;
    drop(hogs);
    follower.until_says("canary", "drain", RECOVERY).await;
}

#[tokio::test]
async fn a_marker_that_is_deleted_by_hand_is_refused() {
    let consul = Consul::start(Options::new()).await;
    drained(&consul).await;
    let follower = Follower::start(open(&consul.url(), "haplane"));
    follower.until_says("canary", "drain", SOON).await;
    consul.delete_prefix("haplane/state/").await;
    follower.until_refused(Refusal::MarkerMissing).await;
    throughout("the last snapshot", Duration::from_secs(1), async || {
        let snapshot = follower.view().snapshot.unwrap();
        says(&snapshot, "canary")
            .filter(|value| value == "drain")
            .map(drop)
            .ok_or(snapshot)
    })
    .await;
    let init = Transaction {
        changes: Vec::new(),
        log: None,
    };
    open(&consul.url(), "haplane").commit(&init).await.unwrap();
    follower.until_refused(Refusal::Refilling).await;
    follower
        .until("an empty store that is one", SETTLE + RECOVERY, |view| {
            view.snapshot
                .as_ref()
                .is_some_and(|snapshot| snapshot.keys().len() == 0)
        })
        .await;
    assert!(
        consul
            .get(&format!("haplane/state/{}", marker::PATH))
            .await
            .is_some()
    );
}

/// `consul kv import` writes key after key, the marker first.
#[tokio::test]
async fn a_store_that_is_filled_from_an_export_loses_no_drain_on_the_way() {
    const KEYS: usize = 60;
    let mut consul = Consul::start(Options::new()).await;
    let name = |n: usize| format!("haplane/state/web/server-{n:02}");
    let marker = r#"{"id":"0123456789abcdef","created_at":"2030-01-01T00:00:00Z"}"#;
    consul.put("haplane/state/.haplane", marker).await;
    consul
        .put_many((0..KEYS).map(|n| (name(n), "drain".to_owned())))
        .await;
    let follower = Follower::start(open(&consul.url(), "haplane"));
    follower.until_says("web/server-59", "drain", SOON).await;
    for is_lost in [false, true] {
        if is_lost {
            consul.restart_empty().await;
        } else {
            consul.delete_prefix("haplane/").await;
        }
        follower.until_refused(Refusal::MarkerMissing).await;
        consul.put("haplane/state/.haplane", marker).await;
        for n in 0..KEYS {
            consul.put(&name(n), "drain").await;
            if n == KEYS / 2 {
                follower.until_refused(Refusal::Refilling).await;
            }
        }
        follower
            .until_says("web/server-59", "drain", RECOVERY)
            .await;
    }
    follower.every_snapshot(
        |snapshot| match snapshot.counts(jiff::Timestamp::now()).drain {
            KEYS => Ok(()),
            drained => Err(format!("{drained} drained")),
        },
    );
}

#[tokio::test]
async fn a_backup_from_before_a_key_is_obeyed_at_once() {
    let consul = Consul::start(Options::new()).await;
    let store = open(&consul.url(), "haplane");
    write(&store, &[("web/a", Some("maint"))]).await;
    let backup = consul.snapshot().await;
    write(&store, &[("canary", Some("drain"))]).await;
    let follower = Follower::start(open(&consul.url(), "haplane"));
    follower.until_says("canary", "drain", SOON).await;
    consul.restore(backup).await;
    follower
        .until("the time before the key", RECOVERY, |view| {
            let snapshot = view.snapshot.as_deref();
            snapshot.is_some_and(|snapshot| says(snapshot, "canary").is_none())
        })
        .await;
    assert_eq!(follower.arrivals().last(), Some(&Arrival::Restored));
    follower.has_always_said("web/a", "maint");
}
