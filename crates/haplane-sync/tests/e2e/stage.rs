//! HAProxy with slots, a source, a synchroniser, and origins to be found.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use haplane_daemon::{Document, Settings};
use haplane_sync::{SyncError, SyncSettings};
use haplane_testkit::agent_peer::{RecordingAgent, Say};
use haplane_testkit::eventually::eventually;
use haplane_testkit::haproxy::{Config, Haproxy, Version};
use haplane_testkit::http::{Request, Target};
use haplane_testkit::origin::Origin;
use haplane_testkit::ports::Port;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// What the slots of a stage are like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slots {
    pub(super) count: usize,
    /// Their health check, e.g. `check inter 100ms`.
    pub(super) check: &'static str,
    /// The port of their agent, if they are enrolled.
    pub(super) agent: Option<u16>,
}

impl Slots {
    pub(super) const fn plain(count: usize) -> Self {
        Self {
            count,
            check: "",
            agent: None,
        }
    }

    /// With a health check, e.g. `check inter 100ms`.
    pub(super) const fn checked(count: usize, check: &'static str) -> Self {
        Self {
            check,
            ..Self::plain(count)
        }
    }

    /// Enrolled with this agent.
    pub(super) fn asking(self, agent: &RecordingAgent) -> Self {
        Self {
            agent: Some(agent.address().port()),
            ..self
        }
    }

    /// The configuration: a frontend on `frontend` and a backend `web` with these slots.
    pub(super) fn config(self, frontend: u16) -> Config {
        let agent = self.agent.map(|port| {
            format!("agent-check agent-addr 127.0.0.1 agent-port {port} agent-inter 200ms agent-send \"@free\\n\"")
        });
        Config::new(&format!(
            "defaults\n mode http\n timeout connect 1s\n timeout client 10s\n timeout server 10s\n timeout check 5s\n retries 0\n\
             frontend in\n bind 127.0.0.1:{frontend}\n default_backend web\n\
             backend web\n balance roundrobin\n option httpchk GET /health\n\
             server-template web- 1-{} 127.0.0.1:1 {} disabled weight 100 {}\n",
            self.count,
            self.check,
            agent.unwrap_or_default()
        ))
    }
}

pub(super) struct Stage {
    pub(super) haproxy: Haproxy,
    pub(super) frontend: Port,
    pub(super) dir: tempfile::TempDir,
    http: Port,
    running: Option<Running>,
}

struct Running {
    stop: CancellationToken,
    task: JoinHandle<Result<(), SyncError>>,
}

/// A synchroniser's settings from the text of a file.
pub(super) fn settings(text: &str) -> SyncSettings {
    let document = Document::parse("test.toml", text, Vec::new());
    let settings = Settings::read(&document, |_| None);
    let sync = settings
        .as_ref()
        .and_then(|settings| SyncSettings::read(&document, settings));
    document.finish().unwrap_or_else(|error| panic!("{error}"));
    sync.unwrap()
}

/// Instances `i0`, `i1`, …
pub(super) fn origins(count: usize) -> Vec<Origin> {
    (0..count)
        .map(|n| Origin::start(&format!("i{n}")))
        .collect()
}

pub(super) fn refs(origins: &[Origin]) -> Vec<&Origin> {
    origins.iter().collect()
}

/// An agent that has everybody ready, and free slots in maintenance.
pub(super) fn responder() -> RecordingAgent {
    let agent = RecordingAgent::start(Say::Text("ready 100%\n".into()));
    agent.say("@free", Say::Text("maint\n".into()));
    agent
}

/// `socket = […]` for all of these.
pub(super) fn sockets(all: &[&Haproxy]) -> String {
    let sockets: Vec<_> = all
        .iter()
        .map(|haproxy| format!("\"{}\"", haproxy.admin_socket().display()))
        .collect();
    format!("socket = [{}]", sockets.join(", "))
}

/// So many of the slots of a process are in rotation.
pub(super) async fn serves_so_many(haproxy: &Haproxy, count: usize) {
    eventually("slots are in rotation", PATIENCE, || async {
        let seen = in_rotation(haproxy).await;
        if seen.len() == count {
            Ok(())
        } else {
            Err((seen, count))
        }
    })
    .await;
}

/// A line for each origin.
pub(super) fn host_list(origins: &[&Origin]) -> String {
    let mut text = String::new();
    for origin in origins {
        writeln!(text, "{} id={}", origin.address(), origin.name()).unwrap();
    }
    text
}

impl Stage {
    pub(super) async fn new(version: Version, slots: Slots) -> Self {
        let frontend = Port::reserve();
        let haproxy = Haproxy::start(version, slots.config(frontend.number())).await;
        Self {
            haproxy,
            frontend,
            dir: tempfile::tempdir().unwrap(),
            http: Port::reserve(),
            running: None,
        }
    }

    pub(super) fn hosts_file(&self) -> PathBuf {
        self.dir.path().join("web.hosts")
    }

    /// Replaces the host list as a template tool does.
    pub(super) fn write_hosts(&self, text: &str) {
        let next = self.dir.path().join("web.hosts.next");
        std::fs::write(&next, text).unwrap();
        std::fs::rename(next, self.hosts_file()).unwrap();
    }

    pub(super) fn list(&self, origins: &[&Origin]) {
        self.write_hosts(&host_list(origins));
    }

    /// The configuration of a synchroniser of this HAProxy, with more keys for `[sync]` and for its pool.
    pub(super) fn toml(&self, sync: &str, pool: &str) -> String {
        let source = format!("source = \"file:{}\"", self.hosts_file().display());
        let source = if pool.contains("source =") {
            ""
        } else {
            source.as_str()
        };
        let slots = if pool.contains("slots =") {
            ""
        } else {
            "slots = \"web-\""
        };
        let agent = if sync.contains("agent =") {
            ""
        } else {
            "agent = \"\""
        };
        let socket = format!("socket = \"{}\"", self.haproxy.admin_socket().display());
        let socket = if sync.contains("socket =") {
            ""
        } else {
            socket.as_str()
        };
        format!(
            "[sync]\n{socket}\nhttp = \"{}\"\nreconcile = \"500ms\"\n{agent}\n{sync}\n\
             [[pool]]\nname = \"web\"\nbackend = \"web\"\n{slots}\n{source}\n{pool}\n",
            self.http.address()
        )
    }

    pub(super) fn start(&mut self, sync: &str, pool: &str) {
        self.start_with(&self.toml(sync, pool));
    }

    pub(super) fn start_with(&mut self, text: &str) {
        let settings = settings(text);
        let stop = CancellationToken::new();
        let task = tokio::spawn(haplane_sync::run(settings, "test", stop.clone()));
        self.running = Some(Running { stop, task });
    }

    pub(super) async fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            running.stop.cancel();
            running.task.await.unwrap().unwrap();
        }
    }

    /// All listed instances are in rotation and up.
    pub(super) async fn serves_up(&self, origins: &[&Origin]) {
        self.serves(origins).await;
        eventually("every instance in rotation is up", PATIENCE, || async {
            let servers = self.haproxy.servers().await;
            let down = servers
                .iter()
                .filter(|server| server.number("srv_admin_state") & 1 == 0)
                .filter(|server| server.number("srv_op_state") != 2)
                .map(|server| server.get("srv_name").to_owned())
                .collect::<Vec<_>>();
            if down.is_empty() { Ok(()) } else { Err(down) }
        })
        .await;
    }

    pub(super) async fn get(&self, path: &str) -> (u16, String) {
        let target = Target::Tcp(self.http.address());
        let response = eventually("the synchroniser's HTTP port", PATIENCE, || async {
            Request::get(path)
                .send(&target)
                .await
                .map_err(|error| error.kind())
        })
        .await;
        (response.status, response.text())
    }

    pub(super) async fn post(&self, path: &str, body: &str) -> (u16, String) {
        let response = Request {
            body: body.into(),
            ..Request::new("POST", path)
        }
        .send(&Target::Tcp(self.http.address()))
        .await
        .unwrap();
        (response.status, response.text())
    }

    /// Every pool is in line.
    pub(super) async fn is_ready(&self) {
        eventually("it is ready", PATIENCE, || async {
            let ready = self.get("/readyz").await;
            if ready.0 == 200 { Ok(()) } else { Err(ready) }
        })
        .await;
    }

    /// What is wrong with the first process, once the pages say it.
    pub(super) async fn process_error(&self) -> String {
        eventually("the pages say why", PATIENCE, || async {
            let pool = self.pool().await;
            pool["processes"][0]["error"]
                .as_str()
                .map(str::to_owned)
                .ok_or(pool)
        })
        .await
    }

    /// The first pool of `/v1/pools`.
    pub(super) async fn pool(&self) -> Value {
        let (_, text) = self.get("/v1/pools").await;
        serde_json::from_str::<Value>(&text).unwrap()[0].clone()
    }

    /// Addresses of the slots in rotation, sorted.
    pub(super) async fn in_rotation(&self) -> Vec<String> {
        in_rotation(&self.haproxy).await
    }

    pub(super) async fn serves(&self, origins: &[&Origin]) {
        let mut expected: Vec<_> = origins
            .iter()
            .map(|origin| origin.address().to_string())
            .collect();
        expected.sort();
        eventually(
            "the listed instances, and nobody else, in rotation",
            PATIENCE,
            || async {
                let seen = self.in_rotation().await;
                if seen == expected {
                    Ok(())
                } else {
                    Err((seen, expected.clone()))
                }
            },
        )
        .await;
    }
}

pub(super) async fn in_rotation(haproxy: &Haproxy) -> Vec<String> {
    let servers = haproxy.servers().await;
    let mut addresses: Vec<_> = servers
        .iter()
        .filter(|server| server.number("srv_admin_state") & 0b0010_0011 == 0)
        .map(|server| format!("{}:{}", server.get("srv_addr"), server.get("srv_port")))
        .collect();
    addresses.sort();
    addresses
}
