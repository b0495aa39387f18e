//! Every verdict with its true cause, on HAProxy 2.8 and 2.6.

use std::time::Duration;

use haplane_testkit::eventually::eventually;
use haplane_testkit::haproxy::{Config, Haproxy, Version};
use haplane_testkit::origin::Origin;
use haplane_testkit::ports::Port;

use crate::haproxy_rows::{AT_ONCE, DEFAULTS, enrolled};
use crate::observer_site::{SOON, Site};

/// Rows of every kind.
fn rows(site: &Site, origin: &Origin, closed: &Port) -> Config {
    let agent = |words: &str| enrolled(site.agent.checks(), words);
    let elsewhere = enrolled(closed.address(), "web/elsewhere");
    let sections = format!(
        "{DEFAULTS}
backend web
    balance roundrobin
    server up {origin} weight 100 {up}
    server group {origin} weight 100 {group}
    server light {origin} weight 1 {light}
    server off {origin} weight 100 {off}
    server plain {origin} weight 100
    server elsewhere {origin} {elsewhere}
    server misnamed {origin} {misnamed}
    server down 127.0.0.1:{closed} check inter 200ms {down}
    server follows {origin} track web/down2 {follows}
    server down2 {origin} check inter 200ms
    server slow {origin} weight 100 slowstart 30s {slow}
backend static
    balance source
    server s {origin} weight 10 {fixed}
",
        origin = origin.address(),
        up = agent("web/up"),
        group = agent("web/group canary"),
        light = agent("web/light half"),
        off = agent("web/off"),
        misnamed = agent("web/other"),
        down = agent("web/down"),
        follows = agent("web/follows"),
        slow = agent("web/slow"),
        fixed = agent("static/s half"),
    );
    Config::new(&sections).global(AT_ONCE)
}

#[tokio::test]
async fn every_row_has_its_verdict_and_its_cause() {
    Version::each(async |version| {
        let site = Site::start(&["s"], &[]).await;
        let origin = Origin::start("o");
        let closed = Port::reserve();
        let haproxy = Haproxy::start(version, rows(&site, &origin, &closed)).await;
        site.look_at("s", &haproxy);

        let up = site.row_is("web/up", "converged", &[]).await;
        assert_eq!(up["why"], serde_json::Value::Null, "{up}");
        assert_eq!(up["enrolled"], true);
        assert_eq!(
            (&up["observed"]["admin"], &up["observed"]["weight"]),
            (&"ready".into(), &100.into())
        );
        assert_eq!(up["observed"]["pid"], haproxy.pid().await);
        site.row_is("web/down", "converged", &["down by its health check"])
            .await;
        let plain = site
            .row_is("web/plain", "unobserved", &["not enrolled"])
            .await;
        assert_eq!(
            (&plain["enrolled"], &plain["answer"], &plain["keys"]),
            (
                &false.into(),
                &serde_json::Value::Null,
                &serde_json::json!([])
            )
        );
        site.row_is("web/elsewhere", "silent", &["asks port", "not this agent"])
            .await;
        site.row_is("web/other", "unobserved", &["no HAProxy that is looked at"])
            .await;
        site.row_is("web/misnamed", "unobserved", &["not under this name"])
            .await;

        site.set("canary", "drain");
        site.set("half", "50%");
        // It is converged before the drain, too, so the drain itself is waited for.
        let group = eventually("the drain in all its words", SOON, async || {
            let row = site.row("web/group").await.unwrap();
            let shown = &row["observed"];
            let all = shown["admin"] == "drain" && shown["status"] == "DRAIN (agent)";
            let all = all && shown["agent_status"] == "CHECKED" && shown["sessions"] == 0;
            let all = all && row["verdict"] == "converged";
            if all { Ok(row) } else { Err(row) }
        })
        .await;
        assert_eq!(group["decided_by"], "canary");
        site.row_is("web/light", "converged", &["weight 0 of 1"])
            .await;
        let fixed = site
            .row_is(
                "static/s",
                "diverged",
                &["algorithm is static", "weight 10"],
            )
            .await;
        assert_eq!(fixed["answer"], "ready 50%");
        site.counts("haplane_propagation_seconds_count{stage=\"observed\"}", 2.0)
            .await;

        haproxy
            .command("disable agent web/off; set server web/off state maint")
            .await;
        let off = site
            .row_is(
                "web/off",
                "silent",
                &[
                    "has not asked for",
                    "agent check is disabled",
                    "keeps it in maint",
                ],
            )
            .await;
        assert_eq!(off["observed"]["agent_enabled"], false);
        haproxy.command("set server web/down2 state maint").await;
        site.row_is(
            "web/follows",
            "converged",
            &["not by its own state: MAINT (via web/down2)"],
        )
        .await;
        site.set("web/slow", "maint");
        site.row_is("web/slow", "converged", &[]).await;
        eventually("the row in maintenance", SOON, async || {
            let row = site.row("web/slow").await.unwrap();
            if row["observed"]["admin"] == "maint" {
                Ok(())
            } else {
                Err(row)
            }
        })
        .await;
        site.set("web/slow", "ready");
        let slow = site
            .row_is("web/slow", "converged", &["slowstart has come to"])
            .await;
        assert!(slow["observed"]["throttle"].as_u64() < Some(100), "{slow}");

        site.gauge_is("haplane_rows{verdict=\"diverged\"}", 1.0)
            .await;
        site.gauge_is("haplane_rows{verdict=\"silent\"}", 2.0).await;
        site.gauge_is("haplane_rows_not_enrolled", 2.0).await;
    })
    .await;
}

#[tokio::test]
async fn a_row_set_by_hand_is_named_until_its_next_ask_undoes_it() {
    Version::each(async |version| {
        let site = Site::start(&["s"], &[]).await;
        let origin = Origin::start("o");
        let checks = site.agent.checks();
        let sections = format!(
            "{DEFAULTS}
backend web
    server a {} weight 100 agent-check agent-inter 4s agent-addr {} agent-port {} agent-send \"web/a\\n\"
",
            origin.address(),
            checks.ip(),
            checks.port()
        );
        let haproxy = Haproxy::start(version, Config::new(&sections).global(AT_ONCE)).await;
        site.look_at("s", &haproxy);
        let asked_again = async |times: u64| {
            eventually("one more ask", SOON, async || {
                let row = site.row("web/a").await.ok_or(serde_json::Value::Null)?;
                if row["asks"].as_u64() >= Some(times) {
                    Ok(())
                } else {
                    Err(row)
                }
            })
            .await;
        };
        asked_again(2).await;
        site.row_is("web/a", "converged", &[]).await;
        asked_again(3).await;
        haproxy.command("set server web/a state drain").await;
        let row = site
            .row_is(
                "web/a",
                "diverged",
                &["changed on HAProxy's own socket", "keeps it in drain"],
            )
            .await;
        assert_eq!(row["observed"]["admin"], "drain");
        site.row_is("web/a", "converged", &[]).await;
        assert_eq!(haproxy.server("web/a").await.number("srv_admin_state"), 0);
    })
    .await;
}

#[tokio::test]
async fn a_stopped_haproxy_is_the_cause_of_the_silence_of_its_rows() {
    let site = Site::start(&["s"], &[]).await;
    let origin = Origin::start("o");
    let sections = format!(
        "{DEFAULTS}
backend web
    server a {} {}
",
        origin.address(),
        enrolled(site.agent.checks(), "web/a")
    );
    let mut haproxy = Haproxy::start(Version::V28, Config::new(&sections).global(AT_ONCE)).await;
    site.look_at("s", &haproxy);
    site.row_is("web/a", "converged", &[]).await;
    haproxy.kill().await;
    let why = [
        "has not asked for",
        "HAProxy cannot be looked at",
        "nobody listens on",
    ];
    eventually(
        "silent because HAProxy is stopped",
        Duration::from_secs(15),
        async || {
            let row = site.row("web/a").await.unwrap();
            let told = row["why"].as_str().unwrap_or_default();
            let is_told = row["verdict"] == "silent" && why.iter().all(|text| told.contains(text));
            if is_told && row["observed"].is_null() {
                Ok(())
            } else {
                Err(row)
            }
        },
    )
    .await;
    site.socket_is("s", Some("refused")).await;
    let socket = site.path("s").display().to_string();
    site.gauge_is(&format!("haplane_haproxy_up{{socket=\"{socket}\"}}"), 0.0)
        .await;
    haproxy.restart().await;
    site.row_is("web/a", "converged", &[]).await;
    site.counts("haplane_haproxy_restarts_seen_total", 1.0)
        .await;
}
