//! `haplane heartbeat`: a test of the whole way, in production, for ever. It flips one row of its own
//! between drain and nothing, and times the proof that every HAProxy has followed.
//!
//! Its writes leave no log entry: one a minute would push everybody else's out of the log.

mod metrics;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use haplane_core::converge::Scope;
use haplane_core::desired::Desired;
use haplane_core::{Key, duration};
use haplane_daemon::admin_http;
use haplane_daemon::shutdown::{Signals, until_stopped};
use haplane_store::{Change, Expected, Store, Transaction};
use jiff::Timestamp;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cli::HeartbeatOptions;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::report::Report;
use crate::session::Session;
use crate::wait::{Goal, Waited, wait};
use metrics::{Metrics, Outcome};

/// Where its figures are when nothing is said.
pub const LISTEN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9781);
/// The row that it flips when nothing is said.
pub const ROW: &str = "haplane-heartbeat/self";

/// Beats once, or until a signal ends it.
pub async fn run(session: &Session, options: &HeartbeatOptions) -> Result<Report, Failure> {
    let key: Key = options
        .row
        .parse()
        .map_err(|error| Failure::usage(format!("{:?} is no row: {error}", options.row)))?;
    let time = |flag: &str, text: &str| {
        duration::parse(text).map_err(|error| Failure::usage(format!("{flag}: {error}")))
    };
    let every = time("--every", &options.every)?;
    let heart = Heart {
        session,
        options,
        key,
        timeout: time("--timeout", &options.timeout)?,
    };
    session.confirm(options.yes, &format!("flip {} again and again", heart.key))?;
    if options.once {
        let waited = heart.beat().await?;
        return Ok(waited.tell(Report::new(json!(waited))));
    }
    heart.go_on(every).await
}

struct Heart<'s> {
    session: &'s Session,
    options: &'s HeartbeatOptions,
    key: Key,
    timeout: Duration,
}

impl Heart<'_> {
    async fn go_on(&self, every: Duration) -> Result<Report, Failure> {
        let address = self.options.heartbeat_listen;
        let unusable = |error| {
            Failure::usage(format!(
                "cannot listen on {address}: {error}; choose another with --heartbeat-listen"
            ))
        };
        let listener = admin_http::bind(address).await.map_err(unusable)?;
        let mut signals = Signals::new().map_err(|error| {
            Failure::new(
                Exit::Unexpected,
                format!("cannot listen to signals: {error}"),
            )
        })?;
        let mut registry = haplane_daemon::metrics::registry(env!("CARGO_PKG_VERSION"));
        let metrics = Metrics::register(&mut registry);
        let registry = Arc::new(registry);
        let pages = Router::new().route("/healthz", get(async || "ok\n")).route(
            "/metrics",
            get(async move || haplane_daemon::metrics::page(&registry)),
        );
        let stop = CancellationToken::new();
        self.session.output.note(&format!(
            "flipping {} every {}; figures at http://{address}/metrics",
            self.key, self.options.every
        ));
        tokio::join!(
            admin_http::serve(listener, pages, stop.clone()),
            stop.run_until_cancelled(self.beat_for_ever(every, &metrics)),
            until_stopped(&mut signals, &stop, || {}),
        );
        Ok(Report::new(json!({"row": self.key})))
    }

    /// Each failure is told once, and its end.
    async fn beat_for_ever(&self, every: Duration, metrics: &Metrics) {
        let mut trouble: Option<String> = None;
        loop {
            let start = Instant::now();
            match self.beat().await {
                Ok(_) => {
                    metrics.beat(Outcome::Proven, start.elapsed());
                    metrics.proven(Timestamp::now());
                    if trouble.take().is_some() {
                        self.session.output.note("the heartbeat is proven again");
                    }
                }
                Err(failure) => {
                    let late = failure.exit == Exit::NotConverged;
                    let outcome = if late { Outcome::Late } else { Outcome::Failed };
                    metrics.beat(outcome, start.elapsed());
                    if trouble.as_ref() != Some(&failure.message) {
                        self.session.output.warn(&failure.message);
                        trouble = Some(failure.message);
                    }
                }
            }
            tokio::time::sleep(every.saturating_sub(start.elapsed())).await;
        }
    }

    /// Flips the row and waits for the proof.
    async fn beat(&self) -> Result<Waited, Failure> {
        let before = self.session.read().await?;
        let stored = before.get(&self.key);
        let is_drained = stored.is_some_and(|stored| stored.value.desired == Desired::DRAIN);
        let version = stored
            .map(|stored| stored.version)
            .or_else(|| before.get_invalid(&self.key).map(|invalid| invalid.version));
        let change = Change {
            key: self.key.clone(),
            path: before.path_of(&self.key),
            expected: version.map_or(Expected::Absent, Expected::Version),
            text: (!is_drained).then(|| Desired::DRAIN.to_string()),
        };
        let transaction = Transaction {
            changes: vec![change],
            log: None,
        };
        let committed = self.session.store.commit(&transaction).await?;
        let snapshot = self.session.read().await?;
        let fleet = self.session.fleet(&self.options.fleet).await?;
        let goal = Goal {
            index: committed.index,
            scope: Scope::Keys([self.key.clone()].into()),
            snapshot: &snapshot,
            timeout: self.timeout,
        };
        let waited = wait(&fleet, &goal, &self.session.output).await;
        if waited.converged && waited.rows.total > 0 {
            return Ok(waited);
        }
        let message = if waited.converged {
            format!(
                "no HAProxy asks for {}: give every haproxy.cfg the heartbeat's server line \
                 (docs/alerts.md), or name another row",
                self.key
            )
        } else {
            waited.summary()
        };
        let mut failure = Failure::new(Exit::NotConverged, message);
        failure.document = Some(json!(waited));
        Err(failure)
    }
}
