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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::watch;

    use super::*;
    use crate::clock::Clock;
    use crate::pool::Pool;
    use crate::settings::tests::{read, with_pool};
    use crate::source::{Heard, Listing, Reading};

    fn shown() -> Arc<Shown> {
        let settings = read(&with_pool("")).unwrap();
        let changed = Arc::new(watch::Sender::new(0));
        let pools = Pool::all(&settings.pools, settings.sockets.len(), &changed);
        let board = Board::new(Clock::start(), pools, &settings.sockets, settings.reconcile);
        let mut registry = haplane_daemon::metrics::registry("test");
        let metrics = Arc::new(Metrics::register(&mut registry));
        Arc::new(Shown {
            board: Arc::new(board),
            metrics,
            registry: Arc::new(registry),
        })
    }

    async fn confirmed(shown: &Arc<Shown>, peer: &str, body: &'static str) -> StatusCode {
        let peer = Extension(ConnectInfo(peer.parse().unwrap()));
        let body = Bytes::from_static(body.as_bytes());
        confirm(State(Arc::clone(shown)), peer, body).await.status()
    }

    #[tokio::test]
    async fn a_held_list_is_confirmed_from_this_machine_only() {
        let shown = shown();
        let pool = &shown.board.pools[0];
        let now = shown.board.clock.now();
        pool.learn_baseline(&"/run/a.sock".into(), 3, now);
        let heard = pool.take(Reading::List(Listing::default()), now);
        assert_eq!(heard, Heard::Held);
        let wish = r#"{"pool": "web", "has": 0}"#;
        for (peer, body, expected) in [
            ("10.0.0.9:4000", wish, StatusCode::FORBIDDEN),
            ("[fd00::9]:4000", wish, StatusCode::FORBIDDEN),
            ("[::ffff:10.0.0.9]:4000", wish, StatusCode::FORBIDDEN),
            ("127.0.0.1:4000", "web", StatusCode::BAD_REQUEST),
            (
                "127.0.0.1:4000",
                r#"{"pool": "api"}"#,
                StatusCode::NOT_FOUND,
            ),
            (
                "127.0.0.1:4000",
                r#"{"pool": "web", "has": 1}"#,
                StatusCode::CONFLICT,
            ),
        ] {
            assert_eq!(
                confirmed(&shown, peer, body).await,
                expected,
                "{peer} {body}"
            );
            assert!(pool.standing().held.is_some(), "{peer} {body}");
        }
        assert_eq!(
            confirmed(&shown, "[::ffff:127.0.0.1]:4000", wish).await,
            StatusCode::OK
        );
        assert!(pool.standing().held.is_none());
    }

    /// The alert on it needs no word from a loop that no longer turns.
    #[tokio::test(start_paused = true)]
    async fn the_heartbeat_stops_with_a_loop() {
        let shown = shown();
        let beat = async || {
            let page = metrics(State(Arc::clone(&shown)), HeaderMap::new()).await;
            let page = axum::body::to_bytes(page.into_body(), usize::MAX)
                .await
                .unwrap();
            let page = String::from_utf8(page.to_vec()).unwrap();
            let name = "haplane_sync_heartbeat_timestamp_seconds ";
            let line = page.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().parse::<f64>().unwrap()
        };
        let healthy = async || healthz(State(Arc::clone(&shown))).await.status();
        let turn = || {
            let now = shown.board.clock.now();
            let socket = "/run/a.sock".into();
            shown
                .board
                .update(&socket, |process| process.last_turn = now);
        };
        let mut last = beat().await;
        for _ in 0..5 {
            tokio::time::advance(Duration::from_secs(30)).await;
            turn();
            let next = beat().await;
            assert!(next > last, "{next} {last}");
            last = next;
        }
        assert_eq!(healthy().await, StatusCode::OK);
        for _ in 0..5 {
            tokio::time::advance(Duration::from_mins(1)).await;
            assert_eq!(beat().await.to_bits(), last.to_bits());
        }
        assert_eq!(healthy().await, StatusCode::SERVICE_UNAVAILABLE);
        turn();
        assert!(beat().await > last);
    }
}
