//! A real agent, and a store of its own in a folder.

use std::path::PathBuf;
use std::time::Duration;

use haplane_testkit::agent_peer::ask;
use haplane_testkit::eventually::eventually;
use haplane_testkit::http::{Request, Target};
use haplane_testkit::ports::Port;
use haplane_testkit::process::Process;
use tempfile::TempDir;

use crate::command::Haplane;

/// A directory store, initialised.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        folder.haplane().run(&["init"]).exits(0);
        folder
    }

    /// The folder whose files are the keys.
    pub(crate) fn state(&self) -> PathBuf {
        self.0.path().join("state")
    }

    /// The program, pointed at this store.
    pub(crate) fn haplane(&self) -> Haplane {
        Haplane::on(format!("dir:{}", self.state().display()))
    }
}

/// A running agent.
pub(crate) struct Agent {
    pub(crate) process: Process,
    pub(crate) checks: Port,
    pub(crate) http: Port,
    _log: TempDir,
}

impl Agent {
    /// Starts one as `haplane` would be run, and waits until it is ready.
    pub(crate) async fn start(haplane: &Haplane) -> Self {
        Self::start_as("lb-01", haplane).await
    }

    /// The same, on a node of this name.
    pub(crate) async fn start_as(node: &str, haplane: &Haplane) -> Self {
        Self::start_at(node, haplane, Port::reserve()).await
    }

    /// The same, with agent checks on this port.
    pub(crate) async fn start_at(node: &str, haplane: &Haplane, checks: Port) -> Self {
        Self::start_with(&["--node", node], haplane, checks).await
    }

    /// The same, with these flags.
    pub(crate) async fn start_with(flags: &[&str], haplane: &Haplane, checks: Port) -> Self {
        let http = Port::reserve();
        let mut command = haplane.command(&[&["agent"], flags].concat());
        command
            .args(["--listen", &checks.address().to_string()])
            .args(["--http-listen", &http.address().to_string()]);
        let log = tempfile::tempdir().unwrap();
        // What the profiler leaves behind goes with it.
        command.env("TMPDIR", log.path());
        let process = Process::spawn("haplane agent", command, &log.path().join("log"));
        let agent = Self {
            process,
            checks,
            http,
            _log: log,
        };
        eventually(
            "the agent is ready",
            Duration::from_secs(10),
            async || match agent.get("/readyz").await {
                Ok(answer) if answer.status == 200 => Ok(()),
                other => Err(other.map(|answer| answer.text())),
            },
        )
        .await;
        agent
    }

    pub(crate) async fn get(&self, path: &str) -> std::io::Result<haplane_testkit::http::Response> {
        let target = Target::Tcp(self.http.address());
        Request::get(path).send(&target).await
    }

    pub(crate) fn page(&self) -> String {
        format!("http://{}/", self.http.address())
    }

    /// Waits until the agent knows how often a row asks. One that stopped after its first ask is given half a minute.
    pub(crate) async fn knows_the_interval_of(&self, row: &str) {
        let asks = async || {
            let rows = self.get("/v1/rows").await.ok()?.text();
            let rows: Vec<serde_json::Value> = serde_json::from_str(&rows).ok()?;
            rows.iter().find(|one| one["row"] == row)?["asks"].as_u64()
        };
        eventually(
            &format!("{row} asked again"),
            Duration::from_secs(30),
            async || match asks().await {
                Some(2..) => Ok(()),
                other => Err(other),
            },
        )
        .await;
    }

    /// Keeps asking for these lines, as HAProxy does.
    pub(crate) fn asked(&self, lines: &[&str]) -> tokio::task::JoinHandle<()> {
        self.asked_every(Duration::from_millis(200), lines)
    }

    /// The same at HAProxy's usual interval: a busy machine makes no row silent.
    pub(crate) fn asked_calmly(&self, lines: &[&str]) -> tokio::task::JoinHandle<()> {
        self.asked_every(Duration::from_secs(2), lines)
    }

    fn asked_every(&self, pause: Duration, lines: &[&str]) -> tokio::task::JoinHandle<()> {
        let lines: Vec<_> = lines.iter().map(|line| format!("{line}\n")).collect();
        let checks = self.checks.address();
        tokio::spawn(async move {
            loop {
                for line in &lines {
                    ask(checks, line.as_bytes()).await.ok();
                }
                tokio::time::sleep(pause).await;
            }
        })
    }
}
