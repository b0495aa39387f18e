//! The metrics page: one registry a process, and the process's own figures.
//!
//! Only this module and the modules that register metrics know the metrics crate.

mod panel;
mod plain;
mod process;

use std::sync::Arc;

use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CONTENT_TYPE, VARY};
use axum::response::{IntoResponse, Response};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

pub use panel::{Panel, Seconds};

/// What Prometheus asks for.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What everybody else understands.
const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A registry with the process's own metrics and `haplane_build_info`.
pub fn registry(version: &str) -> Registry {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(process::ProcessCollector::new()));
    let build = Info::new(vec![("version", version.to_owned())]);
    registry.register("haplane_build", "The version that runs", build);
    registry
}

/// The page, in the format that the request asks for: OpenMetrics by name, else the older text format.
pub fn page(registry: &Arc<Registry>, request: &HeaderMap) -> Response {
    let mut text = String::new();
    if let Err(error) = encode(&mut text, registry) {
        let status = axum::http::StatusCode::INTERNAL_SERVER_ERROR;
        return (status, format!("cannot write the metrics: {error}\n")).into_response();
    }
    let (kind, text) = if wants_openmetrics(request) {
        (OPENMETRICS, text)
    } else {
        (PLAIN, plain::from_openmetrics(&text))
    };
    ([(CONTENT_TYPE, kind), (VARY, "accept")], text).into_response()
}

fn wants_openmetrics(request: &HeaderMap) -> bool {
    let accepted = request.get_all(ACCEPT).iter();
    accepted
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.contains("application/openmetrics-text"))
}
