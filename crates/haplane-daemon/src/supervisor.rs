//! systemd's notify protocol (`man sd_notify`): ready, stopping, status, watchdog. Without
//! `NOTIFY_SOCKET` nothing happens.

use std::time::Duration;

use sd_notify::NotifyState;

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

/// Feeds the watchdog. To be called by the loop whose life it proves, not by a timer beside it.
pub fn alive() {
    notify(&[NotifyState::Watchdog]);
}

/// How often to feed the watchdog: half of what the unit's `WatchdogSec` allows.
pub fn watchdog_interval() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|limit| limit / 2)
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "cannot notify the supervisor");
    }
}
