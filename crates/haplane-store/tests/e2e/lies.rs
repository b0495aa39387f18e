//! Answers that a real Consul does not give on demand: cut, garbled, from the past, without a head.

use std::time::Duration;

use haplane_core::guard::{Mode, Refusal};
use haplane_core::marker;
use haplane_store::consul::service::Which;
use haplane_store::consul::{Consistency, ConsulSettings, ConsulStore};
use haplane_store::{Named, Store as _, StoreErrorKind};
use haplane_testkit::eventually::eventually;
use haplane_testkit::fake_consul::{FakeConsul, Reply};
use haplane_testkit::http::Request;

use crate::consul::open;
use crate::contract::read;
use crate::follower::{Follower, RECOVERY, SOON};
use crate::lies_about_writes::refused;

pub(crate) fn drained() -> FakeConsul {
    let fake = FakeConsul::start();
    fake.put(&format!("haplane/state/{}", marker::PATH), "m");
    fake.put("haplane/state/canary", "drain");
    fake.put("haplane/state/web/a", "maint");
    fake.put("haplane/state2/leak", "maint");
    fake
}

/// Lists of keys that say less than the truth, in Consul's own form.
fn pairs(pairs: &[(&str, Option<&str>)]) -> String {
    let pairs = pairs.iter().map(|(key, value)| {
        let value = value.map_or("null".to_owned(), |value| format!("\"{value}\""));
        format!(
            r#"{{"LockIndex":0,"Key":"{key}","Flags":0,"Value":{value},"CreateIndex":2,"ModifyIndex":2}}"#
        )
    });
    format!("[{}]", pairs.collect::<Vec<_>>().join(","))
}

const MARKER: (&str, Option<&str>) = ("haplane/state/.haplane", Some("bQ=="));

#[tokio::test]
async fn an_answer_that_is_not_whole_and_right_is_no_snapshot() {
    let undecodable = pairs(&[
        MARKER,
        ("haplane/state/web/a", Some("bWFpbnQ=")),
        ("haplane/state/canary", Some("*not base64*")),
    ]);
    let not_ours = r#"[{"key":"haplane/state/.haplane"}]"#;
    let lies: Vec<(&str, Reply, StoreErrorKind)> = vec![
        (
            "half a body",
            Reply::at_once().cut_at(40),
            StoreErrorKind::Unreachable,
        ),
        (
            "half a body in chunks",
            Reply::at_once().chunked().cut_at(40),
            StoreErrorKind::Unreachable,
        ),
        ("no byte", Reply::close(), StoreErrorKind::Unreachable),
        ("a reset", Reply::reset(), StoreErrorKind::Unreachable),
        (
            "garbage",
            Reply::garbage("<html>It works!</html>"),
            StoreErrorKind::Undecodable,
        ),
        ("no body", Reply::garbage(""), StoreErrorKind::Undecodable),
        ("null", Reply::garbage("null"), StoreErrorKind::Undecodable),
        (
            "half a list",
            Reply::garbage(r#"[{"Key":"haplane/state/.haplane","#),
            StoreErrorKind::Undecodable,
        ),
        (
            "two lists",
            Reply::garbage("[][]"),
            StoreErrorKind::Undecodable,
        ),
        (
            "others' fields",
            Reply::garbage(not_ours),
            StoreErrorKind::Undecodable,
        ),
        (
            "a value undecodable",
            Reply::garbage(undecodable),
            StoreErrorKind::Undecodable,
        ),
        (
            "no index",
            Reply::at_once().without("X-Consul-Index"),
            StoreErrorKind::Undecodable,
        ),
        (
            "an index in words",
            Reply::at_once().index("seven"),
            StoreErrorKind::Undecodable,
        ),
        (
            "an index below zero",
            Reply::at_once().index("-1"),
            StoreErrorKind::Undecodable,
        ),
        (
            "an index that no number holds",
            Reply::at_once().index("99999999999999999999"),
            StoreErrorKind::Undecodable,
        ),
        (
            "no word of a leader",
            Reply::at_once().without("X-Consul-KnownLeader"),
            StoreErrorKind::Undecodable,
        ),
        (
            "500",
            Reply::status(500, "rpc error making call: EOF"),
            StoreErrorKind::Status,
        ),
        (
            "429",
            Reply::status(429, "slow down"),
            StoreErrorKind::Status,
        ),
        (
            "403",
            Reply::status(403, "Permission denied"),
            StoreErrorKind::Denied,
        ),
        (
            "404 of another server",
            Reply::status(404, "404 page not found"),
            StoreErrorKind::Undecodable,
        ),
        (
            "a redirect",
            Reply::status(301, "").header("Location", "/v1/kv/other?recurse"),
            StoreErrorKind::Status,
        ),
        (
            "too much of a head",
            Reply::at_once().header("X-Big", &"x".repeat(100_000)),
            StoreErrorKind::Unreachable,
        ),
    ];
    let fake = drained();
    let follower = Follower::start(open(&fake.url(), "haplane"));
    follower.until_says("canary", "drain", SOON).await;
    for (what, lie, kind) in lies {
        let before = follower.failures(kind);
        fake.always("/v1/kv/", lie.clone());
        fake.interrupt(lie);
        follower
            .until(what, SOON, |view| {
                view.failure.as_ref().is_some_and(|f| f.kind == kind)
            })
            .await;
        assert!(follower.failures(kind) > before, "{what}");
        fake.honest();
        follower.until_says("canary", "drain", RECOVERY).await;
    }
    follower.has_always_said("canary", "drain");
    follower.has_always_said("web/a", "maint");
    follower.every_snapshot(|snapshot| match snapshot.keys().len() {
        2 => Ok(()),
        keys => Err(format!("{keys} keys")),
    });
}

#[tokio::test]
async fn an_answer_in_consuls_form_has_to_be_the_present() {
    let fake = drained();
    let follower = Follower::start(open(&fake.url(), "haplane"));
    follower.until_says("canary", "drain", SOON).await;
    for (what, lie, reason) in [
        ("index 0", Reply::at_once().index("0"), Refusal::BadIndex),
        (
            "an absurd index",
            Reply::at_once().index("18446744073709551615"),
            Refusal::BadIndex,
        ),
        (
            "no leader",
            Reply::at_once().header("X-Consul-KnownLeader", "false"),
            Refusal::NoLeader,
        ),
        (
            "an empty list",
            Reply::garbage("[]"),
            Refusal::MarkerMissing,
        ),
        (
            "an empty prefix",
            Reply::status(404, ""),
            Refusal::MarkerMissing,
        ),
        (
            "the list of a neighbour",
            Reply::garbage(pairs(&[("haplane/state2/.haplane", Some("bQ=="))])),
            Refusal::MarkerMissing,
        ),
    ] {
        fake.always("/v1/kv/", lie.clone());
        fake.interrupt(lie);
        follower
            .until(what, SOON, |view| {
                view.guard.as_ref().is_some_and(|g| g.reason == reason)
            })
            .await;
        fake.honest();
        follower.until_says("canary", "drain", RECOVERY).await;
    }
    // A past that only an ordinary read tells: the consistent one that follows says the truth.
    let past = Reply::garbage(pairs(&[MARKER, ("haplane/state/canary", Some("cmVhZHk="))]));
    fake.interrupt(past.index("2"));
    fake.put("haplane/state/web/b", "50%");
    follower.until_says("web/b", "50%", RECOVERY).await;
    follower.has_always_said("canary", "drain");
    follower.has_always_said("web/a", "maint");
}

#[tokio::test]
async fn a_list_that_lost_keys_is_held_against_single_reads() {
    let fake = drained();
    let follower = Follower::start(open(&fake.url(), "haplane"));
    let index = follower
        .until_says("canary", "drain", SOON)
        .await
        .snapshot
        .unwrap()
        .index;
    // Every list is short, every single key is still there to be read.
    let short = Reply::garbage(pairs(&[MARKER])).index(&(index + 1).to_string());
    fake.always("/v1/kv/haplane/state/?", short.clone());
    fake.interrupt(short);
    let before = fake.received().len();
    follower
        .until("to be asked for by name", SOON, |_| {
            let asked = fake.received();
            let by_name = |path: &str| path.starts_with("/v1/kv/haplane/state/canary");
            asked[before..]
                .iter()
                .filter(|r| by_name(&r.request.path))
                .count()
                >= 3
        })
        .await;
    fake.honest();
    fake.put("haplane/state/web/b", "50%");
    follower.until_says("web/b", "50%", RECOVERY).await;
    follower.has_always_said("canary", "drain");
}

#[tokio::test]
async fn an_index_from_before_a_loss_is_not_waited_for_on_a_new_connection() {
    let fake = drained();
    let follower = Follower::start(open(&fake.url(), "haplane"));
    follower.until_says("canary", "drain", SOON).await;
    eventually("a query parked for long", SOON, async || {
        let last = fake.received().pop().unwrap().request;
        let is_long = last.query("wait") == Some("8000ms");
        (fake.held() == 1 && is_long).then_some(()).ok_or(last)
    })
    .await;
    // Gone and back with other data, so quickly that no connection is refused.
    fake.forget_everything();
    fake.put(&format!("haplane/state/{}", marker::PATH), "other");
    fake.put("haplane/state/canary", "50%");
    fake.put("haplane/state/web/a", "drain");
    fake.interrupt(Reply::close());
    follower.until_says("canary", "50%", RECOVERY).await;
    assert_eq!(
        follower.view().snapshot.unwrap().index,
        4,
        "far below the old one"
    );
}

/// A firewall that forgot the connection: nothing comes any more, and nobody says so.
#[tokio::test]
async fn a_query_that_is_lost_without_a_word_is_given_up_in_time() {
    let fake = drained();
    let follower = Follower::start(open(&fake.url(), "haplane"));
    follower.until_says("canary", "drain", SOON).await;
    let parked = async || (fake.held() == 1).then_some(()).ok_or(fake.held());
    eventually("a query that waits", SOON, parked).await;
    // After a change comes a short query; the long one behind it is lost.
    fake.script([Reply::default(), Reply::hang()]);
    fake.put("haplane/state/canary", "50%");
    eventually("the long query", SOON, async || {
        let last = fake.received().pop().unwrap().request;
        let is_long = last.query("wait") == Some("8000ms");
        (fake.unsaid() == 0 && is_long).then_some(()).ok_or(last)
    })
    .await;
    assert_eq!(follower.failures(StoreErrorKind::Timeout), 0);
    fake.put("haplane/state/canary", "maint");
    let bound = Duration::from_millis(13_500);
    follower
        .until_says("canary", "maint", bound + RECOVERY)
        .await;
    assert!(follower.failures(StoreErrorKind::Timeout) > 0);
}

#[tokio::test]
async fn a_read_goes_out_again_on_a_new_connection() {
    let fake = drained();
    let store = open(&fake.url(), "haplane");
    assert!(store.read_path("canary").await.unwrap().is_some());
    // The kept connection is closed in the face of the next request.
    fake.script([Reply::close()]);
    assert!(store.read_path("canary").await.unwrap().is_some());
    fake.script([Reply::close(), Reply::close()]);
    let error = store.read_path("canary").await.unwrap_err();
    assert_eq!(
        error.kind,
        StoreErrorKind::Unreachable,
        "once, not for ever"
    );
}

#[tokio::test]
async fn an_answer_by_name_counts_for_the_key_that_it_names() {
    let fake = drained();
    let store = open(&fake.url(), "haplane");
    let canary = ["canary".to_owned()];
    for (what, is) in [
        (
            "failed to check index, key \"haplane/state/other\" doesn't exist",
            Named::Present,
        ),
        (
            "failed to check index, key \"haplane/state/canary\" doesn't exist",
            Named::Absent,
        ),
        (
            "failed index check for key \"haplane/state/canary\", current modify index 3 != 0",
            Named::Present,
        ),
    ] {
        fake.honest();
        fake.always("/v1/txn", refused(what));
        assert_eq!(store.read_names(&canary).await.unwrap(), [is], "{what}");
    }
}

#[tokio::test]
async fn what_a_cache_kept_is_no_answer() {
    let fake = drained();
    let follower = Follower::start(open(&fake.url(), "haplane"));
    follower.until_says("canary", "drain", SOON).await;
    let kept = Reply::garbage(pairs(&[MARKER, ("haplane/state/canary", Some("cmVhZHk="))]))
        .index("2")
        .header("Age", "7");
    fake.always("/v1/kv/", kept);
    fake.interrupt(Reply::status(502, "bad gateway"));
    follower
        .until("to be told", SOON, |view| {
            let failure = view.failure.as_ref();
            failure.is_some_and(|failure| failure.what.contains("cache"))
        })
        .await;
    fake.honest();
    follower.until_says("canary", "drain", RECOVERY).await;
    follower.has_always_said("canary", "drain");
    // And none is asked twice for the same.
    let received = fake.received();
    let mut paths: Vec<&str> = received.iter().map(|r| r.request.path.as_str()).collect();
    let asked = paths.len();
    paths.sort_unstable();
    paths.dedup();
    assert_eq!(paths.len(), asked);
    let headers = &received[0].request.headers;
    let no_cache = headers.get("Cache-Control").unwrap();
    assert!(no_cache.contains("no-cache"), "{no_cache}");
}

#[tokio::test]
async fn instances_are_all_there_and_first_hand_or_none() {
    let fake = drained();
    let store = open(&fake.url(), "haplane");
    let listed = |name: &str, value: &str| {
        let reply = Reply::garbage("[]")
            .index("7")
            .header("X-Consul-KnownLeader", "true")
            .header("X-Consul-LastContact", "0");
        fake.always("/v1/health/service/web", reply.header(name, value));
    };
    let read = async || store.client().instances("web", Which::Passing).await;
    listed("Age", "0");
    assert_eq!(read().await.unwrap().list, []);
    listed("Age", "7");
    assert_eq!(read().await.unwrap_err().kind, StoreErrorKind::Undecodable);
    listed("X-Consul-Results-Filtered-By-ACLs", "true");
    let error = read().await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Denied);
    assert!(error.what.contains("node_prefix"), "{error}");
}

/// The path of a request without the number that no other has.
fn path(request: &Request) -> &str {
    request.path.rsplit_once("&once=").expect("a number").0
}

#[tokio::test]
async fn reads_are_few_bounded_and_say_what_consul_has_to_know() {
    let fake = drained();
    let store = open(&fake.url(), "haplane");
    read(&store).await;
    let first = fake.received().pop().unwrap().request;
    assert_eq!(path(&first), "/v1/kv/haplane/state/?recurse&consistent");
    let index = Mode::Blocking(4);
    store
        .read(index, Duration::from_millis(1500))
        .await
        .unwrap();
    let second = fake.received().pop().unwrap();
    assert_eq!(
        path(&second.request),
        "/v1/kv/haplane/state/?recurse&index=4&wait=1500ms"
    );
    assert_eq!(second.connection, 1, "one connection for the watch");
    assert_eq!(second.request.headers.get("X-Consul-Token"), None);
}

#[tokio::test]
async fn stale_reads_are_asked_for_and_bounded() {
    let fake = drained();
    let settings = ConsulSettings {
        address: fake.url().parse().unwrap(),
        datacenter: Some("dc 1".into()),
        namespace: Some("team".into()),
        consistency: Consistency::Stale,
        ..ConsulSettings::default()
    };
    let prefix = |text: &str| text.parse().unwrap();
    let store = ConsulStore::new(settings, prefix("haplane/state"), prefix("haplane/log")).unwrap();
    let path = || path(&fake.received().pop().unwrap().request).to_owned();
    assert!(read(&store).await.consistent);
    assert_eq!(
        path(),
        "/v1/kv/haplane/state/?recurse&consistent&dc=dc%201&ns=team"
    );
    let blocking = async || {
        store
            .read(Mode::Blocking(1), Duration::from_secs(1))
            .await
            .unwrap()
    };
    let reading = blocking().await;
    assert!(!reading.consistent && reading.has_leader);
    assert_eq!(
        path(),
        "/v1/kv/haplane/state/?recurse&stale&index=1&wait=1000ms&dc=dc%201&ns=team"
    );
    // A server that heard of its leader some time ago knows none that counts.
    let old = Reply::at_once().header("X-Consul-LastContact", "9000");
    fake.script([old.clone()]);
    assert!(!blocking().await.has_leader);
    fake.script([old]);
    assert!(
        read(&store).await.has_leader,
        "vouched for by the leader itself"
    );
}
