//! Ctrl-C during a command that writes or waits: it says what it leaves behind.

use std::cell::RefCell;
use std::io;

use serde_json::Value as Json;
use tokio::signal::ctrl_c;
use tokio::sync::Notify;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::report::Report;

/// What is left when the command ends here. As long as there is nothing, Ctrl-C just ends the process,
/// also where somebody is being asked something.
#[derive(Debug, Default)]
pub struct Standing {
    left: RefCell<Option<(String, Json)>>,
    some: Notify,
}

impl Standing {
    /// From here on this is what is left: in words, and as the document of `--json`.
    pub fn is(&self, left: impl Into<String>, document: Json) {
        self.left.replace(Some((left.into(), document)));
        self.some.notify_one();
    }

    fn interrupted(&self) -> Failure {
        let (left, document) = self.left.take().unwrap_or_default();
        let message = format!("interrupted: {left}");
        Failure {
            document: Some(document),
            ..Failure::new(Exit::NotConverged, message)
        }
    }

    async fn signal(&self) -> io::Result<()> {
        self.some.notified().await;
        ctrl_c().await
    }
}

/// Runs a command to its end, or to the first Ctrl-C after which something is left.
pub async fn unless_interrupted(
    standing: &Standing,
    command: impl Future<Output = Result<Report, Failure>>,
) -> Result<Report, Failure> {
    tokio::select! {
        biased;
        done = command => done,
        // Without a signal handler the signal ends the process by itself.
        Ok(()) = standing.signal() => Err(standing.interrupted()),
    }
}
