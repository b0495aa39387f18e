//! Signals: the first SIGTERM or SIGINT asks every task to end, SIGHUP to read secrets again.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The signals that a daemon listens to. Made before anything else, so that none is missed.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// End.
    Stop,
    /// Read tokens and certificates again.
    Reread,
}

impl Signals {
    /// Starts to listen.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// The next thing asked for. Cancel-safe: no signal is lost when this is dropped and called
    /// again.
    pub async fn next(&mut self) -> Wish {
        tokio::select! {
            _ = self.terminate.recv() => Wish::Stop,
            _ = self.interrupt.recv() => Wish::Stop,
            _ = self.hangup.recv() => Wish::Reread,
        }
    }
}

/// Waits for the first stop signal, calling `reread` for each SIGHUP before it, or for somebody else
/// to stop the process; then cancels `stop`. The caller ends at once on a second signal by waiting
/// for [`Signals::next`] again.
pub async fn until_stopped(
    signals: &mut Signals,
    stop: &CancellationToken,
    mut reread: impl FnMut(),
) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            wish = signals.next() => match wish {
                Wish::Stop => {
                    stop.cancel();
                    return;
                }
                Wish::Reread => reread(),
            },
        }
    }
}
