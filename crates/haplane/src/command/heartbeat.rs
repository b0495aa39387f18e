//! `haplane heartbeat`: a test of the whole way, in production, for ever. It drains one row of its own, brings it
//! back, and times the proof that every HAProxy has followed, both times.

mod beat;
mod metrics;
mod own;
mod values;

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::HeaderMap;
use axum::routing::get;
use haplane_core::{Key, duration};
use haplane_daemon::admin_http;
use haplane_daemon::shutdown::{Signals, Wish, until_stopped};
use jiff::Timestamp;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cli::HeartbeatOptions;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::interrupt::Interruptions;
use crate::report::Report;
use crate::session::Session;
use beat::{Ended, Heart};
use metrics::{Metrics, Outcome};

/// Where its figures are when nothing is said.
pub const LISTEN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9781);
/// The row that it drains when nothing is said.
pub const ROW: &str = "haplane-heartbeat/self";

/// Beats once, or until a signal ends it.
pub async fn run(session: &Session, options: &HeartbeatOptions) -> Result<Report, Failure> {
    let key: Key = options
        .row
        .parse()
        .map_err(|error| Failure::usage(format!("{:?} is no row: {error}", options.row)))?;
    let heart = Heart {
        session,
        options,
        key,
        timeout: options.timeout,
        stop: CancellationToken::new(),
    };
    let often = if options.once { "" } else { " again and again" };
    session.confirm(options.yes, &format!("drain {}{often}", heart.key))?;
    if options.once {
        once(&heart).await
    } else {
        again_and_again(&heart, options.every).await
    }
}

/// One beat. The first signal only shortens it: the way back is taken all the same.
async fn once(heart: &Heart<'_>) -> Result<Report, Failure> {
    let mut signals = Interruptions::new().map_err(|error| deaf(&error))?;
    let first = Cell::new(None);
    let twice = async {
        first.set(Some(signals.next().await));
        heart.stop.cancel();
        signals.next().await
    };
    let beat = tokio::select! {
        beat = heart.beat() => beat,
        by = twice => return Err(heart.torn_off(by)),
    };
    match (beat, first.get()) {
        (Ok(Ended::Proven(beat)), _) => Ok(beat.report()),
        (Ok(Ended::Stopped { until }), by) => {
            let by = by.unwrap_or(Exit::Unexpected);
            let row = until.map_or_else(
                || format!("{} is as it was before", heart.key),
                |until| heart.until_then(until),
            );
            Err(Failure::new(by, format!("{}: {row}", by.word())))
        }
        (Err(failure), Some(by)) => Err(Failure {
            exit: by,
            ..failure
        }),
        (Err(failure), None) => Err(failure),
    }
}

async fn again_and_again(heart: &Heart<'_>, every: Duration) -> Result<Report, Failure> {
    let address = heart.options.heartbeat_listen;
    let unusable = |error| {
        Failure::usage(format!(
            "cannot listen on {address}: {error}; choose another with --heartbeat-listen"
        ))
    };
    let listener = admin_http::bind(address).await.map_err(unusable)?;
    let mut signals = Signals::new().map_err(|error| deaf(&error))?;
    let mut registry = haplane_daemon::metrics::registry(env!("CARGO_PKG_VERSION"));
    let metrics = Metrics::register(&mut registry);
    let registry = Arc::new(registry);
    let pages = Router::new().route("/healthz", get(async || "ok\n")).route(
        "/metrics",
        get(async move |request: HeaderMap| haplane_daemon::metrics::page(&registry, &request)),
    );
    heart.session.output.note(&format!(
        "draining {} and bringing it back every {}; figures at http://{address}/metrics",
        heart.key,
        duration::print(heart.options.every)
    ));
    let twice = async {
        until_stopped(&mut signals, &heart.stop, || {}).await;
        while signals.next().await != Wish::Stop {}
    };
    let beating = async {
        tokio::join!(
            admin_http::serve(listener, pages, heart.stop.clone()),
            beat_until_stopped(heart, every, &metrics),
        )
    };
    tokio::select! {
        _ = beating => Ok(Report::new(json!({"row": heart.key}))),
        () = twice => Err(heart.torn_off(Exit::Terminated)),
    }
}

/// Each failure is told once, and its end.
async fn beat_until_stopped(heart: &Heart<'_>, every: Duration, metrics: &Metrics) {
    let output = &heart.session.output;
    let mut trouble: Option<String> = None;
    while !heart.stop.is_cancelled() {
        let start = Instant::now();
        match heart.beat().await {
            Ok(Ended::Proven(beat)) => {
                metrics.beat(Outcome::Proven);
                for way in beat.ways() {
                    metrics.way(way);
                }
                metrics.proven(Timestamp::now());
                if trouble.take().is_some() {
                    output.note("the heartbeat is proven again");
                }
            }
            Ok(Ended::Stopped { .. }) => {}
            Err(failure) => {
                let late = failure.exit == Exit::NotConverged;
                metrics.beat(if late { Outcome::Late } else { Outcome::Failed });
                if trouble.as_ref() != Some(&failure.message) {
                    output.warn(&failure.message);
                    trouble = Some(failure.message);
                }
            }
        }
        let pause = tokio::time::sleep(every.saturating_sub(start.elapsed()));
        heart.stop.run_until_cancelled(pause).await;
    }
}

fn deaf(error: &io::Error) -> Failure {
    Failure::new(
        Exit::Unexpected,
        format!("cannot listen to signals: {error}"),
    )
}
