//! The responder's pulse: proof that its thread turns, for `/healthz` and the supervisor's watchdog.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// How often it beats.
pub const BEAT: Duration = Duration::from_millis(500);
/// A thread that has not beaten for this long is stuck: by then HAProxy has given up on its checks.
const STUCK_AFTER: Duration = Duration::from_secs(5);
/// Nothing to beat yet: the responder waits for the first snapshot.
const NOT_STARTED: u64 = u64::MAX;

/// The responder's thread beats it, others feel it.
#[derive(Clone, Debug)]
pub struct Pulse {
    origin: Instant,
    last_millis: Arc<AtomicU64>,
}

impl Default for Pulse {
    fn default() -> Self {
        Self {
            origin: Instant::now(),
            last_millis: Arc::new(AtomicU64::new(NOT_STARTED)),
        }
    }
}

impl Pulse {
    /// One beat.
    pub fn beat(&self) {
        let millis = self.origin.elapsed().as_millis();
        let millis = u64::try_from(millis).unwrap_or(NOT_STARTED - 1);
        self.last_millis.store(millis, Ordering::Relaxed);
    }

    /// Whether the thread listens and answers by now.
    pub fn has_begun(&self) -> bool {
        self.last_millis.load(Ordering::Relaxed) != NOT_STARTED
    }

    /// What is wrong, if something is.
    pub fn trouble(&self) -> Option<String> {
        let last = self.last_millis.load(Ordering::Relaxed);
        if last == NOT_STARTED {
            return None;
        }
        let silence = self
            .origin
            .elapsed()
            .saturating_sub(Duration::from_millis(last));
        (silence > STUCK_AFTER).then(|| {
            format!(
                "the responder's thread has been stuck for {} s",
                silence.as_secs()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pulse_that_stops_is_trouble() {
        let pulse = Pulse::default();
        tokio::time::advance(Duration::from_mins(1)).await;
        assert_eq!(pulse.trouble(), None, "not started");
        assert!(!pulse.has_begun());
        pulse.beat();
        assert!(pulse.has_begun());
        tokio::time::advance(STUCK_AFTER).await;
        assert_eq!(pulse.trouble(), None);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(pulse.trouble().is_some());
    }
}
