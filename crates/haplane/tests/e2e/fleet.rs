//! A fleet: load balancers with an agent each, on one Consul.

use std::process::{Child, Stdio};
use std::time::Duration;

use haplane_testkit::consul::{Consul, Options};
use haplane_testkit::eventually::eventually;
use haplane_testkit::haproxy::{Config, Haproxy, Version};
use serde_json::Value;

use crate::agent_process::{Agent, Launch, PATIENCE};
use crate::command::Haplane;
use crate::haproxy_rows::{AT_ONCE, DEFAULTS, enrolled};

/// One load balancer.
pub(crate) struct Balancer {
    pub(crate) launch: Launch,
    pub(crate) agent: Agent,
    pub(crate) haproxy: Haproxy,
}

/// Some of them, and where they are told what to do.
pub(crate) struct Fleet {
    pub(crate) consul: Consul,
    pub(crate) haplane: Haplane,
    pub(crate) balancers: Vec<Balancer>,
}

/// The rows of every balancer, with the words that they send.
const ROWS: [&str; 5] = [
    "web/gke-us-east1-b-web",
    "web/gke-us-east1-c-web",
    "web/gke-us-east1-d-web",
    "canary_web/gke-cny-web canary",
    "canary_web/gke-cny-web2 canary",
];

impl Fleet {
    /// Starts them and waits until every row has asked.
    pub(crate) async fn start(size: usize) -> Self {
        let consul = Consul::start(Options::new()).await;
        let haplane = Haplane::on(format!("consul:{}", consul.url()));
        haplane.run(&["init"]).exits(0);
        let mut balancers = Vec::new();
        for number in 1..=size {
            balancers.push(Balancer::start(&consul, number).await);
        }
        let fleet = Self {
            consul,
            haplane,
            balancers,
        };
        fleet.asks(size, ROWS.len()).await;
        fleet
    }

    /// Waits until so many nodes are known, each with so many rows.
    pub(crate) async fn asks(&self, nodes: usize, rows: usize) {
        eventually("all rows to ask", PATIENCE, async || {
            let status = self.haplane.run(&["status", "--json"]).json();
            let totals: Vec<u64> = status["nodes"]
                .as_array()
                .unwrap()
                .iter()
                .map(|node| node["rows"]["total"].as_u64().unwrap())
                .collect();
            if totals == vec![rows as u64; nodes] {
                Ok(())
            } else {
                Err(totals)
            }
        })
        .await;
    }

    /// The value of a state key in Consul.
    pub(crate) async fn value(&self, key: &str) -> Option<String> {
        let entry = self.consul.get(&format!("haplane/state/{key}")).await?;
        Some(String::from_utf8(entry.value).unwrap())
    }

    /// Waits until a state key has this value.
    pub(crate) async fn becomes(&self, key: &str, value: &str) {
        let what = format!("{key} = {value}");
        eventually(&what, PATIENCE, async || match self.value(key).await {
            Some(text) if text == value => Ok(()),
            other => Err(other),
        })
        .await;
    }

    /// Runs `haplane` beside what the test does meanwhile.
    pub(crate) fn in_background(&self, words: &[&str]) -> Child {
        let mut command = self.haplane.command(words);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().unwrap()
    }
}

impl Balancer {
    async fn start(consul: &Consul, number: usize) -> Self {
        let launch = Launch::registered(consul, &format!("lb-{number:02}"));
        let agent = launch.clone().ready().await;
        let config = Config::new(&sections(&agent)).global(AT_ONCE);
        let haproxy = Haproxy::start(Version::V28, config).await;
        Self {
            launch,
            agent,
            haproxy,
        }
    }
}

fn sections(agent: &Agent) -> String {
    let servers = |backend: &str| -> String {
        let of_backend = ROWS
            .iter()
            .filter(|words| words.starts_with(&format!("{backend}/")));
        let line = |words: &&str| {
            let row = words.split(' ').next().unwrap();
            let name = row.split('/').nth(1).unwrap();
            format!(
                "    server {name} 127.0.0.1:9 {}\n",
                enrolled(agent.checks(), words)
            )
        };
        of_backend.map(line).collect()
    };
    format!(
        "{DEFAULTS}\nbackend web\n{}backend canary_web\n{}",
        servers("web"),
        servers("canary_web")
    )
}

/// The laggards of a run that did not converge, as `node row: why`.
pub(crate) fn laggards(waited: &Value) -> Vec<String> {
    let told = |one: &Value| {
        let row = one["row"].as_str().unwrap_or("*");
        format!(
            "{} {row}: {}",
            one["node"].as_str().unwrap(),
            one["why"].as_str().unwrap()
        )
    };
    waited["laggards"]
        .as_array()
        .unwrap()
        .iter()
        .map(told)
        .collect()
}

/// Longer than three intervals of a row, as the agent counts them.
pub(crate) const LONG_SILENCE: Duration = Duration::from_secs(10);
