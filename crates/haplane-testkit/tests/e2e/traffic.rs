//! Traffic through a real HAProxy, counted by the origin that answered.

use std::time::Duration;

use haplane_testkit::eventually::eventually;
use haplane_testkit::haproxy::{Config, Haproxy, Version};
use haplane_testkit::http::{Request, Target};
use haplane_testkit::origin::Origin;
use haplane_testkit::ports::Port;
use haplane_testkit::traffic::{Traffic, send};

const SOON: Duration = Duration::from_secs(5);

fn two_origins(front: &Port, a: &Origin, b: &Origin) -> Config {
    Config::new(&format!(
        "defaults\n mode http\n retries 0\n timeout connect 1s\n timeout client 5s\n timeout server 5s\n\
         frontend front\n bind {}\n default_backend web\n\
         backend web\n balance roundrobin\n option httpchk GET /health\n\
         default-server check inter 100ms fall 2 rise 2 weight 100\n\
         server a {}\n server b {}\n",
        front.address(),
        a.address(),
        b.address()
    ))
}

#[tokio::test]
async fn traffic_follows_drain_weight_and_health() {
    for version in Version::ALL {
        let (front, a, mut b) = (Port::reserve(), Origin::start("a"), Origin::start("b"));
        let haproxy = Haproxy::start(version, two_origins(&front, &a, &b)).await;
        let evenly = send(front.address(), 20).await;
        assert_eq!(
            (evenly.of("a"), evenly.of("b"), evenly.failed()),
            (10, 10, 0),
            "{evenly:?}"
        );
        assert_eq!(a.served(), 10);

        haproxy.command("set server web/a state drain").await;
        assert_eq!(send(front.address(), 10).await.of("b"), 10);
        haproxy
            .command("set server web/a state ready; set server web/a weight 50%")
            .await;
        let weighted = send(front.address(), 30).await;
        assert!((0.25..0.42).contains(&weighted.share("a")), "{weighted:?}");

        a.set_healthy(false);
        eventually("a is down", SOON, async || {
            match haproxy.stat("web/a").await.get("status") {
                "DOWN" => Ok(()),
                other => Err(other.to_owned()),
            }
        })
        .await;
        assert_eq!(send(front.address(), 5).await.of("b"), 5);

        b.down().await;
        let none = eventually("no origin left", SOON, async || {
            let shares = send(front.address(), 5).await;
            if shares.answered() == 0 {
                Ok(shares)
            } else {
                Err(shares)
            }
        })
        .await;
        assert_eq!(none.errors.keys().collect::<Vec<_>>(), ["status 503"]);
        b.up();
        eventually("b is back", SOON, async || {
            match send(front.address(), 1).await.of("b") {
                1 => Ok(()),
                other => Err(other),
            }
        })
        .await;
    }
}

#[tokio::test]
async fn steady_load_sees_no_error_over_a_reload_and_a_long_transfer_finishes() {
    for version in Version::ALL {
        let (front, a, b) = (Port::reserve(), Origin::start("a"), Origin::start("b"));
        let mut haproxy = Haproxy::start(version, two_origins(&front, &a, &b)).await;
        let traffic = Traffic::start(front.address(), 2, Duration::from_millis(10));
        let target = Target::Tcp(front.address());
        let long = tokio::spawn(async move {
            Request::get("/long?pieces=20&pause_ms=50")
                .send(&target)
                .await
                .map(|answer| answer.body.len())
        });
        eventually("some load", SOON, async || {
            match traffic.so_far().answered() {
                0..20 => Err(traffic.so_far()),
                _ => Ok(()),
            }
        })
        .await;
        haproxy.reload().await;
        assert_eq!(
            haproxy.finishing(),
            1,
            "the old process waits for the long transfer"
        );
        let before = traffic.so_far();
        eventually("load through the new process", SOON, async || match traffic
            .so_far()
            .since(&before)
            .answered()
        {
            0..20 => Err(traffic.so_far()),
            _ => Ok(()),
        })
        .await;
        assert_eq!(long.await.unwrap().unwrap(), 20);
        eventually("the old process gone", SOON, async || {
            match haproxy.finishing() {
                0 => Ok(()),
                more => Err(more),
            }
        })
        .await;
        let all = traffic.stop().await;
        assert_eq!(all.failed(), 0, "{all:?}");
    }
}
