//! A process under measure: started, asked, and its account with the kernel.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use haplane_testkit::http::Request;
use haplane_testkit::ports::Port;
use haplane_testkit::process::Process;
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpStream;

/// How long a start may take before the measurement is given up.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running process that answers lines.
#[derive(Debug)]
pub(crate) struct Subject {
    process: Process,
    port: Port,
    http: Port,
    /// From before the start to the first connection.
    pub(crate) started_in: Duration,
    _folder: TempDir,
}

impl Subject {
    /// An agent on this store.
    pub(crate) async fn on(store: &str) -> Self {
        Self::with_flags(store, &[]).await
    }

    /// An agent on this store, with these flags.
    pub(crate) async fn with_flags(store: &str, flags: &[&str]) -> Self {
        let store = store.to_owned();
        Self::start(move |port, http| {
            let mut command = Command::new(beside_this_program("haplane"));
            command
                .args([
                    "agent",
                    "--no-register",
                    "--node",
                    "bench",
                    "--store",
                    &store,
                ])
                .args(["--listen", &port.to_string()])
                .args(["--http-listen", &http.to_string()])
                .args(flags)
                .env_clear();
            command
        })
        .await
    }

    /// The peer.
    pub(crate) async fn floor() -> Self {
        Self::start(|port, _| this_program("floor", port)).await
    }

    async fn start(command: impl FnOnce(SocketAddr, SocketAddr) -> Command) -> Self {
        let (port, http) = (Port::reserve(), Port::reserve());
        let folder = tempfile::tempdir().expect("a folder");
        let command = command(port.address(), http.address());
        let begun = Instant::now();
        let process = Process::spawn("subject", command, &folder.path().join("log"));
        while TcpStream::connect(port.address()).await.is_err() {
            assert!(begun.elapsed() < PATIENCE, "no start: {}", process.log());
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        Self {
            process,
            port,
            http,
            started_in: begun.elapsed(),
            _folder: folder,
        }
    }

    /// Where it answers lines.
    pub(crate) fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// A page of an agent.
    pub(crate) async fn page(&self, path: &str) -> io::Result<String> {
        let page = Request::get(path).send(&self.http.address().into()).await?;
        Ok(page.text())
    }

    /// A count of `/v1/node`.
    pub(crate) async fn count(&self, of: &str) -> Option<u64> {
        let node: Value = serde_json::from_str(&self.page("/v1/node").await.ok()?).ok()?;
        node.get("counts")?.get(of)?.as_u64()
    }

    /// The processor time that it has used, in seconds.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        cpu_seconds_of(self.process.pid())
    }

    /// The memory that it holds, in KiB.
    pub(crate) fn resident_kib(&self) -> u64 {
        let status = self.proc("status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next());
        number.and_then(|number| number.parse().ok()).unwrap_or(0)
    }

    /// How many files and connections it has open.
    pub(crate) fn open_files(&self) -> usize {
        let files = std::fs::read_dir(format!("/proc/{}/fd", self.process.pid()));
        files.map_or(0, Iterator::count)
    }

    fn proc(&self, file: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{file}", self.process.pid())).unwrap_or_default()
    }
}

/// The processor time that a process has used, in seconds.
pub(crate) fn cpu_seconds_of(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The fields after the name in parentheses, which may hold anything: 14 and 15 of proc(5).
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks: f64 = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|ticks| ticks.parse::<f64>().ok())
        .sum();
    ticks / 100.0
}

/// This program in another role, beside whoever is at this address.
pub(crate) fn this_program(role: &str, address: SocketAddr) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.arg(role).arg(address.to_string());
    command
}

/// A program of the same build.
fn beside_this_program(name: &str) -> PathBuf {
    let this = std::env::current_exe().expect("this program");
    let folder = this.parent().and_then(Path::parent);
    folder.expect("a build folder").join(name)
}
