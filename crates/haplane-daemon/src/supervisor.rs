//! systemd's notify protocol (`man sd_notify`): ready, stopping, status, watchdog. Without
//! `NOTIFY_SOCKET` nothing happens.

use sd_notify::NotifyState;
use tokio_util::sync::CancellationToken;

/// Tells the supervisor that the service is up.
pub fn ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Tells it what we are at.
pub fn status(status: &str) {
    notify(&[NotifyState::Status(status)]);
}

/// Tells it that we are on our way out.
pub fn stopping() {
    notify(&[NotifyState::Stopping]);
}

/// Feeds the watchdog, twice in the time that the unit's `WatchdogSec` allows, for as long as nothing that must
/// turn is in trouble.
pub async fn feed_watchdog(trouble: impl Fn() -> Option<String>, stop: CancellationToken) {
    let Some(limit) = sd_notify::watchdog_enabled() else {
        return stop.cancelled().await;
    };
    let mut interval = tokio::time::interval(limit / 2);
    while stop.run_until_cancelled(interval.tick()).await.is_some() {
        match trouble() {
            None => notify(&[NotifyState::Watchdog]),
            Some(trouble) => tracing::error!(trouble, "not feeding the watchdog"),
        }
    }
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "cannot notify the supervisor");
    }
}
