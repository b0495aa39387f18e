//! An agent's life as its supervisor sees it: start, readiness, signals, end.

use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use haplane_testkit::consul::{Consul, Options};
use haplane_testkit::eventually::eventually;
use haplane_testkit::process::Signal;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::agent_process::{Agent, Launch, PATIENCE};

async fn ready_consul() -> Consul {
    let consul = Consul::start(Options::new()).await;
    consul.put("haplane/state/.haplane", "").await;
    consul
}

/// Its exit status.
async fn ends(agent: &mut Agent) -> Option<i32> {
    agent.process().exit(PATIENCE).await.code()
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_first_snapshot_in_time_it_ends_with_5_and_the_reason() {
    let mut consul = ready_consul().await;
    consul.delete("haplane/state/.haplane").await;
    let launch = Launch::on_consul(&consul).flags(&["--sync-timeout", "1s"]);
    let mut uninitialised = launch.clone().start();
    assert_eq!(ends(&mut uninitialised).await, Some(5));
    let log = uninitialised.log();
    assert!(log.contains("haplane init"), "{log}");

    consul.kill();
    let mut alone = launch.start();
    assert_eq!(ends(&mut alone).await, Some(5));
    let log = alone.log();
    assert!(
        log.contains("no snapshot of the store within 1s") && log.contains(&consul.url()),
        "{log}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_agent_on_a_port_ends_with_2_and_names_the_port() {
    let consul = ready_consul().await;
    let first = Launch::on_consul(&consul).ready().await;
    let (checks, http) = (first.checks().to_string(), first.http().to_string());
    for (flag, address, what) in [
        ("HAPLANE_LISTEN", &checks, "agent checks"),
        ("HAPLANE_HTTP_LISTEN", &http, "HTTP"),
    ] {
        let mut second = Launch::on_consul(&consul).with(flag, address).start();
        assert_eq!(ends(&mut second).await, Some(2));
        let log = second.log();
        assert!(
            log.contains(&format!("cannot bind {address} for {what}"))
                && log.contains("another agent"),
            "{log}"
        );
    }
    assert_eq!(first.ask("web/a").await.unwrap(), "ready 100%");
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_ends_it_with_0_whoever_is_connected() {
    let consul = ready_consul().await;
    for signal in [Signal::TERM, Signal::INT] {
        let mut agent = Launch::on_consul(&consul).ready().await;
        let mut silent = Vec::new();
        for _ in 0..20 {
            let mut stream = TcpStream::connect(agent.checks()).await.unwrap();
            stream.write_all(b"web/").await.unwrap();
            silent.push(stream);
            silent.push(TcpStream::connect(agent.http()).await.unwrap());
        }
        let told = Instant::now();
        agent.process().signal(signal);
        assert_eq!(ends(&mut agent).await, Some(0), "{signal:?}");
        assert!(
            told.elapsed() < Duration::from_secs(5),
            "{:?}",
            told.elapsed()
        );
    }
    // Also while it waits for its first snapshot.
    let frozen = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let store = format!("consul:http://{}", frozen.local_addr().unwrap());
    let mut waiting = Launch::on(store).start();
    let asked = frozen.accept().await.unwrap();
    waiting.process().signal(Signal::TERM);
    assert_eq!(ends(&mut waiting).await, Some(0));
    drop(asked);
}

/// A pipe that nobody writes to, a folder on a server that is gone: the kernel does not give back who
/// reads there.
#[tokio::test(flavor = "multi_thread")]
async fn sigterm_ends_it_also_when_a_file_hangs() {
    let consul = ready_consul().await;
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("token");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let mut agent = Launch::on_consul(&consul)
        .with("CONSUL_HTTP_TOKEN_FILE", pipe.to_str().unwrap())
        .start();
    eventually("the agent waits", PATIENCE, async || {
        agent.page("/readyz").await.map(drop)
    })
    .await;
    let told = Instant::now();
    agent.process().signal(Signal::TERM);
    assert_eq!(ends(&mut agent).await, Some(0));
    assert!(
        told.elapsed() < Duration::from_secs(5),
        "{:?}",
        told.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn sighup_reads_the_token_again() {
    let consul = Consul::start(Options::new().acl()).await;
    consul.put("haplane/state/.haplane", "").await;
    consul.put("haplane/state/canary", "drain").await;
    let rules = r#"key_prefix "haplane/state/" { policy = "read" }"#;
    consul.set_policy("reader", rules).await;
    let (old, new) = (
        consul.create_token(&["reader"]).await,
        consul.create_token(&["reader"]).await,
    );
    let folder = tempfile::tempdir().unwrap();
    let (file, config) = (
        folder.path().join("token"),
        folder.path().join("haplane.toml"),
    );
    std::fs::write(&file, &old.secret).unwrap();
    std::fs::write(&config, format!("[consul]\ntoken_file = {file:?}\n")).unwrap();
    let mut agent = Launch::on_consul(&consul)
        .flags(&["--config", config.to_str().unwrap()])
        .ready()
        .await;
    agent.answers("web/a canary", "drain").await;

    std::fs::write(&file, &new.secret).unwrap();
    agent.process().signal(Signal::HUP);
    eventually("the signal heard", PATIENCE, async || {
        let log = agent.log();
        if log.contains("reading token and certificates again") {
            Ok(())
        } else {
            Err(log)
        }
    })
    .await;
    consul.delete_token(&old).await;
    consul.put("haplane/state/canary", "maint").await;
    agent.answers("web/a canary", "maint").await;
    let guard = agent.json("/v1/node").await["store"]["guard"].clone();
    assert!(guard.is_null(), "the new token is in use: {guard}");
}

/// The socket that systemd gives a service, and what arrived on it.
struct Supervisor {
    socket: UnixDatagram,
    folder: tempfile::TempDir,
    said: Vec<String>,
}

impl Supervisor {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self {
            socket,
            folder,
            said: Vec::new(),
        }
    }

    fn path(&self) -> String {
        self.folder
            .path()
            .join("notify")
            .to_str()
            .unwrap()
            .to_owned()
    }

    /// All lines so far.
    fn heard(&mut self) -> &[String] {
        let mut buffer = [0; 4096];
        while let Ok(read) = self.socket.recv(&mut buffer) {
            let text = String::from_utf8_lossy(&buffer[..read]);
            self.said.extend(text.lines().map(str::to_owned));
        }
        &self.said
    }

    /// Waits until a line was heard this often.
    async fn hears(&mut self, line: &str, times: usize) {
        eventually(&format!("{line} {times} times"), PATIENCE, async || {
            let heard = self.heard();
            if heard.iter().filter(|said| *said == line).count() >= times {
                Ok(())
            } else {
                Err(heard.to_vec())
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn systemd_is_told_ready_when_it_answers_then_alive_then_stopping() {
    let mut consul = ready_consul().await;
    let mut systemd = Supervisor::new();
    consul.freeze().await;
    let mut agent = Launch::on_consul(&consul)
        .with("NOTIFY_SOCKET", &systemd.path())
        .with("WATCHDOG_USEC", "400000")
        .start();
    eventually("the agent waits", PATIENCE, async || {
        agent.page("/readyz").await.map(drop)
    })
    .await;
    assert!(systemd.heard().is_empty(), "nothing to say yet");

    consul.thaw();
    systemd.hears("READY=1", 1).await;
    assert_eq!(
        agent.ask("web/a").await.unwrap(),
        "ready 100%",
        "ready means it answers"
    );
    systemd.hears("WATCHDOG=1", 3).await;

    agent.process().signal(Signal::TERM);
    systemd.hears("STOPPING=1", 1).await;
    assert_eq!(ends(&mut agent).await, Some(0));
    let ready = systemd
        .heard()
        .iter()
        .filter(|line| *line == "READY=1")
        .count();
    assert_eq!(ready, 1, "said once");
}
