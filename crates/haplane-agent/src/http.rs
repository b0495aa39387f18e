//! The agent's HTTP side: probes, metrics and the JSON that the fleet commands read.

mod view;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use haplane_core::Key;
use haplane_core::guard::Refusal;
use haplane_core::resolve::Policy;
use haplane_store::AnyStore;
use jiff::Timestamp;
use prometheus_client::registry::Registry;
use serde_json::json;

use crate::metrics::Metrics;
use crate::observer::board::Board;
use crate::observer::survey::{Surveyed, Surveyor, count};
use crate::page;
use crate::pulse::Pulse;
use crate::readable::{Readable, Unreadable};
use crate::registration::Rival;
use crate::rows::Rows;
use crate::standing::Standing;

/// The most keys of one request to `/v1/absent`. Each may have to be asked for, and is remembered.
pub const ABSENT_AT_ONCE: usize = 512;

/// What the pages show.
#[derive(Debug)]
pub struct Shown {
    /// This node's name.
    pub node: String,
    /// The version that runs.
    pub version: &'static str,
    /// Since when it runs.
    pub started_at: Timestamp,
    /// `consul` or `dir`.
    pub store_kind: &'static str,
    /// Where the store is.
    pub store_address: String,
    /// The store itself, which may hold back losses that it does not believe yet.
    pub store: Arc<AnyStore>,
    /// The root of its keys.
    pub state_prefix: String,
    /// How it stands with the store.
    pub standing: Standing,
    /// Which keys it denies.
    pub readable: Arc<Readable>,
    /// What was asked and answered.
    pub rows: Arc<Mutex<Rows>>,
    /// What every HAProxy showed.
    pub board: Arc<Board>,
    /// The site's choices.
    pub policy: Policy,
    /// The port where HAProxy asks.
    pub port: u16,
    /// A drain older than this counts as forgotten.
    pub forgotten_after: Duration,
    /// The counters.
    pub metrics: Arc<Metrics>,
    /// The page of all metrics.
    pub registry: Arc<Registry>,
    /// Whether the responder's thread turns.
    pub pulse: Pulse,
    /// Who else registers by this node's name.
    pub rival: Rival,
}

/// The routes.
pub fn router(shown: Arc<Shown>) -> Router {
    let long = Router::new()
        .route("/metrics", get(metrics))
        .route("/v1/state", get(state))
        .route("/v1/rows", get(rows));
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/v1/node", get(node))
        .route("/v1/absent", post(absent))
        .merge(one_after_another(long))
        .with_state(shown)
        .merge(page::routes())
}

/// Pages that grow with the number of rows and keys are rendered one at a time, however many are
/// asked for, so that the probes always find a free processor.
fn one_after_another<S: Clone + Send + Sync + 'static>(pages: Router<S>) -> Router<S> {
    let turn = Arc::new(tokio::sync::Mutex::new(()));
    pages.layer(from_fn_with_state(turn, wait_for_turn))
}

async fn wait_for_turn(
    State(turn): State<Arc<tokio::sync::Mutex<()>>>,
    request: Request,
    next: Next,
) -> Response {
    let _turn = turn.lock().await;
    next.run(request).await
}

type Pages = State<Arc<Shown>>;

async fn healthz(State(shown): Pages) -> Response {
    match shown.pulse.trouble() {
        None => (StatusCode::OK, "ok\n").into_response(),
        Some(trouble) => (StatusCode::SERVICE_UNAVAILABLE, format!("{trouble}\n")).into_response(),
    }
}

async fn readyz(State(shown): Pages) -> Response {
    let readiness = shown.standing.readiness();
    match readiness {
        // Whoever is told that the agent is ready may ask it at once.
        Ok(_) if !shown.pulse.has_begun() => {
            let reason = "the first snapshot is here, the port opens in a moment\n";
            (StatusCode::SERVICE_UNAVAILABLE, reason).into_response()
        }
        Ok(text) => (StatusCode::OK, format!("{text}\n")).into_response(),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response(),
    }
}

async fn metrics(State(shown): Pages, request: HeaderMap) -> Response {
    let (verdicts, not_enrolled) = count(&shown.survey());
    shown.metrics.verdicts(&verdicts, not_enrolled);
    shown.metrics.guard(shown.refusal());
    if let Some(snapshot) = shown.standing.snapshot() {
        shown.metrics.keys(&snapshot, Timestamp::now());
    }
    shown.metrics.forgotten_drains(shown.forgotten_drains());
    haplane_daemon::metrics::page(&shown.registry, &request)
}

async fn node(State(shown): Pages) -> Json<view::Node> {
    Json(view::Node::of(&shown))
}

/// Whether these keys are truly absent, for whoever decides from `/v1/state`: the store is asked, by
/// name, for those that no row has asked for yet.
async fn absent(State(shown): Pages, Json(keys): Json<Vec<String>>) -> Response {
    if keys.len() > ABSENT_AT_ONCE {
        let why = format!("ask for at most {ABSENT_AT_ONCE} keys at once\n");
        return (StatusCode::PAYLOAD_TOO_LARGE, why).into_response();
    }
    let keys: Result<Vec<Key>, _> = keys.iter().map(|key| key.parse()).collect();
    let Ok(keys) = keys else {
        return (StatusCode::BAD_REQUEST, "one of these is no key\n").into_response();
    };
    let said = shown.readable.may_be_absent(&keys, None).await;
    let why = said.err().map(Unreadable::as_str);
    Json(json!({"absent": said.is_ok(), "why": why})).into_response()
}

async fn state(State(shown): Pages) -> Json<view::State> {
    Json(view::State::of(&shown.standing))
}

async fn rows(State(shown): Pages) -> Json<Vec<view::Row>> {
    Json(shown.survey().into_iter().map(view::Row::of).collect())
}

impl Shown {
    fn survey(&self) -> Vec<Surveyed> {
        Surveyor {
            rows: &self.rows,
            board: &self.board,
            snapshot: self.standing.snapshot().as_deref(),
            policy: self.policy,
            port: self.port,
        }
        .survey()
    }

    /// Why what the store says is refused, as a whole or for single keys.
    fn refusal(&self) -> Option<Refusal> {
        let guarded = self.standing.view().guard;
        let denial = || self.readable.denial().map(|denial| denial.why.refusal());
        let held = || self.store.held().map(|_| Refusal::Refilling);
        let reason = guarded.map(|guarded| guarded.reason);
        reason.or_else(denial).or_else(held)
    }

    fn forgotten_drains(&self) -> usize {
        let since = Timestamp::now().checked_sub(self.forgotten_after);
        let snapshot = self.standing.snapshot();
        snapshot.map_or(0, |snapshot| {
            snapshot.forgotten(since.unwrap_or(Timestamp::MIN))
        })
    }

    fn rows(&self) -> std::sync::MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use haplane_daemon::admin_http;
    use haplane_testkit::http::{Request, Target};
    use tokio_util::sync::CancellationToken;

    use super::{Arc, Router, get, one_after_another};

    #[tokio::test(flavor = "multi_thread")]
    async fn long_pages_are_written_one_at_a_time() {
        let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (within, peak) = (Arc::clone(&inside), Arc::clone(&most));
        let long = async move || {
            peak.fetch_max(within.fetch_add(1, SeqCst) + 1, SeqCst);
            tokio::task::yield_now().await;
            within.fetch_sub(1, SeqCst);
            "written"
        };
        let pages = one_after_another(Router::new().route("/long", get(long)));
        let listener = admin_http::bind((Ipv4Addr::LOCALHOST, 0).into())
            .await
            .unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let serving = tokio::spawn(admin_http::serve(listener, pages, stop.clone()));
        let mut asking = tokio::task::JoinSet::new();
        for _ in 0..32 {
            asking.spawn(async move {
                let answer = Request::get("/long").send(&Target::Tcp(address)).await;
                answer.unwrap().text()
            });
        }
        let answers = asking.join_all().await;
        assert!(answers.iter().all(|text| text == "written"), "{answers:?}");
        assert_eq!((most.load(SeqCst), inside.load(SeqCst)), (1, 0));
        stop.cancel();
        serving.await.unwrap();
    }
}
