//! One question, one connection, one whole answer.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use haplane_haproxy::runtime_cmd::Marks;
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout_at};

/// Why there is no answer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SocketError {
    /// Nobody made this socket.
    #[error("there is no socket {}: is HAProxy running, and is this its `stats socket`?", path.display())]
    Absent {
        /// The socket.
        path: PathBuf,
    },
    /// The socket is left over from a process that is gone.
    #[error("nobody listens on {}: HAProxy is not running, or was started with another socket", path.display())]
    Refused {
        /// The socket.
        path: PathBuf,
    },
    /// The file's mode keeps us out.
    #[error("not allowed to open {}: see `mode`, `user` and `group` on its `stats socket` line", path.display())]
    NoAccess {
        /// The socket.
        path: PathBuf,
    },
    /// The socket's level is too low for this command.
    #[error("HAProxy denies `{command}` on {}: its `stats socket` line has too low a `level`", path.display())]
    Denied {
        /// The socket.
        path: PathBuf,
        /// The beginning of what was asked.
        command: String,
    },
    /// No whole answer in time.
    #[error(
        "{} gave no whole answer to `{command}` within {within:?}: HAProxy hangs, or all of its command connections \
         (10 by default) are taken", path.display()
    )]
    Hung {
        /// The socket.
        path: PathBuf,
        /// The beginning of what was asked.
        command: String,
        /// How long was waited.
        within: Duration,
    },
    /// The connection was closed before the end of the answer.
    #[error("{} closed the connection in the middle of its answer to `{command}`, after {bytes} bytes", path.display())]
    Incomplete {
        /// The socket.
        path: PathBuf,
        /// The beginning of what was asked.
        command: String,
        /// How much came.
        bytes: usize,
    },
    /// More than an answer can be.
    #[error("{} answers `{command}` with more than {limit} bytes", path.display())]
    TooLong {
        /// The socket.
        path: PathBuf,
        /// The beginning of what was asked.
        command: String,
        /// How much is read at most.
        limit: usize,
    },
    /// Anything else that the machine says.
    #[error("cannot talk to {}", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// What it says.
        #[source]
        source: io::Error,
    },
}

impl SocketError {
    /// One word for the kind of failure, for metrics and `/v1/node`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Absent { .. } => "absent",
            Self::Refused { .. } => "refused",
            Self::NoAccess { .. } => "no-access",
            Self::Denied { .. } => "denied",
            Self::Hung { .. } => "hung",
            Self::Incomplete { .. } => "incomplete",
            Self::TooLong { .. } => "too-long",
            Self::Io { .. } => "io",
        }
    }
}

/// The bounds of one question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From connecting to the end of the answer.
    pub within: Duration,
    /// The longest answer, in bytes: 10,000 rows of `show stat` are 5 MB.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            within: Duration::from_secs(3),
            bytes: 64 << 20,
        }
    }
}

/// Which process a socket leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    /// The socket's own.
    Own,
    /// The master itself, behind its own socket.
    Master,
    /// One worker behind a master's socket.
    Worker(u32),
}

/// A `stats socket` of one HAProxy process, or one worker behind the master's socket.
#[derive(Clone, Debug)]
pub struct Socket {
    path: PathBuf,
    route: Route,
    limits: Limits,
}

impl Socket {
    /// The process behind this `stats socket`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self::by(path, Route::Own)
    }

    /// The worker `pid` behind a master's socket (`haproxy -S`).
    pub fn worker(master: impl Into<PathBuf>, pid: u32) -> Self {
        Self::by(master, Route::Worker(pid))
    }

    /// The master behind its own socket.
    pub(crate) fn master(path: impl Into<PathBuf>) -> Self {
        Self::by(path, Route::Master)
    }

    fn by(path: impl Into<PathBuf>, route: Route) -> Self {
        Self {
            path: path.into(),
            route,
            limits: Limits::default(),
        }
    }

    /// The same socket with other bounds.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The whole answer to one command that only reads, with the empty line at its end.
    pub async fn ask(&self, command: &str) -> Result<String, SocketError> {
        let answer = self.exchange(&self.routed(command), command).await?;
        match answer.trim_end() {
            "Permission denied" => Err(SocketError::Denied {
                path: self.path.clone(),
                command: shorten(command),
            }),
            "" if answer.is_empty() => Err(self.incomplete(command, 0)),
            _ => Ok(answer),
        }
    }

    /// The answers to several commands that only read, one behind the other, all from one process.
    pub async fn ask_all(&self, commands: &[String]) -> Result<String, SocketError> {
        let line: Vec<_> = commands
            .iter()
            .map(|command| self.routed(command))
            .collect();
        let command = commands.first().map(String::as_str).unwrap_or_default();
        let answer = self.exchange(&line.join(";"), command).await?;
        if answer.is_empty() {
            return Err(self.incomplete(command, 0));
        }
        Ok(answer)
    }

    /// A command with the prefix that leads it to its process: through the master every command needs its own.
    pub(crate) fn routed(&self, command: &str) -> String {
        match self.route {
            Route::Own | Route::Master => command.to_owned(),
            Route::Worker(pid) => format!("@!{pid} {command}"),
        }
    }

    /// Through the master each command is a session of its own, so that severity marks cannot be switched on.
    pub(crate) fn marks(&self) -> Marks {
        match self.route {
            Route::Own => Marks::Severity,
            Route::Master | Route::Worker(_) => Marks::None,
        }
    }

    /// Sends one line and reads until HAProxy closes.
    pub(crate) async fn exchange(&self, line: &str, command: &str) -> Result<String, SocketError> {
        let Limits { within, bytes } = self.limits;
        let deadline = Instant::now() + within;
        let hung = |_| SocketError::Hung {
            path: self.path.clone(),
            command: shorten(command),
            within,
        };
        let io = |source| self.io(source);
        let mut stream = timeout_at(deadline, UnixStream::connect(&self.path))
            .await
            .map_err(hung)?
            .map_err(io)?;
        let talk = async {
            stream.write_all(line.as_bytes()).await?;
            stream.write_all(b"\n").await?;
            if self.route != Route::Own {
                // The master waits for more unless it is told that there is none (facts 7.4).
                stream.shutdown().await?;
            }
            read_to_end(&mut stream, bytes).await
        };
        match timeout_at(deadline, talk).await.map_err(hung)? {
            Ok(Read::Whole(answer)) => String::from_utf8(answer)
                .map_err(|error| self.io(io::Error::new(io::ErrorKind::InvalidData, error))),
            Ok(Read::TooLong) => Err(SocketError::TooLong {
                path: self.path.clone(),
                command: shorten(command),
                limit: bytes,
            }),
            Ok(Read::Broken(read)) => Err(self.incomplete(command, read)),
            Err(source) if is_broken(&source) => Err(self.incomplete(command, 0)),
            Err(source) => Err(self.io(source)),
        }
    }

    fn incomplete(&self, command: &str, bytes: usize) -> SocketError {
        SocketError::Incomplete {
            path: self.path.clone(),
            command: shorten(command),
            bytes,
        }
    }

    fn io(&self, source: io::Error) -> SocketError {
        let path = self.path.clone();
        match source.kind() {
            io::ErrorKind::NotFound => SocketError::Absent { path },
            io::ErrorKind::ConnectionRefused => SocketError::Refused { path },
            io::ErrorKind::PermissionDenied => SocketError::NoAccess { path },
            _ => SocketError::Io { path, source },
        }
    }
}

enum Read {
    Whole(Vec<u8>),
    TooLong,
    /// The connection broke after this many bytes.
    Broken(usize),
}

async fn read_to_end(stream: &mut UnixStream, most: usize) -> io::Result<Read> {
    let mut answer = Vec::with_capacity(16 << 10);
    loop {
        match stream.read_buf(&mut answer).await {
            Ok(0) => return Ok(Read::Whole(answer)),
            Ok(_) if answer.len() > most => return Ok(Read::TooLong),
            Ok(_) => {}
            Err(error) if is_broken(&error) => return Ok(Read::Broken(answer.len())),
            Err(error) => return Err(error),
        }
    }
}

fn is_broken(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionAborted
    )
}

fn shorten(command: &str) -> String {
    const LONGEST: usize = 60;
    let mut short: String = command.chars().take(LONGEST).collect();
    if short.len() < command.len() {
        short.push('…');
    }
    short
}
