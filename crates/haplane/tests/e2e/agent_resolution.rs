//! Which key decides, shown by who gets the traffic of a real HAProxy.

use std::collections::BTreeMap;

use haplane_testkit::consul::{Consul, Options};
use haplane_testkit::eventually::eventually;
use haplane_testkit::haproxy::{Config, Haproxy, Version};
use haplane_testkit::origin::Origin;
use haplane_testkit::ports::Port;
use haplane_testkit::traffic::send;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::agent_process::{Agent, Launch, PATIENCE};
use crate::haproxy_rows::{
    AT_ONCE, DEFAULTS, DRAIN, MAINT, READY, differences, enrolled, shown, states,
};

/// A Consul with a marker, an agent, and a HAProxy with three servers: `web/a`, `web/b`, which is in
/// the groups `canary` and `zone/b`, and `web/c` in `zone/b` and `canary`.
struct Stage {
    consul: Consul,
    agent: Agent,
    haproxy: Haproxy,
    frontend: Port,
    _origins: [Origin; 3],
}

impl Stage {
    async fn start() -> Self {
        let consul = Consul::start(Options::new()).await;
        consul.put("haplane/state/.haplane", "").await;
        let agent = Launch::on_consul(&consul).ready().await;
        let frontend = Port::reserve();
        let servers = [("a", ""), ("b", " canary zone/b"), ("c", " zone/b canary")];
        let origins = servers.map(|(name, _)| Origin::start(name));
        let lines = servers
            .iter()
            .zip(&origins)
            .map(|((name, groups), origin)| {
                let asks = enrolled(agent.checks(), &format!("web/{name}{groups}"));
                let address = origin.address();
                format!(" server {name} {address} weight 100 check inter 1s {asks}\n")
            });
        let text = format!(
            "{DEFAULTS}\nfrontend all\n bind {}\n default_backend web\nbackend web\n{}",
            frontend.address(),
            lines.collect::<String>(),
        );
        let config = Config::new(&text).global(AT_ONCE);
        let haproxy = Haproxy::start(Version::V28, config).await;
        Self {
            consul,
            agent,
            haproxy,
            frontend,
            _origins: origins,
        }
    }

    /// Writes these keys in place of all that there were.
    async fn desire(&self, keys: &[(&str, &str)]) {
        for old in self.consul.list("haplane/state/").await {
            let name = old.key.trim_start_matches("haplane/state/");
            if name != ".haplane" && !keys.iter().any(|(key, _)| *key == name) {
                self.consul.delete(&old.key).await;
            }
        }
        let keys = keys
            .iter()
            .map(|(key, value)| (format!("haplane/state/{key}"), (*value).to_owned()));
        self.consul.put_many(keys).await;
    }

    /// Waits until the three rows have these bits and weights.
    async fn shows(&self, what: &str, [a, b, c]: [(i64, i64); 3]) {
        let wanted = [("web/a", a), ("web/b", b), ("web/c", c)];
        let wanted: BTreeMap<_, _> = wanted.map(|(row, state)| (row.to_owned(), state)).into();
        eventually(what, PATIENCE, async || {
            differences(&wanted, &states(&self.haproxy).await)
        })
        .await;
    }

    /// Sends requests and asserts that exactly these origins answer, in about these shares.
    async fn traffic_goes_to(&self, what: &str, shares: &[(&str, f64)]) {
        let seen = send(self.frontend.address(), 60).await;
        assert_eq!(seen.failed(), 0, "{what}: {seen:?}");
        let served: Vec<_> = seen.by_origin.keys().map(String::as_str).collect();
        let wanted: Vec<_> = shares.iter().map(|(origin, _)| *origin).collect();
        assert_eq!(served, wanted, "{what}: {seen:?}");
        for (origin, share) in shares {
            let off = (seen.share(origin) - share).abs();
            assert!(off < 0.05, "{what}: {origin} {seen:?}");
        }
    }
}

const FULL: (i64, i64) = (READY, 100);
const DRAINED: (i64, i64) = (DRAIN, 100);
const IN_MAINT: (i64, i64) = (MAINT, 100);
const THIRD: f64 = 1.0 / 3.0;

#[tokio::test(flavor = "multi_thread")]
async fn the_first_key_with_a_value_decides() {
    let stage = Stage::start().await;
    let (half, quarter) = ((READY, 50), (READY, 25));
    for (what, keys, rows, shares) in [
        (
            "no key",
            &[][..],
            [FULL, FULL, FULL],
            &[("a", THIRD), ("b", THIRD), ("c", THIRD)][..],
        ),
        (
            "a row's own key is for it alone",
            &[("web/a", "maint")],
            [IN_MAINT, FULL, FULL],
            &[("b", 0.5), ("c", 0.5)],
        ),
        (
            "a group is for all that ask for it",
            &[("canary", "drain")],
            [FULL, DRAINED, DRAINED],
            &[("a", 1.0)],
        ),
        (
            "a row's key is before its groups",
            &[("canary", "drain"), ("web/b", "ready")],
            [FULL, FULL, DRAINED],
            &[("a", 0.5), ("b", 0.5)],
        ),
        (
            "groups are in the order of the words",
            &[("canary", "maint"), ("zone/b", "50%")],
            [FULL, IN_MAINT, half],
            &[("a", 2.0 / 3.0), ("c", THIRD)],
        ),
        (
            "what had half its weight and is cleared has all of it again",
            &[],
            [FULL, FULL, FULL],
            &[("a", THIRD), ("b", THIRD), ("c", THIRD)],
        ),
        (
            "a group before a second one that drains",
            &[("canary", "maint"), ("zone/b", "drain")],
            [FULL, IN_MAINT, DRAINED],
            &[("a", 1.0)],
        ),
        (
            "a weight leaves drain and maint: every answer says all",
            &[("canary", "25%")],
            [FULL, quarter, quarter],
            &[("a", 2.0 / 3.0), ("b", 1.0 / 6.0), ("c", 1.0 / 6.0)],
        ),
        (
            "a drain keeps the weight that it meets",
            &[("canary", "drain")],
            [FULL, (DRAIN, 25), (DRAIN, 25)],
            &[("a", 1.0)],
        ),
        (
            "and what is no value counts as absent",
            &[("web/b", "down"), ("canary", "33.5%"), ("zone/b", "drain")],
            [FULL, (DRAIN, 25), (DRAIN, 25)],
            &[("a", 1.0)],
        ),
        (
            "case, blanks and line ends do not matter; 0% is no new traffic",
            &[
                ("web/a", " Ready \n"),
                ("web/b", "0%\n"),
                ("zone/b", "DRAIN"),
            ],
            [FULL, (READY, 0), (DRAIN, 25)],
            &[("a", 1.0)],
        ),
        (
            "a neighbour of the prefix, a folder, a key in vain",
            &[
                ("canary/", "drain"),
                ("../state2/canary", "drain"),
                ("web/d", "drain"),
            ],
            [FULL, FULL, FULL],
            &[("a", THIRD), ("b", THIRD), ("c", THIRD)],
        ),
    ] {
        stage.desire(keys).await;
        stage.shows(what, rows).await;
        stage.traffic_goes_to(what, shares).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_value_is_listed_and_counted() {
    let stage = Stage::start().await;
    stage.consul.put("haplane/state2/canary", "drain").await;
    let keys = [
        ("web/a", "down"),
        ("canary", "50"),
        ("web/b", ""),
        ("zone/b", "maint"),
    ];
    stage.desire(&keys).await;
    stage
        .shows("only the zone decides", [FULL, IN_MAINT, IN_MAINT])
        .await;
    let state = stage.agent.json("/v1/state").await;
    assert_eq!(state["keys"], json!({"zone/b": "maint"}));
    assert_eq!(
        state["invalid"],
        json!({"canary": "50", "web/a": "down", "web/b": ""})
    );
    assert!((stage.agent.metric("haplane_invalid_values").await - 3.0).abs() < 0.1);
    let node = stage.agent.json("/v1/node").await;
    assert_eq!(node["counts"], json!({"keys": 1, "invalid": 3, "rows": 3}));
    stage.desire(&[]).await;
    stage.shows("nothing desired", [FULL, FULL, FULL]).await;
    assert_eq!(stage.agent.json("/v1/state").await["invalid"], json!({}));
    assert!(stage.agent.metric("haplane_invalid_values").await.abs() < 0.1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_ends_at_its_time_by_itself() {
    let stage = Stage::start().await;
    let end = Timestamp::now() + SignedDuration::from_secs(2);
    let (drain, past) = (
        format!("drain until={end}"),
        format!("maint until={}", Timestamp::now()),
    );
    stage
        .desire(&[("canary", "50%"), ("web/b", &drain), ("web/c", &past)])
        .await;
    stage
        .shows("until then", [FULL, (DRAIN, 100), (READY, 50)])
        .await;
    stage
        .shows("afterwards", [FULL, (READY, 50), (READY, 50)])
        .await;
    assert!(Timestamp::now() >= end, "not before its time");
    let state = stage.agent.json("/v1/state").await;
    assert_eq!(
        state["keys"]["web/b"],
        json!(drain),
        "it is still in the store"
    );
}

/// `ready 100%` comes five times a second; the ramp of `slowstart` goes on under it.
#[tokio::test(flavor = "multi_thread")]
async fn maint_to_ready_ramps_and_drain_to_ready_does_not() {
    let consul = Consul::start(Options::new()).await;
    consul.put("haplane/state/.haplane", "").await;
    consul.put("haplane/state/web/a", "maint").await;
    consul.put("haplane/state/web/b", "drain").await;
    let agent = Launch::on_consul(&consul).ready().await;
    let origin = Origin::start("origin");
    let server = |name: &str| {
        let asks = enrolled(agent.checks(), &format!("web/{name}"));
        format!(
            " server {name} {} weight 100 slowstart 3s {asks}\n",
            origin.address()
        )
    };
    let text = format!("{DEFAULTS}\nbackend web\n{}{}", server("a"), server("b"));
    let mut haproxies = Vec::new();
    for version in Version::ALL {
        haproxies.push(Haproxy::start(version, Config::new(&text).global(AT_ONCE)).await);
    }
    for haproxy in &haproxies {
        eventually("maint and drain", PATIENCE, async || {
            let rows = states(haproxy).await;
            let is = (rows["web/a"], rows["web/b"]);
            if is == (IN_MAINT, DRAINED) {
                Ok(())
            } else {
                Err(is)
            }
        })
        .await;
    }
    consul.delete("haplane/state/web/a").await;
    consul.delete("haplane/state/web/b").await;
    tokio::join!(ramps(&haproxies[0]), ramps(&haproxies[1]));
}

/// Watches `web/a` ramp up to the end, and `web/b` come back without a ramp.
async fn ramps(haproxy: &Haproxy) {
    let mut seen = Vec::new();
    eventually("the ramp's end", PATIENCE, async || {
        let rows = shown(haproxy).await;
        assert!(rows["web/b"].admin & MAINT == 0, "no detour by maint");
        let throttle = async |row| haproxy.stat(row).await.get("throttle").to_owned();
        assert_eq!(throttle("web/b").await, "", "no ramp after drain");
        // It is empty when no ramp is under way.
        match throttle("web/a").await {
            percent if percent.is_empty() && rows["web/a"].admin == READY => Ok(()),
            percent if percent.is_empty() => Err("in maint".to_owned()),
            percent => {
                seen.push(percent.parse::<u32>().unwrap());
                Err(percent)
            }
        }
    })
    .await;
    let version = haproxy.version();
    assert!(seen.is_sorted(), "{version:?} goes on: {seen:?}");
    let (low, high) = (seen.first().unwrap(), seen.last().unwrap());
    assert!(*low < 50 && *high > 50, "{version:?} ramps: {seen:?}");
    assert!(seen.len() > 10, "{version:?} was looked at: {seen:?}");
}
