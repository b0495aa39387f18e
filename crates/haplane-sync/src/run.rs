//! From settings to a running synchroniser, and to its end.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use haplane_daemon::parts::Parts;
use haplane_daemon::profiles::{self, Access};
use haplane_daemon::shutdown::{Signals, until_stopped};
use haplane_daemon::{admin_http, limits, supervisor};
use haplane_store::consul::Client;
use tokio::sync::watch;
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
    let mut parts = Parts::new(stop.clone());
    for pool in &board.pools {
        let reading = follow(
            Arc::clone(pool),
            client.sibling(),
            settings.reconcile,
            clock,
            parts.stop(),
        );
        parts.spawn("the reader of a source", reading);
    }
    for path in &settings.sockets {
        let process = Process::new(
            path.clone(),
            Arc::new(Responder::new(settings.agent)),
            clock,
        );
        let keeper = Keeper::new(process, Arc::clone(&board), Arc::clone(&metrics));
        let keeping = keeper.run(changed.subscribe(), parts.stop());
        parts.spawn("the loop of one HAProxy", keeping);
    }
    let profiles = profiles::routes(Access::at(settings.http, false));
    let pages = router(Arc::new(shown)).merge(profiles);
    let serving = admin_http::serve(listener, pages, parts.stop());
    parts.spawn("the HTTP server", serving);
    let fed = supervisor::feed_watchdog(move || stuck(&board), parts.stop());
    parts.spawn("the watchdog", fed);
    supervisor::ready("keeping slots in line");

    let result = tokio::select! {
        () = until_stopped(&mut signals, &stop, || client.reload()) => Ok(()),
        ended = parts.first_to_end() => Err(SyncError::Ended(ended)),
    };
    supervisor::stopping();
    tokio::select! {
        () = parts.end(GRACE) => {}
        _ = signals.next() => {}
    }
    result
}

/// Follows the source of one pool.
async fn follow(
    pool: Arc<Pool>,
    client: Client,
    reconcile: Duration,
    clock: Clock,
    stop: CancellationToken,
) {
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
}

/// The loops that no longer turn, if there are any.
fn stuck(board: &Board) -> Option<String> {
    let stuck = board.stuck();
    (!stuck.is_empty()).then(|| format!("the loop of {} is stuck", stuck.join(", ")))
}
