//! Push: a change reaches HAProxy long before its next ask, and nothing else is touched.

use std::time::{Duration, Instant};

use haplane_testkit::eventually::{eventually, throughout};
use haplane_testkit::haproxy::{Config, Haproxy, Version};
use haplane_testkit::origin::Origin;

use crate::haproxy_rows::{AT_ONCE, DEFAULTS};
use crate::haproxy_rows::{DRAIN, MAINT, READY, states};
use crate::observer_site::{SOON, Site};

/// HAProxy asks every ten seconds: what happens within two was pushed.
const LONG_BEFORE_THE_NEXT_ASK: Duration = Duration::from_secs(2);

/// The names of `count` rows `web/w-N`, each asking for itself and `canary`.
fn sections(site: &Site, origin: &Origin, count: usize) -> String {
    let checks = site.agent.checks();
    let server = |n: usize| {
        format!(
            "    server w-{n} {} weight 100 agent-check agent-inter 10s agent-addr {} agent-port {} agent-send \"web/w-{n} canary\\n\"\n",
            origin.address(),
            checks.ip(),
            checks.port(),
        )
    };
    let servers: String = (1..=count).map(server).collect();
    format!("{DEFAULTS}\nbackend web\n    balance roundrobin\n{servers}")
}

async fn all_asked(site: &Site, count: usize) {
    eventually("all rows are observed", SOON, async || {
        let rows = site.agent.json("/v1/rows").await;
        let rows = rows.as_array().unwrap();
        let converged = rows
            .iter()
            .filter(|row| row["verdict"] == "converged")
            .count();
        if converged == count {
            Ok(())
        } else {
            Err(converged)
        }
    })
    .await;
}

/// Waits until `web/w-1` has these bits and this weight; how long that took.
async fn becomes(haproxy: &Haproxy, admin: i64, weight: i64) -> Duration {
    let start = Instant::now();
    eventually("the pushed state", LONG_BEFORE_THE_NEXT_ASK, async || {
        let states = states(haproxy).await;
        let state = states["web/w-1"];
        if state == (admin, weight) {
            Ok(())
        } else {
            Err(state)
        }
    })
    .await;
    start.elapsed()
}

#[tokio::test]
async fn a_change_does_not_wait_for_the_next_ask() {
    for version in Version::ALL {
        let site = Site::start(&["s"], &["--push"]).await;
        let origin = Origin::start("o");
        let config = Config::new(&sections(&site, &origin, 600)).global(AT_ONCE);
        let haproxy = Haproxy::start(version, config).await;
        site.link("s", &haproxy.admin_socket());
        all_asked(&site, 600).await;

        site.set("canary", "drain");
        becomes(&haproxy, DRAIN, 100).await;
        site.counts("haplane_push_total{result=\"applied\"}", 600.0)
            .await;
        let row = site.row("web/w-600").await.unwrap();
        let told = (&row["answer"], &row["verdict"], &row["observed"]["admin"]);
        assert_eq!(
            told,
            (&"ready 100%".into(), &"pending".into(), &"drain".into()),
            "{row}"
        );
        assert!(
            row["why"].as_str().unwrap().contains("does so already"),
            "{row}"
        );
        site.set("web/w-1", "25%");
        becomes(&haproxy, READY, 25).await;
        site.set("web/w-1", "maint");
        becomes(&haproxy, MAINT, 25).await;
        site.set("web/w-1", "ready");
        becomes(&haproxy, READY, 100).await;
        for result in ["not_applied", "refused", "unknown"] {
            let series = format!("haplane_push_total{{result=\"{result}\"}}");
            assert!(site.agent.metric(&series).await < 0.5, "{result}");
        }
    }
}

#[tokio::test]
async fn a_restarted_haproxy_is_set_before_it_asks() {
    let site = Site::start(&["s"], &["--push"]).await;
    let origin = Origin::start("o");
    // Without a bound the first asks are spread over ten seconds, the last row's comes last.
    let config = |global| Config::new(&sections(&site, &origin, 20)).global(global);
    let mut haproxy = Haproxy::start(Version::V28, config(AT_ONCE)).await;
    site.link("s", &haproxy.admin_socket());
    all_asked(&site, 20).await;
    site.set("web/w-20", "drain");
    let drained = async |haproxy: &Haproxy| {
        eventually("drained", LONG_BEFORE_THE_NEXT_ASK, async || {
            let states = states(haproxy).await;
            if states["web/w-20"].0 == DRAIN {
                Ok(())
            } else {
                Err(states)
            }
        })
        .await;
    };
    drained(&haproxy).await;
    haproxy.reload_with(config("")).await;
    drained(&haproxy).await;
    site.counts("haplane_haproxy_restarts_seen_total", 1.0)
        .await;
    site.counts("haplane_push_total{result=\"applied\"}", 2.0)
        .await;
}

#[tokio::test]
async fn what_the_store_did_not_change_is_left_alone() {
    let site = Site::start(&["s"], &["--push"]).await;
    let origin = Origin::start("o");
    let config = Config::new(&sections(&site, &origin, 4)).global(AT_ONCE);
    let haproxy = Haproxy::start(Version::V28, config).await;
    site.link("s", &haproxy.admin_socket());
    all_asked(&site, 4).await;
    haproxy
        .command("set server web/w-2 state maint; disable agent web/w-3")
        .await;
    site.set("web/w-1", "drain");
    becomes(&haproxy, DRAIN, 100).await;
    site.set("web/w-3", "drain");
    throughout(
        "by hand stays by hand",
        Duration::from_secs(2),
        async || {
            let states = states(&haproxy).await;
            let hand = (states["web/w-2"].0, states["web/w-3"].0);
            if hand == (MAINT, READY) {
                Ok(())
            } else {
                Err(hand)
            }
        },
    )
    .await;
}

#[tokio::test]
async fn a_socket_without_permission_is_named_and_pull_goes_on() {
    let site = Site::start(&["s"], &["--push"]).await;
    let origin = Origin::start("o");
    let sections = sections(&site, &origin, 1).replace("10s", "1s");
    let haproxy = Haproxy::start(Version::V28, Config::new(&sections).global(AT_ONCE)).await;
    site.look_at("s", &haproxy);
    all_asked(&site, 1).await;
    site.set("canary", "drain");
    site.counts("haplane_push_total{result=\"refused\"}", 1.0)
        .await;
    let one = site.socket_is("s", None).await;
    let told = one["push_error"].as_str().unwrap();
    assert!(told.contains("Permission denied"), "{one}");
    site.row_is("web/w-1", "converged", &[]).await;
    becomes(&haproxy, DRAIN, 100).await;
}
