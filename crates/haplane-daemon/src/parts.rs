//! The parts of a running daemon: none may end while the daemon runs, all end when it is told to.

use std::future::Future;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Keeps track of the parts.
#[derive(Debug)]
pub struct Parts {
    tracker: TaskTracker,
    stop: CancellationToken,
    ended: mpsc::UnboundedSender<&'static str>,
    endings: mpsc::UnboundedReceiver<&'static str>,
}

/// Held by a part while it runs; tells when it is dropped.
#[derive(Debug)]
pub struct Running {
    name: &'static str,
    stop: CancellationToken,
    ended: mpsc::UnboundedSender<&'static str>,
    _tracked: tokio_util::task::task_tracker::TaskTrackerToken,
}

impl Parts {
    /// No parts yet; all of them end by `stop`.
    pub fn new(stop: CancellationToken) -> Self {
        let (ended, endings) = mpsc::unbounded_channel();
        Self {
            tracker: TaskTracker::new(),
            stop,
            ended,
            endings,
        }
    }

    /// The signal to end, for a part.
    pub fn stop(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Runs a part as a task.
    pub fn spawn(&self, name: &'static str, part: impl Future<Output = ()> + Send + 'static) {
        let running = self.running(name);
        tokio::spawn(async move {
            let _running = running;
            part.await;
        });
    }

    /// A part that runs elsewhere, on a thread of its own, holds this while it does.
    pub fn running(&self, name: &'static str) -> Running {
        Running {
            name,
            stop: self.stop.clone(),
            ended: self.ended.clone(),
            _tracked: self.tracker.token(),
        }
    }

    /// The first part that ends although nobody told it to.
    pub async fn first_to_end(&mut self) -> &'static str {
        match self.endings.recv().await {
            Some(name) => name,
            None => std::future::pending().await,
        }
    }

    /// Tells all parts to end and waits for that, but no longer than this.
    pub async fn end(&self, within: Duration) {
        self.stop.cancel();
        self.tracker.close();
        if tokio::time::timeout(within, self.tracker.wait())
            .await
            .is_err()
        {
            tracing::warn!("some parts did not end in time");
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.stop.is_cancelled() && self.ended.send(self.name).is_err() {
            tracing::error!(part = self.name, "a part ended by itself");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_part_that_ends_or_panics_is_named_unless_all_are_to_end() {
        let mut parts = Parts::new(CancellationToken::new());
        parts.spawn("the steady one", std::future::pending());
        parts.spawn("the weak one", async {});
        assert_eq!(parts.first_to_end().await, "the weak one");
        parts.spawn("the broken one", async { panic!("on purpose") });
        assert_eq!(parts.first_to_end().await, "the broken one");

        let parts = Parts::new(CancellationToken::new());
        let stop = parts.stop();
        parts.spawn("the obedient one", async move { stop.cancelled().await });
        parts.end(Duration::from_secs(5)).await;
    }
}
