//! From settings to a running synchroniser, and to its end.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use haplane_daemon::profiles::{self, Access};
use haplane_daemon::shutdown::{Signals, until_stopped};
use haplane_daemon::{admin_http, limits, supervisor};
use haplane_store::consul::Client;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::board::Board;
use crate::clock::Clock;
use crate::http::{Shown, router};
use crate::keep::Keeper;
use crate::metrics::Metrics;
use crate::pool::Pool;
use crate::process::Process;
use crate::responder::Responder;
use crate::settings::{Source, SyncSettings};
use crate::source::consul::Selection;
use crate::source::{Reading, consul, file};

/// What is in flight at the end may take this long.
const GRACE: Duration = Duration::from_secs(4);

/// Why a synchroniser could not start, or had to end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SyncError {
    /// The HTTP address cannot be bound.
    #[error("cannot bind {address} for HTTP: does another synchroniser run here?")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The machine refuses something basic.
    #[error("cannot listen to signals")]
    Signals(#[source] io::Error),
    /// A part ended by itself.
    #[error("{0} ended by itself, a fault of haplane: please report it with the log")]
    Ended(&'static str),
}

/// Runs until a signal or `stop` ends it. A second signal ends it at once.
pub async fn run(
    settings: SyncSettings,
    version: &'static str,
    stop: CancellationToken,
) -> Result<(), SyncError> {
    let mut signals = Signals::new().map_err(SyncError::Signals)?;
    limits::raise_open_files();
    let refused = |source| SyncError::Bind {
        address: settings.http,
        source,
    };
    let listener = admin_http::bind(settings.http).await.map_err(refused)?;
    tracing::info!(version, http = %settings.http, pools = settings.pools.len(), sockets = settings.sockets.len(), "starting");

    let clock = Clock::start();
    let changed = Arc::new(watch::Sender::new(0));
    let pools = Pool::all(&settings.pools, settings.sockets.len(), &changed);
    let board = Arc::new(Board::new(
        clock,
        pools,
        &settings.sockets,
        settings.reconcile,
    ));
    let mut registry = haplane_daemon::metrics::registry(version);
    let metrics = Arc::new(Metrics::register(&mut registry));
    let shown = Shown {
        board: Arc::clone(&board),
        metrics: Arc::clone(&metrics),
        registry: Arc::new(registry),
    };

    let client = Client::new(settings.consul.clone());
    let mut parts: JoinSet<&'static str> = JoinSet::new();
    for pool in &board.pools {
        parts.spawn(follow(
            Arc::clone(pool),
            client.sibling(),
            settings.reconcile,
            clock,
            stop.clone(),
        ));
    }
    for path in &settings.sockets {
        let process = Process::new(
            path.clone(),
            Arc::new(Responder::new(settings.agent)),
            clock,
        );
        let keeper = Keeper::new(process, Arc::clone(&board), Arc::clone(&metrics));
        let (changes, stop) = (changed.subscribe(), stop.clone());
        parts.spawn(async move {
            keeper.run(changes, stop).await;
            "the loop of one HAProxy"
        });
    }
    let profiles = profiles::routes(Access::at(settings.http, false));
    let (serving, pages) = (stop.clone(), router(Arc::new(shown)).merge(profiles));
    parts.spawn(async move {
        admin_http::serve(listener, pages, serving).await;
        "the HTTP server"
    });
    parts.spawn(feed_the_watchdog(Arc::clone(&board), stop.clone()));
    supervisor::ready("keeping slots in line");

    let result = tokio::select! {
        () = until_stopped(&mut signals, &stop, || client.reload()) => Ok(()),
        Some(ended) = parts.join_next() => Err(SyncError::Ended(ended.unwrap_or("a part that panicked"))),
    };
    let early = !stop.is_cancelled();
    stop.cancel();
    supervisor::stopping();
    let rest = async { while parts.join_next().await.is_some() {} };
    tokio::select! {
        _ = tokio::time::timeout(GRACE, rest) => {}
        _ = signals.next() => {}
    }
    // A part that ends because everything is to end is no fault.
    if early { result } else { Ok(()) }
}

/// Follows the source of one pool.
async fn follow(
    pool: Arc<Pool>,
    client: Client,
    reconcile: Duration,
    clock: Clock,
    stop: CancellationToken,
) -> &'static str {
    let taker = Arc::clone(&pool);
    let hand_over = move |reading: Reading| taker.take(reading, clock.now());
    match &pool.settings.source {
        Source::Consul(service) => {
            consul::watch(
                client,
                Selection::new(service, &pool.settings),
                reconcile,
                hand_over,
                stop,
            )
            .await;
        }
        Source::File(path) => {
            let allow_empty = pool.settings.limits.allow_empty;
            file::watch(path.clone(), allow_empty, reconcile, hand_over, stop).await;
        }
    }
    "the reader of a source"
}

/// Only as long as every loop turns.
async fn feed_the_watchdog(board: Arc<Board>, stop: CancellationToken) -> &'static str {
    let Some(interval) = supervisor::watchdog_interval() else {
        stop.cancelled().await;
        return "the watchdog";
    };
    loop {
        tokio::select! {
            () = stop.cancelled() => return "the watchdog",
            () = tokio::time::sleep(interval) => {
                if board.stuck().is_empty() {
                    supervisor::alive();
                }
            }
        }
    }
}
