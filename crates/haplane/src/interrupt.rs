//! Ctrl-C and SIGTERM during a command that writes or waits: it says what it leaves behind, and ends by the
//! signal. A shell that sees an ordinary exit status goes on with its loop, and drains the next zone.

use std::cell::RefCell;
use std::io;

use serde_json::Value as Json;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::emulate_default_handler;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::report::Report;

/// What is left behind if the command ends here. As long as there is nothing, Ctrl-C just ends the process,
/// even while somebody is being asked something.
#[derive(Debug, Default)]
pub struct Standing {
    left: RefCell<Option<(String, Json)>>,
    some: Notify,
}

impl Standing {
    /// From here on this is left behind: in words, and as the document of `--json`.
    pub fn is(&self, left: impl Into<String>, document: Json) {
        self.left.replace(Some((left.into(), document)));
        self.some.notify_one();
    }

    /// What is left is still what was said; its document has come to this.
    pub fn has_come_to(&self, document: Json) {
        if let Some((_, before)) = self.left.borrow_mut().as_mut() {
            *before = document;
        }
    }

    fn interrupted(&self, by: Exit) -> Failure {
        let (left, document) = self.left.take().unwrap_or_default();
        Failure {
            document: Some(document),
            ..Failure::new(by, format!("{}: {left}", by.word()))
        }
    }

    /// As long as nothing is left behind, no handler is installed, and a signal ends the process at once.
    async fn signal(&self) -> io::Result<Exit> {
        self.some.notified().await;
        Ok(Interruptions::new()?.next().await)
    }
}

/// The signals that end a command. Once this exists, they no longer end the process by themselves: for
/// commands that have something to finish first.
#[derive(Debug)]
pub struct Interruptions {
    interrupt: Signal,
    terminate: Signal,
}

impl Interruptions {
    /// Starts to listen.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// The next one, as the end of the command.
    pub async fn next(&mut self) -> Exit {
        tokio::select! {
            _ = self.interrupt.recv() => Exit::Interrupted,
            _ = self.terminate.recv() => Exit::Terminated,
        }
    }
}

/// Ends the process by the signal that ended the command, if one did.
pub fn end_by_signal(exit: Exit) {
    let signal = match exit {
        Exit::Interrupted => SIGINT,
        Exit::Terminated => SIGTERM,
        _ => return,
    };
    // Should that fail, the exit status tells.
    let _ = emulate_default_handler(signal);
}

/// Runs a command to its end, or to the first signal that comes when something would be left behind.
pub async fn unless_interrupted(
    standing: &Standing,
    command: impl Future<Output = Result<Report, Failure>>,
) -> Result<Report, Failure> {
    tokio::select! {
        biased;
        done = command => done,
        // Without a signal handler the signal ends the process by itself.
        Ok(by) = standing.signal() => Err(standing.interrupted(by)),
    }
}
