//! Profiles over HTTP in pprof's format, under the paths that Go programs use:
//!
//! * `/debug/pprof/profile?seconds=N`: where processor time goes (feature `cpu-profile`);
//! * `/debug/pprof/heap`: what memory is held by whom (feature `heap-profile`).
//!
//! One at a time, bounded, and only for those who may. A build without the feature says so.

#[cfg(feature = "cpu-profile")]
mod cpu;
#[cfg(feature = "cpu-profile")]
mod encode;
#[cfg(feature = "heap-profile")]
mod heap;
#[cfg(feature = "cpu-profile")]
mod mappings;
#[cfg(feature = "cpu-profile")]
mod symbols;

#[cfg(not(all(feature = "cpu-profile", feature = "heap-profile")))]
use std::future::ready;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Deserialize;
use tokio::sync::Semaphore;

/// Who may take profiles, which cost memory and reveal the inside of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The page is on loopback, or its settings say `pprof = true`.
    Open,
    /// Nobody.
    Closed,
}

impl Access {
    /// Open on a loopback address, or where the settings ask for it.
    pub fn at(address: SocketAddr, asked_for: bool) -> Self {
        if address.ip().is_loopback() || asked_for {
            Self::Open
        } else {
            Self::Closed
        }
    }
}

/// Seconds of a processor profile when the request names none, and at most.
const DEFAULT_SECONDS: u64 = 10;
const MAX_SECONDS: u64 = 60;

#[derive(Clone)]
struct Profiles {
    access: Access,
    one_at_a_time: Arc<Semaphore>,
}

/// The routes.
pub fn routes(access: Access) -> Router {
    Router::new()
        .route("/debug/pprof/profile", get(cpu_profile))
        .route("/debug/pprof/heap", get(heap_profile))
        .with_state(Profiles {
            access,
            one_at_a_time: Arc::new(Semaphore::new(1)),
        })
}

#[derive(Deserialize)]
struct Wanted {
    seconds: Option<u64>,
}

async fn cpu_profile(State(profiles): State<Profiles>, Query(wanted): Query<Wanted>) -> Response {
    let seconds = wanted.seconds.unwrap_or(DEFAULT_SECONDS);
    if !(1..=MAX_SECONDS).contains(&seconds) {
        let text = format!("seconds is 1 to {MAX_SECONDS}, not {seconds}\n");
        return (StatusCode::BAD_REQUEST, text).into_response();
    }
    profiles.take(cpu(Duration::from_secs(seconds))).await
}

async fn heap_profile(State(profiles): State<Profiles>) -> Response {
    profiles.take(heap()).await
}

/// Why there is no profile.
#[derive(Debug, PartialEq, Eq)]
#[cfg_attr(
    all(feature = "cpu-profile", feature = "heap-profile"),
    expect(dead_code, reason = "nothing is left out of such a build")
)]
enum NoProfile {
    /// The build has not got it.
    LeftOut(&'static str),
    /// It could not be taken.
    #[cfg_attr(
        not(any(feature = "cpu-profile", feature = "heap-profile")),
        expect(dead_code, reason = "there is nothing that could fail")
    )]
    Failed(String),
}

impl Profiles {
    async fn take(&self, profile: impl Future<Output = Result<Vec<u8>, NoProfile>>) -> Response {
        if self.access == Access::Closed {
            let text =
                "profiles are served on a loopback address, or with pprof = true in [http]\n";
            return (StatusCode::FORBIDDEN, text).into_response();
        }
        let Ok(_alone) = self.one_at_a_time.try_acquire() else {
            let text = "another profile is being taken; try again when it has ended\n";
            return (StatusCode::CONFLICT, text).into_response();
        };
        match profile.await {
            Ok(bytes) => {
                let headers = [
                    (CONTENT_TYPE, "application/octet-stream"),
                    (CONTENT_DISPOSITION, "attachment; filename=\"haplane.pb\""),
                ];
                (headers, bytes).into_response()
            }
            Err(NoProfile::LeftOut(feature)) => {
                let text = format!(
                    "this haplane was built without the feature {feature}; `make profiled` builds one with it\n"
                );
                (StatusCode::NOT_IMPLEMENTED, text).into_response()
            }
            Err(NoProfile::Failed(why)) => {
                let text = format!("the profile could not be taken: {why}\n");
                (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
            }
        }
    }
}

#[cfg(feature = "cpu-profile")]
async fn cpu(lasting: Duration) -> Result<Vec<u8>, NoProfile> {
    cpu::profile(lasting)
        .await
        .map_err(|error| NoProfile::Failed(error.to_string()))
}

#[cfg(not(feature = "cpu-profile"))]
fn cpu(_: Duration) -> impl Future<Output = Result<Vec<u8>, NoProfile>> {
    ready(Err(NoProfile::LeftOut("cpu-profile")))
}

#[cfg(feature = "heap-profile")]
async fn heap() -> Result<Vec<u8>, NoProfile> {
    heap::profile().await.map_err(NoProfile::Failed)
}

#[cfg(not(feature = "heap-profile"))]
fn heap() -> impl Future<Output = Result<Vec<u8>, NoProfile>> {
    ready(Err(NoProfile::LeftOut("heap-profile")))
}

#[cfg(test)]
mod tests;
