//! The agent as a process of its own, as a supervisor starts it.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use haplane_testkit::agent_peer;
use haplane_testkit::consul::Consul;
use haplane_testkit::eventually::eventually;
use haplane_testkit::http::{Request, Response};
use haplane_testkit::ports::Port;
use haplane_testkit::process::Process;
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::command::{Run, run_of};

/// How long anything may take that has no limit of its own, on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// How to start an agent.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    store: String,
    flags: Vec<String>,
    variables: Vec<(String, String)>,
}

impl Launch {
    /// An agent on this store (`consul:http://…`), which does not register.
    pub(crate) fn on(store: impl Into<String>) -> Self {
        Self {
            store: store.into(),
            flags: vec!["--no-register".to_owned()],
            variables: Vec::new(),
        }
    }

    /// An agent on this Consul.
    pub(crate) fn on_consul(consul: &Consul) -> Self {
        Self::on(format!("consul:{}", consul.url()))
    }

    /// An agent of this name on this Consul, where it registers.
    pub(crate) fn registered(consul: &Consul, node: &str) -> Self {
        Self::on_consul(consul)
            .with("HAPLANE_NODE", node)
            .registering()
    }

    /// The same, and it registers.
    pub(crate) fn registering(mut self) -> Self {
        self.flags.retain(|flag| flag != "--no-register");
        self
    }

    /// With these flags.
    pub(crate) fn flags(mut self, flags: &[&str]) -> Self {
        self.flags.extend(flags.iter().map(|&flag| flag.to_owned()));
        self
    }

    /// With this variable in its environment.
    pub(crate) fn with(mut self, variable: &str, value: &str) -> Self {
        self.variables.push((variable.to_owned(), value.to_owned()));
        self
    }

    /// Runs it to its end, for flags that only print.
    pub(crate) fn run(&self) -> Run {
        let output = self.command(&Place::new()).output();
        run_of(output.expect("to run haplane agent"))
    }

    /// Starts it and waits for nothing.
    pub(crate) fn start(self) -> Agent {
        let place = Place::new();
        let process = self.spawn(&place);
        Agent { process, place }
    }

    /// Starts it and waits until it answers.
    pub(crate) async fn ready(self) -> Agent {
        let mut agent = self.start();
        agent.becomes_ready().await;
        agent
    }

    /// The whole command, for an agent at this place.
    fn command(&self, place: &Place) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_haplane"));
        command
            .arg("agent")
            .args(&self.flags)
            .env_clear()
            .env("HAPLANE_STORE", &self.store)
            .env("HAPLANE_NODE", "lb-01")
            .env("HAPLANE_LISTEN", place.checks.address().to_string())
            .env("HAPLANE_HTTP_LISTEN", place.http.address().to_string())
            .envs(self.variables.iter().cloned());
        command
    }

    fn spawn(&self, place: &Place) -> Process {
        Process::spawn("haplane agent", self.command(place), &place.log())
    }
}

/// What stays over restarts.
#[derive(Debug)]
struct Place {
    checks: Port,
    http: Port,
    dir: TempDir,
}

impl Place {
    fn new() -> Self {
        Self {
            checks: Port::reserve(),
            http: Port::reserve(),
            dir: tempfile::tempdir().expect("a temporary folder"),
        }
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("agent.log")
    }
}

/// A running agent. It keeps its ports and its folder over restarts; dropping it kills it.
#[derive(Debug)]
pub(crate) struct Agent {
    process: Process,
    place: Place,
}

impl Agent {
    /// Where HAProxy asks.
    pub(crate) fn checks(&self) -> SocketAddr {
        self.place.checks.address()
    }

    /// Where people ask.
    pub(crate) fn http(&self) -> SocketAddr {
        self.place.http.address()
    }

    /// A folder that lasts as long as the agent.
    pub(crate) fn dir(&self) -> &Path {
        self.place.dir.path()
    }

    pub(crate) fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// All that it wrote, in all its lives.
    pub(crate) fn log(&self) -> String {
        self.process.log()
    }

    /// Kills it (SIGKILL) and starts one in its place; waits for nothing.
    pub(crate) fn replace(&mut self, launch: &Launch) {
        self.process.kill();
        self.process = launch.spawn(&self.place);
    }

    /// Asks a page.
    pub(crate) async fn page(&self, path: &str) -> io::Result<Response> {
        Request::get(path).send(&self.http().into()).await
    }

    /// The JSON of a page that must be there.
    pub(crate) async fn json(&self, path: &str) -> Value {
        self.page(path)
            .await
            .unwrap_or_else(|error| panic!("{path}: {error}"))
            .ok()
            .json()
    }

    /// The value of one series of `/metrics`, named as it stands there.
    pub(crate) async fn metric(&self, series: &str) -> f64 {
        let page = self
            .page("/metrics")
            .await
            .expect("the metrics")
            .ok()
            .text();
        metric(&page, series).unwrap_or_else(|| panic!("no {series} in {page}"))
    }

    /// Asks as HAProxy does; the line without its end.
    pub(crate) async fn ask(&self, words: &str) -> io::Result<String> {
        let line = agent_peer::ask(self.checks(), format!("{words}\n").as_bytes()).await?;
        Ok(String::from_utf8(line)
            .expect("an answer in UTF-8")
            .trim_end()
            .to_owned())
    }

    /// Waits until it answers this to these words.
    pub(crate) async fn answers(&self, words: &str, answer: &str) {
        let what = format!("{words:?} answered {answer:?}");
        eventually(&what, PATIENCE, async || match self.ask(words).await {
            Ok(line) if line == answer => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await;
    }

    /// Waits until it says that it is ready.
    pub(crate) async fn becomes_ready(&mut self) {
        eventually("a ready agent", PATIENCE, async || {
            if let Some(status) = self.process.exited() {
                panic!("the agent ended ({status})");
            }
            match self.page("/readyz").await {
                Ok(answer) if answer.text() == "ready\n" => {}
                Ok(answer) => return Err(answer.text()),
                Err(error) => return Err(error.to_string()),
            }
            // Ready is said when there is a snapshot, which is just before the port listens.
            let connected = TcpStream::connect(self.checks()).await;
            connected.map(drop).map_err(|error| error.to_string())
        })
        .await;
    }
}

/// The value of one series on a page of metrics.
pub(crate) fn metric(page: &str, series: &str) -> Option<f64> {
    page.lines()
        .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))
        .map(|value| value.parse().expect("a number"))
}
