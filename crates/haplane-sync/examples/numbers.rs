//! The numbers of the synchroniser beside a real HAProxy, with a reload for each change beside them.
//!
//! `cargo run -p haplane-sync --profile release-quick --example numbers` (needs `make peers`); about two minutes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a measurement that fails says where, and prints what it found"
)]

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use haplane_daemon::{Document, Settings};
use haplane_sync::SyncSettings;
use haplane_testkit::eventually::eventually;
use haplane_testkit::haproxy::{Config, Haproxy, Version};
use haplane_testkit::origin::Origin;
use haplane_testkit::ports::Port;
use haplane_testkit::traffic::send;
use tokio_util::sync::CancellationToken;

const PATIENCE: Duration = Duration::from_mins(1);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How often the first measurement is made: a busy machine shows in its spread.
const TIMES: usize = 7;

struct Stage {
    haproxy: Haproxy,
    frontend: Port,
    dir: tempfile::TempDir,
    stop: CancellationToken,
}

fn config(frontend: &Port, servers: &str) -> Config {
    Config::new(&format!(
        "defaults\n mode http\n timeout connect 1s\n timeout client 5s\n timeout server 5s\n retries 0\n\
         frontend in\n bind {}\n default_backend web\nbackend web\n balance roundrobin\n{servers}\n",
        frontend.address()
    ))
}

impl Stage {
    async fn new(slots: usize) -> Self {
        let frontend = Port::reserve();
        let template = format!(" server-template web- 1-{slots} 127.0.0.1:1 disabled weight 100");
        let haproxy = Haproxy::start(Version::V28, config(&frontend, &template)).await;
        let dir = tempfile::tempdir().unwrap();
        let stage = Self {
            haproxy,
            frontend,
            dir,
            stop: CancellationToken::new(),
        };
        stage.list(0..0, &[]);
        let text = format!(
            "[sync]\nsocket = \"{}\"\nhttp = \"{}\"\nagent = \"\"\n[[pool]]\nname = \"web\"\nbackend = \"web\"\n\
             slots = \"web-\"\nsource = \"file:{}\"\nmax_removal = \"100%\"\nflap_window = \"off\"\nallow_empty = true\n",
            stage.haproxy.admin_socket().display(),
            Port::reserve().address(),
            stage.hosts().display(),
        );
        let document = Document::parse("numbers.toml", &text, Vec::new());
        let settings = Settings::read(&document, |_| None).unwrap();
        let sync = SyncSettings::read(&document, &settings).unwrap();
        let stop = stage.stop.clone();
        tokio::spawn(async move { haplane_sync::run(sync, "numbers", stop).await.unwrap() });
        stage
    }

    fn hosts(&self) -> PathBuf {
        self.dir.path().join("hosts")
    }

    /// Instances by number, and some real ones.
    fn list(&self, numbers: std::ops::Range<u32>, origins: &[&Origin]) {
        let mut text = String::from("# list\n");
        for n in numbers {
            let [_, b, c, d] = n.to_be_bytes();
            writeln!(text, "127.{b}.{c}.{d}:9 id=i{n}").unwrap();
        }
        for origin in origins {
            writeln!(text, "{} id={}", origin.address(), origin.name()).unwrap();
        }
        let next = self.dir.path().join("next");
        std::fs::write(&next, text).unwrap();
        std::fs::rename(next, self.hosts()).unwrap();
    }

    async fn in_rotation(&self, count: usize, last: u32) {
        let [_, b, c, d] = last.to_be_bytes();
        let address = format!("127.{b}.{c}.{d}");
        eventually("the list in rotation", PATIENCE, || async {
            let servers = self.haproxy.servers().await;
            let there = servers
                .iter()
                .filter(|server| server.number("srv_admin_state") & 1 == 0);
            let there: Vec<_> = there.map(|server| server.get("srv_addr")).collect();
            if there.len() == count && there.iter().any(|there| *there == address) {
                Ok(())
            } else {
                Err(there.len())
            }
        })
        .await;
    }

    async fn connections(&self) -> i64 {
        self.haproxy.info().await.number("CumReq")
    }
}

fn rss(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap_or("VmRSS: 0 kB");
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<f64>()
        .unwrap()
        / 1024.0
}

fn row(what: &str, found: &str) {
    println!("| {what} | {found} |");
}

/// Fills the slots, then replaces 30 % of the instances in one step; how long that took, in ms.
async fn churn(slots: u32) -> f64 {
    let stage = Stage::new(slots as usize).await;
    let began = Instant::now();
    stage.list(1..slots + 1, &[]);
    stage.in_rotation(slots as usize, slots).await;
    row(
        &format!("{slots} slots: first fill"),
        &format!("{:.0} ms", began.elapsed().as_secs_f64() * 1000.0),
    );
    let new = slots * 3 / 10;
    let before = stage.connections().await;
    let own = {
        let before = stage.connections().await;
        stage.connections().await - before
    };
    let began = Instant::now();
    stage.list(new + 1..slots + new + 1, &[]);
    let mut looks = 0;
    // Looked at seldom, so that looking does not count.
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        looks += 1;
        let servers = stage.haproxy.servers().await;
        let [_, b, c, d] = (slots + new).to_be_bytes();
        let last = format!("127.{b}.{c}.{d}");
        let there = servers
            .iter()
            .filter(|server| server.number("srv_admin_state") & 1 == 0);
        let there: Vec<_> = there.map(|server| server.get("srv_addr")).collect();
        if there.len() == slots as usize && there.contains(&last.as_str()) {
            break;
        }
    }
    let took = began.elapsed().as_secs_f64() * 1000.0;
    let commands = stage.connections().await - before - i64::from(looks) * own;
    row(
        &format!("{slots} slots, 30 % replaced while full: list written to all in rotation"),
        &format!("{took:.0} ms (looked every {LOOK_EVERY:?}), {commands} commands and looks"),
    );
    row(
        &format!("{slots} slots: this process's memory"),
        &format!("{:.0} MB", rss(std::process::id())),
    );
    stage.stop.cancel();
    took
}

/// From the list to the first request that the new instance answers.
async fn first_request() {
    let stage = Stage::new(20).await;
    let first = Origin::start("first");
    stage.list(0..0, &[&first]);
    eventually("the first serves", PATIENCE, || async {
        let shares = send(stage.frontend.address(), 1).await;
        if shares.failed() == 0 {
            Ok(())
        } else {
            Err(())
        }
    })
    .await;
    let mut times = Vec::new();
    for n in 0..20 {
        let new = Origin::start(&format!("new-{n}"));
        let began = Instant::now();
        stage.list(0..0, &[&new]);
        while new.served() == 0 {
            send(stage.frontend.address(), 1).await;
        }
        times.push(began.elapsed().as_secs_f64() * 1000.0);
    }
    times.sort_by(f64::total_cmp);
    row(
        "list written to the first answer of the new instance",
        &format!("p50 {:.0} ms, max {:.0} ms", times[10], times[19]),
    );
    stage.stop.cancel();
}

/// A hundred changes of the list a second for a minute, 100 of 200 slots taken.
async fn steady() {
    let stage = Stage::new(200).await;
    stage.list(1..101, &[]);
    stage.in_rotation(100, 100).await;
    let before = rss(std::process::id());
    let began = Instant::now();
    let mut ticks = tokio::time::interval(Duration::from_millis(10));
    for n in 0..6000_u32 {
        ticks.tick().await;
        stage.list(n + 2..n + 102, &[]);
    }
    let written = began.elapsed();
    let ended = Instant::now();
    stage.in_rotation(100, 6100).await;
    row(
        "100 changes a second for a minute: the last one in rotation after its writing",
        &format!(
            "{:.0} ms (6000 changes in {:.0} s)",
            ended.elapsed().as_secs_f64() * 1000.0,
            written.as_secs_f64()
        ),
    );
    row(
        "memory before and after",
        &format!("{before:.0} MB, {:.0} MB", rss(std::process::id())),
    );
    let pid = stage.haproxy.pid().await;
    row(
        "HAProxy's memory after it",
        &format!("{:.0} MB in one process", rss(pid)),
    );
    stage.stop.cancel();
}

/// The same kind of change by a configuration with other servers and a reload, while long answers run.
async fn reloads() {
    let frontend = Port::reserve();
    let origin = Origin::start("origin");
    let servers = |from: u32| {
        let mut text = format!(" server real {} weight 100\n", origin.address());
        for n in from..from + 1000 {
            let [_, b, c, d] = n.to_be_bytes();
            writeln!(text, " server i{n} 127.{b}.{c}.{d}:9 weight 100 disabled").unwrap();
        }
        text
    };
    let mut haproxy = Haproxy::start(Version::V28, config(&frontend, &servers(1))).await;
    let mut times = Vec::new();
    for n in 0..20 {
        let address = frontend.address();
        tokio::spawn(async move {
            let request = haplane_testkit::http::Request::get("/long?pieces=100&pause_ms=100");
            // A reload may refuse it.
            while request.send(&address.into()).await.is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        let served = origin.served();
        while origin.served() == served {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let began = Instant::now();
        haproxy
            .reload_with(config(&frontend, &servers(n * 300)))
            .await;
        times.push(began.elapsed().as_secs_f64() * 1000.0);
    }
    times.sort_by(f64::total_cmp);
    let finishing = haproxy.finishing();
    row(
        "baseline, 1000 servers: a reload for each change",
        &format!("p50 {:.0} ms, max {:.0} ms", times[10], times[19]),
    );
    row(
        "baseline: old processes after 20 changes while answers of 10 s run",
        &finishing.to_string(),
    );
    row(
        "baseline: memory of each of them",
        &format!("{:.0} MB", rss(haproxy.pid().await)),
    );
}

#[tokio::main]
async fn main() {
    println!("| what | found |\n|---|---|");
    let mut times = Vec::new();
    for _ in 0..TIMES {
        times.push(churn(1000).await);
    }
    times.sort_by(f64::total_cmp);
    row(
        &format!("the same {TIMES} times"),
        &format!("best {:.0} ms, median {:.0} ms", times[0], times[TIMES / 2]),
    );
    churn(10_000).await;
    first_request().await;
    steady().await;
    reloads().await;
}
