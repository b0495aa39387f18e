//! The responder: HAProxy connects, sends one line, gets one line, and the connection is closed.
//!
//! It has a thread and a runtime of its own and reads one immutable snapshot from memory: no store,
//! no page and no profile can delay an answer.

mod connection;
mod line;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use haplane_core::resolve::Policy;
use haplane_daemon::connections::{Admitted, Connections};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;
use crate::pulse::{BEAT, Pulse};
use crate::readable::Readable;
use crate::rows::Rows;
use crate::served::Served;
pub use connection::Refused;

/// Every row of a large fleet may ask within the same tenth of a second (facts 4.1).
const BACKLOG: u32 = 4096;
/// After an `accept` that failed, for want of descriptors for example.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
/// What connections in flight may take once we are to stop; more than their own deadline.
const GRACE: Duration = Duration::from_secs(2);

/// A port that is bound but does not listen yet: HAProxy gets "connection refused", which changes
/// nothing (facts 1).
#[derive(Debug)]
pub struct Bound {
    socket: TcpSocket,
    address: SocketAddr,
}

/// Binds the port. Fails when somebody listens on it.
pub fn bind(address: SocketAddr) -> io::Result<Bound> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let address = socket.local_addr()?;
    Ok(Bound { socket, address })
}

impl Bound {
    /// The address, with the port that the system chose if 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// What every connection shares.
#[derive(Debug)]
pub struct Shared {
    /// The snapshot in force.
    pub served: watch::Receiver<Served>,
    /// Which keys are truly absent where the snapshot has none.
    pub readable: Arc<Readable>,
    /// The site's choices.
    pub policy: Policy,
    /// What was asked and answered.
    pub rows: Arc<Mutex<Rows>>,
    /// The counters.
    pub metrics: Arc<Metrics>,
    /// Beaten by the thread that answers.
    pub pulse: Pulse,
}

/// Listens and answers on a thread of its own until stopped; the thread holds `running`. Returns once
/// the port listens.
pub fn start(
    bound: Bound,
    shared: Shared,
    max_connections: usize,
    stop: CancellationToken,
    running: impl Send + 'static,
) -> io::Result<()> {
    let (listening, listens) = std::sync::mpsc::sync_channel(1);
    std::thread::Builder::new()
        .name("responder".to_owned())
        .spawn(move || {
            let _running = running;
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let runtime = match runtime {
                Ok(runtime) => runtime,
                Err(error) => return send(&listening, Err(error)),
            };
            runtime.block_on(async move {
                match bound.socket.listen(BACKLOG) {
                    Ok(listener) => {
                        send(&listening, Ok(()));
                        answer(listener, Arc::new(shared), max_connections, stop).await;
                    }
                    Err(error) => send(&listening, Err(error)),
                }
            });
        })?;
    let gone = || {
        Err(io::Error::other(
            "the responder's thread ended before it listened",
        ))
    };
    listens.recv().unwrap_or_else(|_| gone())
}

fn send(to: &std::sync::mpsc::SyncSender<io::Result<()>>, result: io::Result<()>) {
    if to.send(result).is_err() {
        tracing::debug!("nobody waits for the responder any more");
    }
}

async fn answer(
    listener: TcpListener,
    shared: Arc<Shared>,
    max_connections: usize,
    stop: CancellationToken,
) {
    let mut connections = Connections::new(max_connections);
    let mut beat = tokio::time::interval(BEAT);
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
            _ = beat.tick() => {
                shared.pulse.beat();
                continue;
            }
            () = connections.ended() => continue,
        };
        match accepted {
            Ok((stream, peer)) => {
                let connection = connection::answer(stream, peer, Arc::clone(&shared));
                if connections.admit(connection) == Admitted::InPlaceOfOldest {
                    shared.metrics.refused(Refused::Crowded);
                }
            }
            Err(error) => {
                shared.metrics.refused(Refused::NotAccepted);
                tracing::debug!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    connections.finish(GRACE).await;
}

#[cfg(test)]
mod tests;
