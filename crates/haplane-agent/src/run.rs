//! From settings to a running agent, and to its end.
//!
//! The order of a start is a promise: bind → first snapshot → listen → ready. So a port that is in
//! use is known at once, and HAProxy hears nothing before there is something true to say.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use haplane_core::Snapshot;
use haplane_core::guard::Guard;
use haplane_core::resolve::Policy;
use haplane_daemon::logs::story;
use haplane_daemon::parts::Parts;
use haplane_daemon::profiles::{self, Access};
use haplane_daemon::settings::{AgentSettings, Settings};
use haplane_daemon::shutdown::{Signals, until_stopped};
use haplane_daemon::{admin_http, limits, supervisor};
use haplane_store::{AnyStore, Store as _, StoreError, View, Watch, WatchSettings};
use jiff::Timestamp;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::http::{Shown, router};
use crate::last_good::{self, LastGood};
use crate::metrics::Metrics;
use crate::observer::Observer;
use crate::observer::board::Board;
use crate::pulse::Pulse;
use crate::readable::Readable;
use crate::registration::{AtTheEnd, Rival, keep_registered, registration};
use crate::responder::{self, Bound, Shared};
use crate::rows::Rows;
use crate::served::Served;
use crate::standing::{Standing, trouble};
use crate::watcher::{self, Keeper};

/// How often rows that nobody asks for any more are forgotten.
const HOUSEKEEPING: Duration = Duration::from_mins(1);
/// How long all parts together may take to stop: more than each one is given, and well within the five
/// seconds that are promised.
const STOP_WITHIN: Duration = Duration::from_secs(3);

/// Why an agent could not start, or had to end.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The store's settings are wrong.
    #[error("cannot open the store")]
    Open(#[source] StoreError),
    /// An address cannot be bound.
    #[error(
        "cannot bind {address} for {what}: is another agent running, or is the address not one of \
         this machine's?"
    )]
    Bind {
        /// `agent checks` or `HTTP`.
        what: &'static str,
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// No first snapshot within `sync_timeout`.
    #[error("no snapshot of the store within {timeout:?}: {trouble}")]
    NoSnapshot {
        /// `sync_timeout`.
        timeout: Duration,
        /// What was wrong last.
        trouble: String,
    },
    /// The machine refuses something basic.
    #[error("cannot {what}")]
    System {
        /// What.
        what: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A part of the agent ended by itself.
    #[error("{0} ended by itself, a fault of haplane: please report it with the log")]
    Ended(&'static str),
}

/// Runs an agent until a signal or `stop` ends it. A second signal ends it at once.
pub async fn run(
    settings: Settings,
    node: String,
    version: &'static str,
    stop: CancellationToken,
) -> Result<(), AgentError> {
    let mut signals = Signals::new().map_err(|source| AgentError::System {
        what: "listen to signals",
        source,
    })?;
    limits::raise_open_files();
    let store = Arc::new(AnyStore::open(&settings.store).map_err(AgentError::Open)?);
    let bound = Ports::bind(&settings).await?;
    tracing::info!(
        version,
        node,
        store = %settings.store.location,
        state_prefix = %settings.store.state_prefix,
        listen = %bound.checks.address(),
        http = %bound.http_address,
        "starting"
    );

    let mut parts = Parts::new(stop.clone());
    let reread = Arc::clone(&store);
    let agent = Agent::new(settings, node, version, store);
    let result = tokio::select! {
        result = agent.serve(bound, &mut parts) => result,
        () = until_stopped(&mut signals, &stop, || {
            tracing::info!("reading token and certificates again");
            reread.reload();
        }) => Ok(()),
    };
    tracing::info!("stopping");
    supervisor::stopping();
    tokio::select! {
        () = parts.end(STOP_WITHIN) => {}
        _ = signals.next() => {}
    }
    result
}

/// Both ports, bound. Nobody listens for agent checks yet.
struct Ports {
    checks: Bound,
    http: TcpListener,
    http_address: SocketAddr,
}

impl Ports {
    async fn bind(settings: &Settings) -> Result<Self, AgentError> {
        let refused = |what, address| {
            move |source| AgentError::Bind {
                what,
                address,
                source,
            }
        };
        let (checks, http) = (settings.agent.listen, settings.http.listen);
        let checks = responder::bind(checks).map_err(refused("agent checks", checks))?;
        let listener = admin_http::bind(http)
            .await
            .map_err(refused("HTTP", http))?;
        let http_address = listener.local_addr().map_err(refused("HTTP", http))?;
        Ok(Self {
            checks,
            http: listener,
            http_address,
        })
    }
}

/// What the parts share.
struct Agent {
    settings: Settings,
    node: String,
    version: &'static str,
    store: Arc<AnyStore>,
    rows: Arc<Mutex<Rows>>,
    board: Arc<Board>,
    metrics: Arc<Metrics>,
    registry: Arc<prometheus_client::registry::Registry>,
    pulse: Pulse,
    rival: Rival,
}

impl Agent {
    fn new(settings: Settings, node: String, version: &'static str, store: Arc<AnyStore>) -> Self {
        let mut registry = haplane_daemon::metrics::registry(version);
        let metrics = Arc::new(Metrics::register(&mut registry));
        let board = Arc::new(Board::new(&settings.haproxy.sockets));
        Self {
            settings,
            node,
            version,
            store,
            rows: Arc::default(),
            board,
            metrics,
            registry: Arc::new(registry),
            pulse: Pulse::default(),
            rival: Rival::default(),
        }
    }

    /// Starts all parts in their order, then waits for one that ends by itself.
    async fn serve(&self, bound: Ports, parts: &mut Parts) -> Result<(), AgentError> {
        let last_good = self.last_good();
        let kept = last_good.as_ref().map(|kept| Arc::clone(&kept.snapshot));
        let views = self.watch(kept.clone(), parts);
        let readable = self.readable(views.clone(), parts);
        let begun_from = kept.clone();
        let standing = Standing::new(views.clone(), last_good);
        let listen = bound.checks.address();
        let access = Access::at(bound.http_address, self.settings.http.pprof);
        let pages = router(Arc::new(self.shown(
            standing,
            Arc::clone(&readable),
            listen.port(),
        )))
        .merge(profiles::routes(access));
        parts.spawn("HTTP", admin_http::serve(bound.http, pages, parts.stop()));

        let first = match kept {
            Some(snapshot) => Served {
                snapshot,
                since: Instant::now(),
            },
            None => first_snapshot(views.clone(), &self.settings.agent).await?,
        };
        let (served, follows) = watch::channel(first);
        parts.spawn(
            "the watcher",
            watcher::hand_on(views.clone(), served, parts.stop()),
        );
        self.answer(bound.checks, follows.clone(), Arc::clone(&readable), parts)?;
        self.observe(follows, readable, listen.port(), parts);
        self.keep_last_good(views, begun_from, parts);
        self.register(bound.http_address, parts);
        parts.spawn(
            "housekeeping",
            housekeeping(Arc::clone(&self.rows), parts.stop()),
        );
        let pulse = self.pulse.clone();
        let fed = supervisor::feed_watchdog(move || pulse.trouble(), parts.stop());
        parts.spawn("the watchdog", fed);
        supervisor::ready(&format!("answering on {listen}"));
        tracing::info!(%listen, "answering");
        Err(AgentError::Ended(parts.first_to_end().await))
    }

    fn watch(&self, kept: Option<Arc<Snapshot>>, parts: &Parts) -> watch::Receiver<View> {
        let guard = Guard::new(self.settings.agent.require_marker);
        let guard = match kept {
            Some(kept) => guard.after(kept),
            None => guard,
        };
        let metrics = Arc::clone(&self.metrics);
        let (watch, views) = Watch::new(
            Arc::clone(&self.store),
            guard,
            WatchSettings::default(),
            move |event| watcher::count(&metrics, event),
        );
        parts.spawn("the watch loop", watch.run(parts.stop()));
        views
    }

    fn readable(&self, views: watch::Receiver<View>, parts: &Parts) -> Arc<Readable> {
        let readable = Arc::new(Readable::new(self.store.hides_what_it_denies(), views));
        let store = Arc::clone(&self.store);
        let asking = Arc::clone(&readable).run(store, parts.stop());
        parts.spawn("the proof of absences", asking);
        readable
    }

    /// What an earlier run kept, if the site wants it; whatever is wrong with it is logged.
    fn last_good(&self) -> Option<LastGood> {
        let AgentSettings {
            last_good: path,
            last_good_max_age: max_age,
            ..
        } = &self.settings.agent;
        let path = path.as_deref()?;
        match last_good::read(path, &self.store_name(), *max_age, Timestamp::now()) {
            Ok(kept) => kept,
            Err(error) => {
                tracing::warn!(error = %story(&error), "starting without a last good snapshot");
                None
            }
        }
    }

    fn keep_last_good(
        &self,
        views: watch::Receiver<View>,
        begun_from: Option<Arc<Snapshot>>,
        parts: &Parts,
    ) {
        if let Some(path) = self.settings.agent.last_good.clone() {
            let keeper = Keeper {
                path,
                store: self.store_name(),
                metrics: Arc::clone(&self.metrics),
            };
            parts.spawn(
                "the keeper of the last good snapshot",
                keeper.run(views, begun_from, parts.stop()),
            );
        }
    }

    /// Names the store and this node, so that a kept snapshot is only used for the state that it
    /// was taken of: the same address and prefix mean another store in another datacenter, or on
    /// another machine.
    fn store_name(&self) -> String {
        let store = &self.settings.store;
        let consul = store.consul();
        let part = |name: &str, value: Option<&str>| {
            value.map_or_else(String::new, |value| format!(" {name} {value}"))
        };
        format!(
            "{} {} {}{}{} for {}",
            self.store.kind(),
            self.store.address(),
            store.state_prefix,
            part("datacenter", consul.datacenter.as_deref()),
            part("namespace", consul.namespace.as_deref()),
            self.node
        )
    }

    fn answer(
        &self,
        bound: Bound,
        served: watch::Receiver<Served>,
        readable: Arc<Readable>,
        parts: &Parts,
    ) -> Result<(), AgentError> {
        let max_connections = self.settings.agent.max_connections;
        let address = bound.address();
        let shared = Shared {
            served,
            readable,
            policy: self.policy(),
            rows: Arc::clone(&self.rows),
            metrics: Arc::clone(&self.metrics),
            pulse: self.pulse.clone(),
        };
        let running = parts.running("the responder");
        responder::start(bound, shared, max_connections, parts.stop(), running).map_err(|source| {
            AgentError::Bind {
                what: "agent checks",
                address,
                source,
            }
        })
    }

    fn observe(
        &self,
        served: watch::Receiver<Served>,
        readable: Arc<Readable>,
        port: u16,
        parts: &Parts,
    ) {
        let observer = Observer {
            board: Arc::clone(&self.board),
            rows: Arc::clone(&self.rows),
            served,
            readable,
            policy: self.policy(),
            metrics: Arc::clone(&self.metrics),
            port,
        };
        observer.start(&self.settings.haproxy, parts);
    }

    fn policy(&self) -> Policy {
        let AgentSettings {
            absent, weights, ..
        } = self.settings.agent;
        Policy { absent, weights }
    }

    fn register(&self, http: SocketAddr, parts: &Parts) {
        if self.settings.agent.register {
            let registration = registration(&self.node, self.version, http);
            let store = Arc::clone(&self.store);
            parts.spawn(
                "the registration",
                keep_registered(
                    store,
                    registration,
                    self.rival.clone(),
                    self.at_the_end(),
                    parts.stop(),
                ),
            );
        }
    }

    fn at_the_end(&self) -> AtTheEnd {
        if self.settings.agent.leave {
            AtTheEnd::Leave
        } else {
            AtTheEnd::Stay
        }
    }

    fn shown(&self, standing: Standing, readable: Arc<Readable>, port: u16) -> Shown {
        Shown {
            node: self.node.clone(),
            version: self.version,
            started_at: Timestamp::now(),
            store_kind: self.store.kind(),
            store_address: self.store.address(),
            store: Arc::clone(&self.store),
            state_prefix: self.settings.store.state_prefix.to_string(),
            standing,
            readable,
            rows: Arc::clone(&self.rows),
            board: Arc::clone(&self.board),
            policy: self.policy(),
            port,
            forgotten_after: self.settings.forgotten_after,
            metrics: Arc::clone(&self.metrics),
            registry: Arc::clone(&self.registry),
            pulse: self.pulse.clone(),
            rival: self.rival.clone(),
        }
    }
}

async fn first_snapshot(
    mut views: watch::Receiver<View>,
    settings: &AgentSettings,
) -> Result<Served, AgentError> {
    let timeout = settings.sync_timeout;
    if let Ok(Some(first)) = tokio::time::timeout(timeout, watcher::first(&mut views)).await {
        return Ok(first);
    }
    let view = views.borrow().clone();
    let trouble = trouble(&view).unwrap_or_else(|| "the store did not answer".to_owned());
    Err(AgentError::NoSnapshot { timeout, trouble })
}

async fn housekeeping(rows: Arc<Mutex<Rows>>, stop: CancellationToken) {
    let mut interval = tokio::time::interval(HOUSEKEEPING);
    while stop.run_until_cancelled(interval.tick()).await.is_some() {
        rows.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .forget_old(Instant::now());
    }
}
