//! A real Consul agent: server or client, in a folder of its own.

mod access;
mod cluster;
mod requests;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

pub use access::{MANAGEMENT_TOKEN, Token};
pub use cluster::Cluster;
pub use requests::Entry;

use crate::authority::{Authority, Certificate};
use crate::eventually::eventually;
use crate::http::{Request, Target};
use crate::peers::Peer;
use crate::ports::Port;
use crate::process::{Process, Signal};

/// How long Consul may take until it has a leader.
const PATIENCE: Duration = Duration::from_secs(20);

/// What kind of Consul to start.
#[derive(Debug, Default)]
pub struct Options {
    access: Access,
    https: Option<Https>,
    unix: bool,
    max_connections: Option<u32>,
    role: Role,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Access {
    #[default]
    Open,
    /// ACL with default policy deny.
    Denied,
    /// The same, and reading a list of keys without the right to is 403, not 404.
    DeniedLoudly,
}

#[derive(Debug)]
struct Https {
    authority: PathBuf,
    server: Certificate,
}

#[derive(Clone, Debug, Default)]
enum Role {
    #[default]
    OnlyServer,
    ServerOf {
        members: Vec<SocketAddr>,
    },
    Client {
        members: Vec<SocketAddr>,
    },
}

impl Options {
    /// One server, open to everybody, HTTP on a loopback port.
    pub fn new() -> Self {
        Self::default()
    }

    /// ACL on, default policy deny. The kit's own requests use [`MANAGEMENT_TOKEN`].
    #[must_use]
    pub fn acl(mut self) -> Self {
        self.access = Access::Denied;
        self
    }

    /// As [`Self::acl`], with `enable_key_list_policy`: then listing keys without the
    /// right to is refused with 403.
    #[must_use]
    pub fn acl_with_list_policy(mut self) -> Self {
        self.access = Access::DeniedLoudly;
        self
    }

    /// HTTPS, beside HTTP, on a port of its own; it demands a certificate of this authority
    /// from every client. The server's is for `localhost` and `127.0.0.1`.
    #[must_use]
    pub fn https(mut self, authority: &Authority) -> Self {
        let server = authority.server(&["localhost", "127.0.0.1", "server.dc1.consul"]);
        self.https = Some(Https {
            authority: authority.file(),
            server,
        });
        self
    }

    /// HTTP on a unix socket instead of a port.
    #[must_use]
    pub fn unix_socket(mut self) -> Self {
        self.unix = true;
        self
    }

    /// `http_max_conns_per_client`: the next connection of one client is reset.
    #[must_use]
    pub fn max_connections(mut self, most: u32) -> Self {
        self.max_connections = Some(most);
        self
    }
}

/// A Consul agent. It keeps its ports and its folder over kills and restarts; dropping it
/// ends it.
#[derive(Debug)]
pub struct Consul {
    options: Options,
    ports: Ports,
    process: Option<Process>,
    dir: TempDir,
}

#[derive(Debug)]
struct Ports {
    http: Port,
    https: Port,
    serf: Port,
    rpc: Port,
}

impl Consul {
    /// Starts it and waits until it has a leader and answers consistent reads.
    pub async fn start(options: Options) -> Self {
        let mut consul = Self::prepare(options);
        consul.launch();
        consul.ready().await;
        consul
    }

    fn prepare(options: Options) -> Self {
        let ports = Ports {
            http: Port::reserve(),
            https: Port::reserve(),
            serf: Port::reserve(),
            rpc: Port::reserve(),
        };
        // Short, because a unix socket's path has at most 107 bytes.
        let dir = tempfile::Builder::new()
            .prefix("co")
            .tempdir_in("/tmp")
            .expect("a temporary folder");
        Self {
            options,
            ports,
            process: None,
            dir,
        }
    }

    /// Starts the process and does not wait for anything: to watch what it says while it starts.
    pub fn launch(&mut self) {
        let file = self.dir.path().join("consul.json");
        std::fs::write(&file, self.configuration().to_string()).expect("to write consul.json");
        let mut command = Command::new(Peer::Consul.program());
        command.arg("agent").arg("-config-file").arg(file);
        // Consul's own variables belong to the program under test.
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CONSUL_"))
        {
            command.env_remove(name);
        }
        self.process = Some(Process::spawn(
            "Consul",
            command,
            &self.dir.path().join("consul.log"),
        ));
    }

    /// Waits until it answers consistent reads.
    pub async fn ready(&mut self) {
        eventually("Consul with a leader", PATIENCE, async || {
            let process = self.process.as_mut().expect("a Consul that was started");
            if let Some(status) = process.exited() {
                panic!("Consul ended ({status}): {}", process.log());
            }
            let answer = self.request(Request::get("/v1/kv/ready?consistent")).await;
            match answer {
                Ok(answer) if matches!(answer.status, 200 | 404) => Ok(()),
                Ok(answer) => Err(answer.text()),
                Err(error) => Err(error.to_string()),
            }
        })
        .await;
    }

    /// Ends it at once (kill -9).
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Ends it as its service manager would (SIGTERM), and waits for the end.
    pub async fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.signal(Signal::TERM);
            process.exit(PATIENCE).await;
        }
    }

    /// Kills it and starts it with the data it had.
    pub async fn restart(&mut self) {
        self.kill();
        self.launch();
        self.ready().await;
    }

    /// Kills it and starts it without any data, as a new cluster.
    pub async fn restart_empty(&mut self) {
        self.kill();
        self.remove_data();
        self.launch();
        self.ready().await;
    }

    /// Removes the data of a Consul that was killed or stopped.
    pub fn remove_data(&mut self) {
        assert!(self.process.is_none(), "Consul still runs");
        std::fs::remove_dir_all(self.data()).expect("to remove Consul's data");
    }

    /// Freezes it (SIGSTOP): its ports stay open, nothing answers.
    pub async fn freeze(&mut self) {
        self.process
            .as_mut()
            .expect("a running Consul")
            .freeze()
            .await;
    }

    /// Ends [`Self::freeze`].
    pub fn thaw(&mut self) {
        self.process.as_mut().expect("a running Consul").thaw();
    }

    /// Where its HTTP interface listens, for the kit's requests.
    pub fn target(&self) -> Target {
        if self.options.unix {
            Target::Unix(self.socket())
        } else {
            self.address().into()
        }
    }

    /// Where HTTP listens. Panics for one with a unix socket.
    pub fn address(&self) -> SocketAddr {
        assert!(!self.options.unix, "this Consul listens on a unix socket");
        self.ports.http.address()
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// `https://localhost:PORT`. Panics without [`Options::https`].
    pub fn https_url(&self) -> String {
        assert!(self.options.https.is_some(), "this Consul has no HTTPS");
        format!("https://localhost:{}", self.ports.https)
    }

    /// The unix socket of one with [`Options::unix_socket`].
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("http.sock")
    }

    /// What it logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("consul.log")).unwrap_or_default()
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn configuration(&self) -> Value {
        let mut configuration = json!({
            "node_name": format!("node-{}", self.ports.serf),
            "data_dir": self.data(),
            "bind_addr": "127.0.0.1",
            "client_addr": "127.0.0.1",
            "ports": {
                "http": self.ports.http.number(),
                "https": if self.options.https.is_some() { i32::from(self.ports.https.number()) } else { -1 },
                "dns": -1, "grpc": -1, "serf_wan": -1,
                "serf_lan": self.ports.serf.number(),
                "server": self.ports.rpc.number(),
            },
            "performance": { "raft_multiplier": 1 },
            "retry_interval": "200ms",
            "disable_update_check": true,
            "skip_leave_on_interrupt": true,
            "leave_on_terminate": false,
            "log_level": "INFO",
        });
        let settings = configuration.as_object_mut().unwrap();
        let mut set = |name: &str, value: Value| settings.insert(name.to_owned(), value);
        match &self.options.role {
            Role::OnlyServer => {
                set("server", true.into());
                set("bootstrap", true.into());
            }
            Role::ServerOf { members } => {
                set("server", true.into());
                set("bootstrap_expect", members.len().into());
                set("retry_join", join(members));
            }
            Role::Client { members } => {
                set("retry_join", join(members));
            }
        }
        if self.options.access != Access::Open {
            let loudly = self.options.access == Access::DeniedLoudly;
            let tokens = json!({ "master": MANAGEMENT_TOKEN, "agent": MANAGEMENT_TOKEN });
            // The down policy is Consul's default.
            let acl = json!({
                "enabled": true, "default_policy": "deny", "enable_key_list_policy": loudly, "tokens": tokens,
            });
            set("acl", acl);
        }
        if let Some(https) = &self.options.https {
            set("verify_incoming_https", true.into());
            set("ca_file", path(&https.authority));
            set("cert_file", path(&https.server.certificate));
            set("key_file", path(&https.server.key));
        }
        if self.options.unix {
            set(
                "addresses",
                json!({ "http": format!("unix://{}", self.socket().display()) }),
            );
        }
        if let Some(most) = self.options.max_connections {
            set("limits", json!({ "http_max_conns_per_client": most }));
        }
        configuration
    }
}

fn join(members: &[SocketAddr]) -> Value {
    members.iter().map(ToString::to_string).collect()
}

fn path(path: &Path) -> Value {
    path.to_str().expect("a path in UTF-8").into()
}
