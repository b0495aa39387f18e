//! The fake Consul: honest where it says so, and wrong exactly where it was told to be.

use std::time::{Duration, Instant};

use haplane_testkit::consul::{Consul, Options};
use haplane_testkit::eventually::eventually;
use haplane_testkit::fake_consul::{FakeConsul, Reply};
use haplane_testkit::http::{Request, Response, Target};

const LIST: &str = "/v1/kv/haplane/state/?recurse";
const SOON: Duration = Duration::from_secs(5);

async fn get(fake: &FakeConsul, path: &str) -> std::io::Result<Response> {
    Request::get(path).send(&Target::Tcp(fake.address())).await
}

/// What matters of an answer to a reader of keys, with indexes as they relate, not as they are.
fn essence(answer: &Response) -> (u16, bool, Vec<(String, String, u64)>) {
    let keys = if answer.status == 200 {
        let list = answer.json();
        let text = |value: &serde_json::Value| value.as_str().unwrap_or("null").to_owned();
        let key = |k: &serde_json::Value| {
            (
                text(&k["Key"]),
                text(&k["Value"]),
                k["Flags"].as_u64().unwrap(),
            )
        };
        list.as_array().unwrap().iter().map(key).collect()
    } else {
        Vec::new()
    };
    (
        answer.status,
        answer.headers.get("X-Consul-KnownLeader") == Some("true"),
        keys,
    )
}

#[tokio::test]
async fn an_honest_fake_answers_as_a_real_consul_does() {
    let (fake, real) = (FakeConsul::start(), Consul::start(Options::new()).await);
    let steps = [
        Request::get(LIST),
        Request::put("/v1/kv/haplane/state/web/a?flags=7", "drain"),
        Request::put("/v1/kv/haplane/state/empty", ""),
        Request::put("/v1/kv/haplane/state2/neighbour", "maint"),
        Request::get(LIST),
        Request::get("/v1/kv/haplane/state/web/a"),
        Request::get("/v1/kv/haplane/state/missing"),
        Request::put("/v1/kv/haplane/state/web/a?cas=0", "ready"),
        Request::new("DELETE", "/v1/kv/haplane/state/web/a"),
        Request::get(LIST),
        Request::new("DELETE", "/v1/kv/haplane/state?recurse"),
        Request::get("/v1/kv/haplane/?recurse"),
    ];
    for step in steps {
        let fakes = step.send(&Target::Tcp(fake.address())).await.unwrap();
        let reals = real.request(step.clone()).await.unwrap();
        if step.method == "GET" {
            assert_eq!(
                essence(&fakes),
                essence(&reals),
                "{} {}",
                step.method,
                step.path
            );
        } else {
            let (fakes, reals) = (
                (fakes.status, fakes.text()),
                (reals.status, reals.text().trim().to_owned()),
            );
            assert_eq!(fakes, reals, "{} {}", step.method, step.path);
        }
    }
}

#[tokio::test]
async fn a_blocking_query_wakes_for_its_prefix_only_and_ends_after_its_wait() {
    let fake = FakeConsul::start();
    fake.put("haplane/state/web/a", "drain");
    let path = format!("{LIST}&index={}&wait=300ms", fake.index());
    let start = Instant::now();
    assert_eq!(get(&fake, &path).await.unwrap().status, 200);
    assert!(
        start.elapsed() >= Duration::from_millis(300),
        "it was not held"
    );

    let path = format!("{LIST}&index={}&wait=60s", fake.index());
    let (answer, ()) = tokio::join!(get(&fake, &path), async {
        eventually("a held query", SOON, async || {
            if fake.held() == 1 {
                Ok(())
            } else {
                Err(fake.held())
            }
        })
        .await;
        fake.put("haplane/state2/neighbour", "maint");
        fake.put("haplane/state/web/a", "drain");
        tokio::task::yield_now().await;
        assert_eq!(
            fake.held(),
            1,
            "woken by a neighbour, or by the same value again"
        );
        fake.put("haplane/state/web/a", "maint");
    });
    let answer = answer.unwrap();
    assert_eq!(
        answer.headers.get("X-Consul-Index").unwrap(),
        fake.index().to_string()
    );
    assert_eq!(answer.json()[0]["Value"], "bWFpbnQ=");
}

#[tokio::test]
async fn it_misbehaves_as_scripted_and_then_is_honest_again() {
    let mut fake = FakeConsul::start();
    fake.put("haplane/state/web/a", "drain");
    let honest = get(&fake, LIST).await.unwrap();
    fake.script([
        Reply::status(500, "rpc error making call: No cluster leader"),
        Reply::garbage("<html>"),
        Reply::at_once().index("0"),
        Reply::at_once().without("x-consul-index"),
        Reply::at_once().cut_at(5),
        Reply::close(),
        Reply::reset(),
        Reply::at_once().chunked(),
        Reply::at_once().after(Duration::from_millis(100)),
    ]);
    let error = get(&fake, LIST).await.unwrap();
    assert_eq!(
        (error.status, error.text().as_str()),
        (500, "rpc error making call: No cluster leader")
    );
    let garbage = get(&fake, LIST).await.unwrap();
    assert_eq!((garbage.status, garbage.text().as_str()), (200, "<html>"));
    assert!(garbage.headers.get("X-Consul-Index").is_some());
    assert_eq!(
        get(&fake, LIST)
            .await
            .unwrap()
            .headers
            .get("X-Consul-Index"),
        Some("0")
    );
    assert_eq!(
        get(&fake, LIST)
            .await
            .unwrap()
            .headers
            .get("X-Consul-Index"),
        None
    );
    for broken in ["a body cut", "a close", "a reset"] {
        assert!(get(&fake, LIST).await.is_err(), "{broken}");
    }
    assert_eq!(get(&fake, LIST).await.unwrap().body, honest.body, "chunks");
    let start = Instant::now();
    assert_eq!(get(&fake, LIST).await.unwrap().body, honest.body);
    assert!(start.elapsed() >= Duration::from_millis(100));
    assert_eq!(
        (fake.unsaid(), get(&fake, LIST).await.unwrap().body),
        (0, honest.body)
    );
    assert_eq!(fake.received().len(), 11);

    fake.down().await;
    assert!(get(&fake, LIST).await.is_err());
    fake.up();
    assert_eq!(get(&fake, LIST).await.unwrap().status, 200);
}

#[tokio::test]
async fn held_queries_can_be_interrupted_and_hang_for_ever() {
    let fake = FakeConsul::start();
    let path = format!("{LIST}&index=1&wait=60s");
    let one_held = || async {
        eventually("a held query", SOON, async || {
            if fake.held() == 1 {
                Ok(())
            } else {
                Err(fake.held())
            }
        })
        .await;
    };
    let (answer, ()) = tokio::join!(get(&fake, &path), async {
        one_held().await;
        fake.interrupt(Reply::status(404, "").index("1"));
    });
    assert_eq!(answer.unwrap().status, 404);

    fake.always("/v1/kv/", Reply::hang());
    let waiting = tokio::time::timeout(Duration::from_millis(100), get(&fake, LIST));
    assert!(waiting.await.is_err(), "it answered");
    eventually("the query given up", SOON, async || {
        if fake.held() == 0 {
            Ok(())
        } else {
            Err(fake.held())
        }
    })
    .await;
    fake.honest();
    assert_eq!(get(&fake, LIST).await.unwrap().status, 404);
}
