//! A real HAProxy in a folder of its own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::eventually::eventually;
use crate::peers::Peer;
use crate::process::{Process, Signal};
use crate::records::{self, Record};

/// How long HAProxy may take to start, reload or end on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long one reply of it may take.
const REPLY: Duration = Duration::from_secs(5);

/// Which HAProxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// 2.6
    V26,
    /// 2.8
    V28,
}

impl Version {
    /// Every version that haplane is tested with.
    pub const ALL: [Self; 2] = [Self::V28, Self::V26];

    /// The same on all of them, at the same time: most of such a test is waiting.
    pub async fn each(case: impl AsyncFn(Self)) {
        let [newer, older] = Self::ALL;
        tokio::join!(case(newer), case(older));
    }

    fn peer(self) -> Peer {
        match self {
            Self::V26 => Peer::Haproxy26,
            Self::V28 => Peer::Haproxy28,
        }
    }
}

/// A configuration. The kit writes the sockets into `global`; the rest is the test's.
///
/// In every text `{dir}` stands for HAProxy's folder.
#[derive(Clone, Debug, Default)]
pub struct Config {
    global: String,
    sections: String,
    mode: Mode,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mode {
    #[default]
    OneProcess,
    MasterWorker,
}

impl Config {
    /// A configuration with these sections (`defaults`, `frontend`, `backend`, …).
    pub fn new(sections: &str) -> Self {
        Self {
            sections: sections.to_owned(),
            ..Self::default()
        }
    }

    /// Adds lines to `global`.
    #[must_use]
    pub fn global(mut self, lines: &str) -> Self {
        self.global += lines;
        self.global += "\n";
        self
    }

    /// Runs it with a master process and its socket.
    #[must_use]
    pub fn master_worker(mut self) -> Self {
        self.mode = Mode::MasterWorker;
        self
    }

    /// The file's text for HAProxy's folder `dir`.
    fn text(&self, dir: &Path) -> String {
        format!(
            "global\n\
             stats socket {{dir}}/admin.sock mode 600 level admin expose-fd listeners\n\
             stats socket {{dir}}/user.sock mode 600 level user\n\
             {}\n{}\n",
            self.global, self.sections
        )
        .replace("{dir}", dir.to_str().expect("a folder's name in UTF-8"))
    }
}

/// A running HAProxy. Dropping it ends all its processes.
#[derive(Debug)]
pub struct Haproxy {
    version: Version,
    config: Config,
    current: Process,
    /// Processes that were told to finish by a reload.
    finishing: Vec<Process>,
    dir: TempDir,
}

impl Haproxy {
    /// Starts HAProxy and waits until it answers on its socket.
    pub async fn start(version: Version, config: Config) -> Self {
        // Short, because a unix socket's path has at most 107 bytes.
        let dir = tempfile::Builder::new()
            .prefix("hp")
            .tempdir_in("/tmp")
            .expect("a temporary folder");
        let current = launch(version, &config, dir.path(), &[]);
        let mut started = Self {
            version,
            config,
            current,
            finishing: Vec::new(),
            dir,
        };
        started.wait_for(None).await;
        started
    }

    /// What HAProxy says of a configuration (`haproxy -c`): its messages, as `Err` if it refuses.
    pub fn check(version: Version, config: &Config) -> Result<String, String> {
        let dir = tempfile::Builder::new()
            .prefix("hp")
            .tempdir_in("/tmp")
            .expect("a temporary folder");
        let file = write(config, dir.path());
        let said = Command::new(version.peer().program())
            .arg("-c")
            .arg("-f")
            .arg(file)
            .output()
            .expect("to run haproxy");
        let text = String::from_utf8_lossy(&said.stderr).into_owned()
            + &String::from_utf8_lossy(&said.stdout);
        if said.status.success() {
            Ok(text)
        } else {
            Err(text)
        }
    }

    /// Which HAProxy it is.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Its folder; `{dir}` in a configuration.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The socket with level admin.
    pub fn admin_socket(&self) -> PathBuf {
        self.dir().join("admin.sock")
    }

    /// The socket with level user.
    pub fn user_socket(&self) -> PathBuf {
        self.dir().join("user.sock")
    }

    /// The process id of the process that serves, as it reports it itself.
    pub async fn pid(&self) -> u32 {
        self.info().await.get("Pid").parse().expect("a pid")
    }

    /// Everything its processes wrote to standard error.
    pub fn log(&self) -> String {
        self.current.log()
    }

    /// Sends one command on the admin socket and returns the whole reply.
    pub async fn command(&self, command: &str) -> String {
        one_command(&self.admin_socket(), command)
            .await
            .unwrap_or_else(|error| panic!("command {command:?} to HAProxy: {error}"))
    }

    /// `show info`.
    pub async fn info(&self) -> Record {
        records::info(&self.command("show info").await)
    }

    /// All rows of `show servers state`.
    pub async fn servers(&self) -> Vec<Record> {
        records::servers_state(&self.command("show servers state").await)
    }

    /// The row of `backend/server` in `show servers state`.
    pub async fn server(&self, row: &str) -> Record {
        let (backend, server) = split_row(row);
        let is_it =
            |record: &Record| record.get("be_name") == backend && record.get("srv_name") == server;
        self.servers()
            .await
            .into_iter()
            .find(is_it)
            .unwrap_or_else(|| panic!("HAProxy has no server {row}"))
    }

    /// The row of `backend/server` in `show stat`. `backend/BACKEND` and `frontend/FRONTEND` are rows too.
    pub async fn stat(&self, row: &str) -> Record {
        let (proxy, name) = split_row(row);
        let is_it = |record: &Record| record.get("pxname") == proxy && record.get("svname") == name;
        let rows = records::stat(&self.command("show stat").await);
        rows.into_iter()
            .find(is_it)
            .unwrap_or_else(|| panic!("HAProxy has no statistics of {row}"))
    }

    /// Writes `show servers state` into the file `name` of its folder, as people do before a reload.
    pub async fn save_state(&self, name: &str) -> PathBuf {
        let file = self.dir().join(name);
        std::fs::write(&file, self.command("show servers state").await)
            .expect("to write the state file");
        file
    }

    /// Reloads, with the configuration it has.
    pub async fn reload(&mut self) {
        self.reload_with(self.config.clone()).await;
    }

    /// Reloads with another configuration: a new process takes the sockets over (`-x`) and
    /// tells the old one to finish (`-sf`); with a master process, by `reload` on its socket.
    /// Returns when the new process answers.
    pub async fn reload_with(&mut self, config: Config) {
        assert_eq!(
            self.config.mode, config.mode,
            "a reload cannot change the mode"
        );
        let before = self.pid().await;
        self.config = config;
        match self.config.mode {
            Mode::MasterWorker => {
                write(&self.config, self.dir());
                self.master_command("reload").await;
            }
            Mode::OneProcess => {
                let socket = self.admin_socket();
                let takeover = ["-x", socket.to_str().unwrap(), "-sf", &before.to_string()];
                let new = launch(self.version, &self.config, self.dir.path(), &takeover);
                self.finishing
                    .push(std::mem::replace(&mut self.current, new));
            }
        }
        self.wait_for(Some(before)).await;
        self.finishing
            .retain_mut(|process| process.exited().is_none());
    }

    /// Sends one command to the master process. Panics if there is none.
    pub async fn master_command(&self, command: &str) -> String {
        assert_eq!(
            self.config.mode,
            Mode::MasterWorker,
            "no master process: see Config::master_worker"
        );
        one_command(&self.dir().join("master.sock"), command)
            .await
            .expect("the master's socket")
    }

    /// Processes of earlier reloads that still finish their connections.
    pub fn finishing(&mut self) -> usize {
        self.finishing
            .retain_mut(|process| process.exited().is_none());
        self.finishing.len()
    }

    /// The process itself (the master, if there is one): to freeze it or to send it a signal.
    pub fn process(&mut self) -> &mut Process {
        &mut self.current
    }

    /// Ends it at once, as a crash would.
    pub async fn kill(&mut self) {
        // A worker outlives a killed master for a moment: it is ours to end, too.
        if self.config.mode == Mode::MasterWorker && self.current.exited().is_none() {
            self.current.signal(Signal::TERM);
            self.current.exit(PATIENCE).await;
        }
        self.current.kill();
    }

    /// Starts it again after [`Self::kill`], or instead of the one that runs: nothing of
    /// its run-time state is left.
    pub async fn restart(&mut self) {
        self.kill().await;
        self.current = launch(self.version, &self.config, self.dir.path(), &[]);
        self.wait_for(None).await;
    }

    /// Waits until a process other than `before` answers, and its master, if any, too.
    async fn wait_for(&mut self, before: Option<u32>) {
        let socket = self.admin_socket();
        let master =
            (self.config.mode == Mode::MasterWorker).then(|| self.dir().join("master.sock"));
        eventually("HAProxy answering on its socket", PATIENCE, async || {
            if let Some(status) = self.current.exited() {
                panic!("HAProxy ended ({status}): {}", self.current.log());
            }
            let said = one_command(&socket, "show info")
                .await
                .map_err(|error| error.to_string())?;
            if let Some(master) = &master {
                one_command(master, "show proc")
                    .await
                    .map_err(|error| error.to_string())?;
            }
            match records::info(&said)
                .find("Pid")
                .and_then(|pid| pid.parse::<u32>().ok())
            {
                Some(pid) if Some(pid) != before => Ok(()),
                other => Err(format!("pid {other:?}")),
            }
        })
        .await;
    }
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        // A master that is killed cannot end its worker: ask it first.
        if self.config.mode == Mode::MasterWorker {
            self.current.signal(Signal::TERM);
            for _ in 0..200 {
                if self.current.exited().is_some() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

/// Sends one command on a Runtime API socket, and reads until HAProxy closes.
pub async fn one_command(socket: &Path, command: &str) -> std::io::Result<String> {
    let exchange = async {
        let mut stream = UnixStream::connect(socket).await?;
        stream.write_all(format!("{command}\n").as_bytes()).await?;
        // A worker closes after one command by itself, a master only when we have done so.
        stream.shutdown().await?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await?;
        Ok(reply)
    };
    tokio::time::timeout(REPLY, exchange).await?
}

fn split_row(row: &str) -> (&str, &str) {
    row.split_once('/')
        .unwrap_or_else(|| panic!("not backend/server: {row}"))
}

fn write(config: &Config, dir: &Path) -> PathBuf {
    let file = dir.join("haproxy.cfg");
    std::fs::write(&file, config.text(dir)).expect("to write haproxy.cfg");
    file
}

fn launch(version: Version, config: &Config, dir: &Path, arguments: &[&str]) -> Process {
    let mut command = Command::new(version.peer().program());
    command.arg("-f").arg(write(config, dir));
    match config.mode {
        Mode::OneProcess => command.arg("-db"),
        Mode::MasterWorker => command.arg("-W").arg("-S").arg(dir.join("master.sock")),
    };
    command.args(arguments);
    Process::spawn("HAProxy", command, &dir.join("haproxy.log"))
}
