//! The synchroniser's HTTP side: probes, metrics, what every slot is at, and the confirmation of a held list.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{ConnectInfo, Extension, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use prometheus_client::registry::Registry;
use serde::Deserialize;
use serde_json::json;

use crate::board::Board;
use crate::metrics::Metrics;
use crate::view;

/// What the pages show.
#[derive(Debug)]
pub struct Shown {
    /// What is known.
    pub board: Arc<Board>,
    /// The counters.
    pub metrics: Arc<Metrics>,
    /// The page of all metrics.
    pub registry: Arc<Registry>,
}

/// The routes.
pub fn router(shown: Arc<Shown>) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/v1/pools", get(pools))
        .route("/v1/confirm", post(confirm))
        .with_state(shown)
}

type Pages = State<Arc<Shown>>;

async fn healthz(State(shown): Pages) -> Response {
    let stuck = shown.board.stuck();
    if stuck.is_empty() {
        return (StatusCode::OK, "ok\n").into_response();
    }
    (
        StatusCode::SERVICE_UNAVAILABLE,
        format!("the loop of {} is stuck\n", stuck.join(", ")),
    )
        .into_response()
}

async fn readyz(State(shown): Pages) -> Response {
    let troubles = shown.board.trouble();
    if troubles.is_empty() {
        return (StatusCode::OK, "ready\n").into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, troubles.join("\n") + "\n").into_response()
}

async fn metrics(State(shown): Pages, request: HeaderMap) -> Response {
    shown.metrics.show(&shown.board);
    haplane_daemon::metrics::page(&shown.registry, &request)
}

async fn pools(State(shown): Pages) -> Response {
    Json(view::pools(&shown.board)).into_response()
}

/// Which held list to accept.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Confirm {
    pool: String,
    /// How many instances the operator was shown; another number by now is refused.
    #[serde(default)]
    has: Option<usize>,
}

async fn confirm(
    State(shown): Pages,
    Extension(ConnectInfo(peer)): Extension<ConnectInfo<SocketAddr>>,
    body: Bytes,
) -> Response {
    let refuse =
        |status: StatusCode, why: String| (status, Json(json!({ "error": why }))).into_response();
    if !peer.ip().to_canonical().is_loopback() {
        return refuse(
            StatusCode::FORBIDDEN,
            "a held list is confirmed from this machine only".to_owned(),
        );
    }
    let wish: Confirm = match serde_json::from_slice(&body) {
        Ok(wish) => wish,
        Err(error) => {
            return refuse(
                StatusCode::BAD_REQUEST,
                format!("send {{\"pool\": NAME}}: {error}"),
            );
        }
    };
    let pool = shown
        .board
        .pools
        .iter()
        .find(|pool| pool.settings.name == wish.pool);
    let Some(pool) = pool else {
        return refuse(
            StatusCode::NOT_FOUND,
            format!("there is no pool {:?}", wish.pool),
        );
    };
    match pool.confirm(wish.has) {
        Ok((had, has)) => {
            Json(json!({ "pool": wish.pool, "had": had, "has": has })).into_response()
        }
        Err(error) => refuse(StatusCode::CONFLICT, error.to_string()),
    }
}
