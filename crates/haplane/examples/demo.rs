//! `make demo`: a small fleet on this machine, to drain and to watch.
//!
//! Two HAProxy with an agent each, four origins of which two are "canary", a directory store and a
//! little traffic. With a terminal it runs until Ctrl-C; with the word `once` it drains and undrains
//! by itself, and its exit status says whether the traffic followed.

#![allow(
    clippy::unwrap_used,
    reason = "a demo may stop where something basic is missing"
)]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use haplane_testkit::eventually::eventually;
use haplane_testkit::haproxy::{Config, Haproxy, Version};
use haplane_testkit::http::{Request, Target};
use haplane_testkit::origin::Origin;
use haplane_testkit::ports::Port;
use haplane_testkit::process::Process;
use haplane_testkit::traffic::{Shares, Traffic};
use serde_json::Value;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep};

const ORIGINS: [&str; 4] = ["stable-1", "stable-2", "canary-1", "canary-2"];
/// Prints a line. Where the terminal is gone there is nobody to tell, and still everything to end.
macro_rules! say {
    ($($words:tt)*) => {{
        let _ = writeln!(std::io::stdout(), $($words)*);
    }};
}

/// Clients of each HAProxy, and the pause of each between two requests.
const CLIENTS: usize = 2;
const PAUSE: Duration = Duration::from_millis(50);
/// HAProxy asks every two seconds; a change has to be everywhere well within this.
const FOLLOWS_WITHIN: Duration = Duration::from_secs(15);

#[tokio::main]
async fn main() -> ExitCode {
    let once = std::env::args().nth(1).as_deref() == Some("once");
    // From the first moment on: whoever is impatient must not leave half a fleet behind.
    let mut stop = Stop::listening();
    tokio::select! {
        exit = run(once) => exit,
        () = stop.told() => {
            say!("\nending everything that was started");
            if once { ExitCode::FAILURE } else { ExitCode::SUCCESS }
        }
    }
}

async fn run(once: bool) -> ExitCode {
    let fleet = Fleet::start().await;
    if once {
        return fleet.show_once().await;
    }
    fleet.explain();
    fleet.report_for_ever().await
}

/// Ctrl-C, a polite kill, or a terminal that was closed.
struct Stop([Signal; 3]);

impl Stop {
    fn listening() -> Self {
        let kinds = [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
        ];
        Self(kinds.map(|kind| signal(kind).unwrap()))
    }

    async fn told(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}

/// Everything that runs. Dropping it ends it.
struct Fleet {
    folder: Folder,
    haplane: PathBuf,
    origins: Vec<Origin>,
    nodes: Vec<Node>,
}

/// One load balancer: an HAProxy, its agent, and clients that use it.
struct Node {
    traffic: Traffic,
    frontend: Port,
    http: Port,
    _agent: Process,
    _haproxy: Haproxy,
}

impl Node {
    /// Until HAProxy has asked for every server: then a command knows all rows.
    async fn is_asked(&self) {
        let target = Target::from(self.http.address());
        eventually("every row to ask", FOLLOWS_WITHIN, async || {
            let answer = Request::get("/v1/rows").send(&target).await;
            let rows = answer.map_or(Value::Null, |answer| answer.json());
            let has_asked = |row: &&Value| row.get("last_asked").is_some_and(Value::is_string);
            let asked = rows
                .as_array()
                .into_iter()
                .flatten()
                .filter(has_asked)
                .count();
            if asked == ORIGINS.len() {
                Ok(())
            } else {
                Err(asked)
            }
        })
        .await;
    }
}

impl Fleet {
    async fn start() -> Self {
        let haplane = beside_this_program("haplane");
        let folder = Folder::new();
        let origins: Vec<Origin> = ORIGINS.iter().map(|name| Origin::start(name)).collect();
        let mut fleet = Self {
            folder,
            haplane,
            origins,
            nodes: Vec::new(),
        };
        assert!(fleet.run_haplane(&["init"]), "the folder can be written");
        for name in ["lb-01", "lb-02"] {
            let node = fleet.start_node(name).await;
            fleet.nodes.push(node);
        }
        for node in &fleet.nodes {
            node.is_asked().await;
        }
        fleet
    }

    async fn start_node(&self, name: &str) -> Node {
        let [checks, http, frontend] = [Port::reserve(), Port::reserve(), Port::reserve()];
        let log = self.folder.path.join(format!("{name}.log"));
        // Until its agent listens, HAProxy leaves every server as it is configured.
        let config = self.haproxy_config(&frontend, &checks);
        let haproxy = Haproxy::start(Version::V28, config).await;
        let mut agent = Command::new(&self.haplane);
        agent
            .args(["agent", "--node", name, "--log-format", "text"])
            .args(["--listen", &checks.address().to_string()])
            .args(["--http-listen", &http.address().to_string()])
            .arg("--haproxy-socket")
            .arg(haproxy.dir().join("user.sock"))
            .env("HAPLANE_STORE", self.store())
            .stdin(Stdio::null());
        let agent = Process::spawn(name, agent, &log);
        let traffic = Traffic::start(frontend.address(), CLIENTS, PAUSE);
        Node {
            traffic,
            frontend,
            http,
            _agent: agent,
            _haproxy: haproxy,
        }
    }

    /// What a real site would write, and `haplane enroll` would write for it.
    fn haproxy_config(&self, frontend: &Port, checks: &Port) -> Config {
        let mut sections = format!(
            "defaults\n  timeout connect 5s\n  timeout client 30s\n  timeout server 30s\n\n\
             frontend in\n  bind {}\n  default_backend web\n\nbackend web\n  balance roundrobin\n  \
             default-server check inter 2s agent-check agent-inter 2s agent-addr {} agent-port {} \
             slowstart 10s weight 100\n",
            frontend.address(),
            checks.address().ip(),
            checks.number(),
        );
        for origin in &self.origins {
            let name = origin.name();
            let group = if name.starts_with("canary") {
                " canary"
            } else {
                ""
            };
            let line = format!(
                "  server {name} {} agent-send \"web/{name}{group}\\n\"\n",
                origin.address()
            );
            sections.push_str(&line);
        }
        Config::new(&sections).global("max-spread-checks 1")
    }

    fn store(&self) -> String {
        format!("dir:{}", self.folder.path.join("state").display())
    }

    /// Says whether it did what it was told.
    fn run_haplane(&self, words: &[&str]) -> bool {
        say!("$ haplane {}", words.join(" "));
        let status = Command::new(&self.haplane)
            .args(words)
            .env("HAPLANE_STORE", self.store())
            .env("HAPLANE_AGENTS", self.agents())
            .status()
            .unwrap();
        status.success()
    }

    /// Where the commands find the agents: a folder knows of none, as Consul does.
    fn agents(&self) -> String {
        let url = |node: &Node| format!("http://{}", node.http.address());
        let urls: Vec<String> = self.nodes.iter().map(url).collect();
        urls.join(",")
    }

    fn explain(&self) {
        say!("\nTwo HAProxy 2.8, each with an agent; four origins behind them, two are canary.\n");
        for node in &self.nodes {
            say!(
                "  http://{}   what it was told and does: http://{}/",
                node.frontend.address(),
                node.http.address()
            );
        }
        say!(
            "\nIn a second terminal:\n\n  export HAPLANE_STORE={}\n  export HAPLANE_AGENTS={}\n  export PATH={}:$PATH\n\n  \
             haplane set canary drain --wait --reason 'trying it out'\n  haplane why web/canary-1\n  \
             haplane clear canary --wait\n\nCtrl-C ends everything.\n",
            self.store(),
            self.agents(),
            self.haplane.parent().unwrap().display(),
        );
    }

    async fn report_for_ever(&self) -> ! {
        let mut before = self.so_far();
        loop {
            sleep(Duration::from_secs(2)).await;
            let now = self.so_far();
            say!("{}", line(&since(&now, &before)));
            before = now;
        }
    }

    /// Drains and undrains the canaries, and shows where the traffic went.
    async fn show_once(&self) -> ExitCode {
        let canaries = |share: f64| move |seen: f64| (seen - share).abs() < 0.1;
        let steps: [(&[&str], &str, f64); 3] = [
            (&[], "before", 0.5),
            (
                &["set", "canary", "drain", "--wait", "--reason", "demo"],
                "drained",
                0.0,
            ),
            (&["clear", "canary", "--wait"], "after", 0.5),
        ];
        for (words, name, expected) in steps {
            if !words.is_empty() && !self.run_haplane(words) {
                return ExitCode::FAILURE;
            }
            if !self.traffic_becomes(name, canaries(expected)).await {
                say!("the traffic did not follow within {FOLLOWS_WITHIN:?}");
                return ExitCode::FAILURE;
            }
        }
        say!("the traffic followed each time");
        ExitCode::SUCCESS
    }

    /// Waits until the canaries' share of one second's traffic is as expected on every node.
    async fn traffic_becomes(&self, name: &str, expected: impl Fn(f64) -> bool) -> bool {
        let start = Instant::now();
        while start.elapsed() < FOLLOWS_WITHIN {
            let before = self.so_far();
            sleep(Duration::from_secs(1)).await;
            let seconds = since(&self.so_far(), &before);
            if seconds
                .iter()
                .all(|shares| shares.answered() > 0 && expected(canary_share(shares)))
            {
                say!("{name:>8}: {}", line(&seconds));
                return true;
            }
        }
        false
    }

    fn so_far(&self) -> Vec<Shares> {
        self.nodes
            .iter()
            .map(|node| node.traffic.so_far())
            .collect()
    }
}

fn since(now: &[Shares], before: &[Shares]) -> Vec<Shares> {
    now.iter()
        .zip(before)
        .map(|(now, before)| now.since(before))
        .collect()
}

fn canary_share(shares: &Shares) -> f64 {
    ORIGINS
        .iter()
        .filter(|name| name.starts_with("canary"))
        .map(|name| shares.share(name))
        .sum()
}

/// The share of each origin over all nodes.
fn line(nodes: &[Shares]) -> String {
    let answered: u64 = nodes.iter().map(Shares::answered).sum();
    let share = |name: &&str| {
        let of: u64 = nodes.iter().map(|shares| shares.of(name)).sum();
        let percent = (of * 100).checked_div(answered).unwrap_or(0);
        format!("{name} {percent:>3}%")
    };
    let shares: Vec<String> = ORIGINS.iter().map(share).collect();
    let failed: u64 = nodes.iter().map(Shares::failed).sum();
    format!(
        "{}   ({answered} requests, {failed} failed)",
        shares.join("   ")
    )
}

/// The demo's own folder in the checkout, removed at the end.
struct Folder {
    path: PathBuf,
}

impl Folder {
    fn new() -> Self {
        let path = std::env::current_dir().unwrap().join(".demo");
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(path.join("state")).unwrap();
        Self { path }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// A program of the same build.
fn beside_this_program(name: &str) -> PathBuf {
    let this = std::env::current_exe().unwrap();
    let examples = this.parent().and_then(Path::parent);
    examples.unwrap().join(name)
}
