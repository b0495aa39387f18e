//! The metrics page: one registry a process, and the process's own figures.
//!
//! Only this module and the modules that register metrics know the metrics crate.

mod panel;
mod process;

use std::sync::Arc;

use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

pub use panel::{Panel, Seconds};

/// OpenMetrics, which Prometheus reads as well.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A registry with the process's own metrics and `haplane_build_info`.
pub fn registry(version: &str) -> Registry {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(process::ProcessCollector::new()));
    let build = Info::new(vec![("version", version.to_owned())]);
    registry.register("haplane_build", "The version that runs", build);
    registry
}

/// The page.
pub fn page(registry: &Arc<Registry>) -> Response {
    let mut text = String::new();
    match encode(&mut text, registry) {
        Ok(()) => ([(CONTENT_TYPE, OPENMETRICS)], text).into_response(),
        Err(error) => {
            let status = axum::http::StatusCode::INTERNAL_SERVER_ERROR;
            (status, format!("cannot write the metrics: {error}\n")).into_response()
        }
    }
}
