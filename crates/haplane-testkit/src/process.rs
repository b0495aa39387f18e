//! A child process with its log, which ends with the value that owns it.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, kill_process};

pub use rustix::process::Signal;

use crate::eventually::eventually;

/// How many lines of the log are shown when a test fails.
const TAIL: usize = 40;

/// A running program. Dropping it kills it, by its pid, and waits for its end; when that
/// happens in a panic, the end of its log is printed.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command` with no input, standard output and error appended to the file `log`.
    pub fn spawn(name: &str, mut command: Command, log: &Path) -> Self {
        let out = File::options()
            .create(true)
            .append(true)
            .open(log)
            .expect("a log file");
        let err = out.try_clone().expect("a second handle on the log file");
        let child = command
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {name} ({command:?}): {error}"));
        Self {
            name: name.to_owned(),
            child,
            log: log.to_owned(),
        }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal. Nothing happens if the process has ended.
    pub fn signal(&mut self, signal: Signal) {
        if self.exited().is_none() {
            kill_process(Pid::from_child(&self.child), signal).expect("to signal our own child");
        }
    }

    /// Freezes it (SIGSTOP) and waits until every thread of it has stopped: a stop takes a
    /// moment to reach them all.
    pub async fn freeze(&mut self) {
        self.signal(Signal::STOP);
        let threads = PathBuf::from(format!("/proc/{}/task", self.pid()));
        eventually(
            &format!("{} frozen", self.name),
            Duration::from_secs(5),
            async || {
                let running = std::fs::read_dir(&threads)
                    .expect("our own child's threads")
                    .filter_map(|thread| {
                        std::fs::read_to_string(thread.ok()?.path().join("status")).ok()
                    })
                    .filter(|status| !status.contains("State:\tT"))
                    .count();
                if running == 0 { Ok(()) } else { Err(running) }
            },
        )
        .await;
    }

    /// Ends [`Self::freeze`].
    pub fn thaw(&mut self) {
        self.signal(Signal::CONT);
    }

    /// How it ended, or `None` while it runs.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("to wait for our own child")
    }

    /// Waits for its end.
    pub async fn exit(&mut self, within: Duration) -> ExitStatus {
        let what = format!("the end of {}", self.name);
        eventually(&what, within, async || self.exited().ok_or("still running")).await
    }

    /// Ends it at once (SIGKILL) and waits for the end.
    pub fn kill(&mut self) {
        if self.exited().is_none() {
            self.child.kill().expect("to kill our own child");
            self.child.wait().expect("to wait for our own child");
        }
    }

    /// All that it wrote so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<_> = log.lines().collect();
            let tail = lines[lines.len().saturating_sub(TAIL)..].join("\n");
            // A second panic would end the test without ending what it started.
            let _ = writeln!(
                std::io::stderr(),
                "--- end of the log of {} ---\n{tail}\n---",
                self.name
            );
        }
    }
}
