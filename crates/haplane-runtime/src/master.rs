//! The master's socket: which processes there are, and which of them is the one that takes new connections.

use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::socket::{Socket, SocketError};

/// What a process in `show proc` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProcessKind {
    /// The master itself.
    Master,
    /// It takes new connections.
    Worker,
    /// It finishes what it has.
    OldWorker,
    /// A program of a `program` section.
    Program,
}

/// One line of `show proc`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessLine {
    /// Its number.
    pub pid: u32,
    /// What it is.
    pub kind: ProcessKind,
    /// How many reloads ago it was started.
    pub reloads: u32,
    /// Its version.
    pub version: String,
}

/// Why the master's answer says nothing.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MasterError {
    /// No answer.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// An answer that is not understood.
    #[error("line {line} of `show proc` is not understood: {text}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// What stands there.
        text: String,
    },
    /// There is no worker that takes new connections.
    #[error("the master at {} has no current worker: the last start or reload failed", .0.display())]
    NoWorker(PathBuf),
}

/// The master of an HAProxy started with `-W -S`.
#[derive(Clone, Debug)]
pub struct Master {
    path: PathBuf,
}

impl Master {
    /// The master behind this socket.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All processes that it knows.
    pub async fn processes(&self) -> Result<Vec<ProcessLine>, MasterError> {
        read_processes(&Socket::master(&self.path).ask("show proc").await?)
    }

    /// The worker that takes new connections.
    pub async fn current_worker(&self) -> Result<Socket, MasterError> {
        let processes = self.processes().await?;
        let worker = processes
            .iter()
            .find(|process| process.kind == ProcessKind::Worker);
        let worker = worker.ok_or_else(|| MasterError::NoWorker(self.path.clone()))?;
        Ok(Socket::worker(&self.path, worker.pid))
    }
}

fn read_processes(text: &str) -> Result<Vec<ProcessLine>, MasterError> {
    let mut old = false;
    let mut processes = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.starts_with('#') {
            old = line.starts_with("# old workers");
        } else if !line.trim().is_empty() {
            let wrong = || MasterError::Line {
                line: index + 1,
                text: line.chars().take(80).collect(),
            };
            processes.push(read_process(line, old).ok_or_else(wrong)?);
        }
    }
    Ok(processes)
}

fn read_process(line: &str, old: bool) -> Option<ProcessLine> {
    // `30966 master 0 [failed: 0] 0d00h00m01s 2.8.25`: the failures stand only on the master's line.
    let mut words = line.split_whitespace();
    let pid = words.next()?.parse().ok()?;
    let kind = match words.next()? {
        "master" => ProcessKind::Master,
        "worker" if old => ProcessKind::OldWorker,
        "worker" => ProcessKind::Worker,
        _ => ProcessKind::Program,
    };
    let reloads = words.next()?.parse().ok()?;
    let version = words.next_back().unwrap_or_default().to_owned();
    Some(ProcessLine {
        pid,
        kind,
        reloads,
        version,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worker_among_the_processes() {
        let text = "#<PID>          <type>          <reloads>       <uptime>        <version>      \n\
                    30966           master          1 [failed: 0]   0d00h00m01s     2.8.25-5cf5d0683\n\
                    # workers\n\
                    30999           worker          0               0d00h00m01s     2.8.25-5cf5d0683\n\
                    # old workers\n\
                    30972           worker          1               0d00h00m01s     2.8.25-5cf5d0683\n\
                    # programs\n\n";
        let processes = read_processes(text).unwrap();
        let kinds: Vec<_> = processes
            .iter()
            .map(|process| (process.pid, process.kind))
            .collect();
        assert_eq!(
            kinds,
            [
                (30966, ProcessKind::Master),
                (30999, ProcessKind::Worker),
                (30972, ProcessKind::OldWorker)
            ]
        );
        assert!(read_processes("Permission denied\n").is_err());
    }
}
