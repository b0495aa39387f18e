//! The node page: files of this binary, for a person who looks. Read-only, no asset from elsewhere.

use axum::Router;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// Scripts, styles and figures from this server alone; nothing inline, nothing framed.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

/// One file of a page.
#[derive(Clone, Copy, Debug)]
pub struct File {
    /// Its path.
    pub path: &'static str,
    kind: &'static str,
    text: &'static str,
}

impl File {
    /// A file of a page, served at `path` as `kind`.
    pub const fn new(path: &'static str, kind: &'static str, text: &'static str) -> Self {
        Self { path, kind, text }
    }
}

/// Media type of a page.
pub const HTML: &str = "text/html; charset=utf-8";
/// Media type of a script.
pub const SCRIPT: &str = "text/javascript; charset=utf-8";

/// What every page of ours needs.
pub const SHARED: [File; 3] = [
    File::new(
        "/page.css",
        "text/css; charset=utf-8",
        include_str!("page/page.css"),
    ),
    File::new("/dom.js", SCRIPT, include_str!("page/dom.js")),
    File::new("/icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
];

const NODE: [File; 2] = [
    File::new("/", HTML, include_str!("page/node.html")),
    File::new("/node.js", SCRIPT, include_str!("page/node.js")),
];

/// The node page.
pub fn routes() -> Router {
    serve(NODE.into_iter().chain(SHARED))
}

/// Routes that serve these files.
pub fn serve(files: impl IntoIterator<Item = File>) -> Router {
    files.into_iter().fold(Router::new(), |router, file| {
        router.route(file.path, get(async move || answer(file)))
    })
}

fn answer(file: File) -> Response {
    let headers = [
        (CONTENT_TYPE, file.kind),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-cache"),
    ];
    (headers, file.text).into_response()
}
