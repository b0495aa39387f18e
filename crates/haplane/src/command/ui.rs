//! `haplane ui`: the fleet page. Read-only; what it shows are the documents of `status`, `why` and
//! `log`, asked for by whoever looks at the page.
//!
//! The questions are answered one after the other by the command itself, so that ten viewers ask the
//! agents no more often than one does.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use haplane_agent::page::{self, File};
use haplane_daemon::admin_http;
use haplane_daemon::shutdown::{Signals, until_stopped};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cli::{FleetOptions, LogOptions, StatusOptions, UiOptions, WhyOptions};
use crate::command::{log, status, why};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::report::Report;
use crate::session::Session;

/// A status that is this young is shown again and not asked for anew.
const FRESH: Duration = Duration::from_secs(1);
/// Questions that wait; one more is refused.
const WAITING: usize = 64;
/// Log entries shown.
const LOG_ENTRIES: usize = 50;

const PAGES: [File; 2] = [
    File::new("/", page::HTML, include_str!("ui/fleet.html")),
    File::new("/fleet.js", page::SCRIPT, include_str!("ui/fleet.js")),
];

enum Wanted {
    Status,
    Why(String),
    Log,
}

struct Question {
    wanted: Wanted,
    answer: oneshot::Sender<Result<Value, Failure>>,
}

/// Serves the page until a signal ends it.
pub async fn run(session: &Session, options: &UiOptions) -> Result<Report, Failure> {
    let address = options.ui_listen;
    if !address.ip().is_loopback() && !options.ui_allow_remote {
        return Err(Failure::usage(format!(
            "--ui-listen {address} is reached from other machines, and everybody there could read the \
             fleet's state: add --ui-allow-remote when a network policy or a proxy says who may"
        )));
    }
    let unexpected = |what: &str| {
        let what = what.to_owned();
        move |error| Failure::new(Exit::Unexpected, format!("cannot {what}: {error}"))
    };
    let listener = admin_http::bind(address).await.map_err(|error| {
        Failure::usage(format!(
            "cannot listen on {address}: {error}; choose another with --ui-listen"
        ))
    })?;
    let bound = listener
        .local_addr()
        .map_err(unexpected("tell the address"))?;
    let mut signals = Signals::new().map_err(unexpected("listen to signals"))?;
    let stop = CancellationToken::new();
    let (ask, questions) = mpsc::channel(WAITING);
    session.output.note(&format!(
        "the fleet page is at http://{bound}/ until Ctrl-C"
    ));
    tokio::join!(
        admin_http::serve(listener, router(ask), stop.clone()),
        answer_all(session, &options.fleet, questions, &stop),
        until_stopped(&mut signals, &stop, || {}),
    );
    Ok(Report::new(json!({"served": bound})))
}

fn router(ask: mpsc::Sender<Question>) -> Router {
    Router::new()
        .route("/v1/status", get(status_document))
        .route("/v1/why", get(why_document))
        .route("/v1/log", get(log_document))
        .with_state(ask)
        .merge(page::serve(PAGES.into_iter().chain(page::SHARED)))
}

type Asker = State<mpsc::Sender<Question>>;

async fn status_document(State(ask): Asker) -> Response {
    answered(&ask, Wanted::Status).await
}

async fn log_document(State(ask): Asker) -> Response {
    answered(&ask, Wanted::Log).await
}

#[derive(Deserialize)]
struct Row {
    row: String,
}

async fn why_document(State(ask): Asker, Query(Row { row }): Query<Row>) -> Response {
    answered(&ask, Wanted::Why(row)).await
}

async fn answered(ask: &mpsc::Sender<Question>, wanted: Wanted) -> Response {
    let (answer, answered) = oneshot::channel();
    let refused = |message: &str| {
        let document = json!({"error": {"message": message}});
        (StatusCode::SERVICE_UNAVAILABLE, Json(document)).into_response()
    };
    if ask.try_send(Question { wanted, answer }).is_err() {
        return refused("too many look at this page at once; it goes on by itself");
    }
    match answered.await {
        Ok(Ok(document)) => Json(document).into_response(),
        Ok(Err(failure)) => {
            let error = json!({"message": failure.message, "exit": failure.exit.status()});
            let status = match failure.exit {
                Exit::Usage | Exit::Refused => StatusCode::NOT_FOUND,
                _ => StatusCode::BAD_GATEWAY,
            };
            (status, Json(json!({"error": error}))).into_response()
        }
        Err(_) => refused("haplane ui is ending"),
    }
}

async fn answer_all(
    session: &Session,
    fleet: &FleetOptions,
    mut questions: mpsc::Receiver<Question>,
    stop: &CancellationToken,
) {
    let mut kept: Option<(Instant, Value)> = None;
    while let Some(Some(question)) = stop.run_until_cancelled(questions.recv()).await {
        let fresh = kept.as_ref().filter(|(at, _)| at.elapsed() < FRESH);
        let document = match (&question.wanted, fresh) {
            (Wanted::Status, Some((_, document))) => Ok(document.clone()),
            (wanted, _) => look(session, fleet, wanted).await,
        };
        if let (Wanted::Status, Ok(document), None) = (&question.wanted, &document, fresh) {
            kept = Some((Instant::now(), document.clone()));
        }
        // Whoever asked may have gone.
        let _ = question.answer.send(document);
    }
}

async fn look(session: &Session, fleet: &FleetOptions, wanted: &Wanted) -> Result<Value, Failure> {
    let fleet = fleet.clone();
    let report = match wanted {
        Wanted::Status => {
            let options = StatusOptions {
                watch: false,
                all: true,
                fleet,
            };
            status::look(session, &options).await?
        }
        Wanted::Why(row) => {
            let row = row.clone();
            why::run(session, &WhyOptions { row, fleet }).await?
        }
        Wanted::Log => {
            let limit = LOG_ENTRIES;
            log::run(session, &LogOptions::newest(limit)).await?
        }
    };
    Ok(report.document)
}

/// Where the page is when nothing is said.
pub const LISTEN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9780);
