//! One client: one connection at a time to Consul's HTTP API, kept alive between requests.
//!
//! A blocking query parks its connection, so whoever watches something has a client of its own
//! ([`Client::sibling`]).

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, HOST, PRAGMA};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::Full;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::sync::{Mutex, watch};

use crate::blocking::off_the_loop;
use crate::consul::connection::{Answer, Broken, Connection, Stage};
use crate::consul::settings::ConsulSettings;
use crate::consul::token::{Reread, Token};
use crate::error::{StoreError, StoreErrorKind};

/// How long an ordinary request may take: Consul itself holds one for 7 s while it looks for a
/// leader (facts 8.3).
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);

/// How much of an answer that is none is shown.
const SHOWN_CHARS: usize = 200;

const PATH: &AsciiSet = &QUERY.remove(b'/');
const QUERY: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// A client of one Consul agent.
pub struct Client {
    shared: Arc<Shared>,
    lane: Mutex<Option<Lane>>,
}

struct Shared {
    settings: ConsulSettings,
    token: Token,
    /// Counts the times that the operator asked for the files to be read again.
    reloads: watch::Sender<u64>,
}

struct Lane {
    connection: Connection,
    dialled_at_reload: u64,
}

/// Whether a request goes out on a connection that was just made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freshness {
    New,
    Reused,
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    /// Path and query, encoded.
    pub(crate) target: Target,
    pub(crate) body: Bytes,
    pub(crate) deadline: Duration,
}

/// A request that brought no answer.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: StoreError,
    /// Whether Consul may have got the request all the same.
    pub(crate) sent: bool,
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self { error, sent: false }
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        failure.error
    }
}

/// Path and query of a request, put together from unencoded parts.
#[derive(Clone, Debug)]
pub(crate) struct Target(String);

impl Target {
    /// `root` as it is, then a path that may hold anything.
    pub(crate) fn new(root: &str, path: &str) -> Self {
        Self(format!("{root}{}", utf8_percent_encode(path, PATH)))
    }

    /// With one more parameter; an empty value is a bare name.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.0.push(if self.0.contains('?') { '&' } else { '?' });
        self.0.push_str(name);
        if !value.is_empty() {
            // Writing to a String cannot fail.
            let _ = write!(self.0, "={}", utf8_percent_encode(value, QUERY));
        }
        self
    }

    /// With one more parameter if it has a value.
    pub(crate) fn with_some(self, name: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }
}

impl Call {
    pub(crate) fn get(target: Target) -> Self {
        Self {
            method: Method::GET,
            target,
            body: Bytes::new(),
            deadline: DEADLINE,
        }
    }

    pub(crate) fn put(target: Target, body: impl Into<Bytes>) -> Self {
        Self {
            method: Method::PUT,
            target,
            body: body.into(),
            deadline: DEADLINE,
        }
    }
}

impl Client {
    /// A client that has no connection yet.
    pub fn new(settings: ConsulSettings) -> Self {
        let shared = Shared {
            token: Token::new(settings.token.clone()),
            settings,
            reloads: watch::Sender::new(0),
        };
        Self {
            shared: Arc::new(shared),
            lane: Mutex::new(None),
        }
    }

    /// Another client of the same Consul, with a connection of its own.
    #[must_use]
    pub fn sibling(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            lane: Mutex::new(None),
        }
    }

    /// The settings that it was made with.
    pub fn settings(&self) -> &ConsulSettings {
        &self.shared.settings
    }

    /// Reads token and TLS files again: the connections of this client and its siblings are made
    /// anew, a read under way fails.
    pub fn reload(&self) {
        self.shared.reloads.send_modify(|count| *count += 1);
    }

    /// Another number for each reload and each token.
    pub(crate) fn rights(&self) -> u64 {
        *self.shared.reloads.borrow() + self.shared.token.changes()
    }

    pub(crate) async fn reread_token(&self) -> Result<Reread, StoreError> {
        let shared = Arc::clone(&self.shared);
        off_the_loop(move || shared.token.reread()).await?
    }

    /// Sends a request that is the same on any connection.
    pub(crate) async fn send(&self, call: Call) -> Result<Answer, Failure> {
        let (answer, _) = self.send_with(|_| call.clone()).await?;
        Ok(answer)
    }

    /// Sends one request. A read is repeated once when a connection that was kept from earlier
    /// turns out to be closed, a write only when it certainly never left. Refused with a token
    /// that has changed in its file meanwhile, it is sent once more. Gives the answer and whether it
    /// came over a new connection.
    pub(crate) async fn send_with(
        &self,
        call: impl Fn(Freshness) -> Call,
    ) -> Result<(Answer, Freshness), Failure> {
        // Held for the whole request, and every request has its deadline.
        let mut lane = self.lane.lock().await;
        let mut may_repeat = true;
        let mut may_reread = true;
        loop {
            let (mut current, freshness) = self.open(lane.take()).await?;
            let call = call(freshness);
            match self.round_trip(&mut current, &call).await {
                Ok(answer) => {
                    *lane = Some(current);
                    let forbidden = answer.status == StatusCode::FORBIDDEN;
                    if forbidden && may_reread && self.reread_token().await? == Reread::Changed {
                        may_reread = false;
                        continue;
                    }
                    return Ok((answer, freshness));
                }
                Err(broken) => {
                    let harmless = match broken.stage {
                        Stage::Unsent => true,
                        Stage::Sent => call.method == Method::GET,
                        Stage::Answering => false,
                    };
                    let broke = broken.error.kind == StoreErrorKind::Unreachable;
                    if freshness == Freshness::Reused && broke && harmless && may_repeat {
                        may_repeat = false;
                        continue;
                    }
                    return Err(Failure {
                        error: broken.error,
                        sent: broken.stage != Stage::Unsent,
                    });
                }
            }
        }
    }

    async fn open(&self, kept: Option<Lane>) -> Result<(Lane, Freshness), StoreError> {
        let reload = *self.shared.reloads.borrow();
        if let Some(lane) = kept
            && lane.connection.is_open()
            && lane.dialled_at_reload == reload
        {
            return Ok((lane, Freshness::Reused));
        }
        self.reread_token().await?;
        let settings = &self.shared.settings;
        let lane = Lane {
            connection: Connection::dial(&settings.address, &settings.tls).await?,
            dialled_at_reload: reload,
        };
        Ok((lane, Freshness::New))
    }

    async fn round_trip(&self, lane: &mut Lane, call: &Call) -> Result<Answer, Broken> {
        let address = &self.shared.settings.address;
        let request = self.request(call).map_err(|error| Broken {
            stage: Stage::Unsent,
            error,
        })?;
        let dialled_at = lane.dialled_at_reload;
        let mut reloads = self.shared.reloads.subscribe();
        let reloaded = async {
            // Only a read gives way; a write under way is finished.
            if call.method != Method::GET || reloads.wait_for(|n| *n != dialled_at).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let broken = |kind, what| Broken {
            stage: Stage::Sent,
            error: StoreError::new(kind, what),
        };
        tokio::select! {
            answer = lane.connection.round_trip(address, request) => answer,
            () = tokio::time::sleep(call.deadline) => Err(broken(
                StoreErrorKind::Timeout,
                format!("Consul at {address} gave no answer within {:?}", call.deadline),
            )),
            () = reloaded => Err(broken(
                StoreErrorKind::Unreachable,
                "the connection to Consul is made anew to read token and TLS files again".to_owned(),
            )),
        }
    }

    fn request(&self, call: &Call) -> Result<Request<Full<Bytes>>, StoreError> {
        let settings = &self.shared.settings;
        let target = call
            .target
            .clone()
            .with_some("dc", settings.datacenter.as_deref())
            .with_some("ns", settings.namespace.as_deref());
        let target = if call.method == Method::GET {
            // No cache has seen this one before. Consul does not look at it.
            target.with("once", &format!("{:016x}", fastrand::u64(..)))
        } else {
            target
        };
        let wrong = |source: http::Error| {
            StoreError::new(StoreErrorKind::Config, "this request cannot be sent").because(source)
        };
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(target.0)
            .header(HOST, settings.address.authority())
            .body(Full::new(call.body.clone()))
            .map_err(wrong)?;
        let fields = request.headers_mut();
        fields.insert(
            CACHE_CONTROL,
            HeaderValue::from_static("no-cache, no-store"),
        );
        fields.insert(PRAGMA, HeaderValue::from_static("no-cache"));
        fields.insert(
            "user-agent",
            HeaderValue::from_static(concat!("haplane/", env!("CARGO_PKG_VERSION"))),
        );
        if let Some(token) = self.shared.token.header()? {
            fields.insert("x-consul-token", token);
        }
        Ok(request)
    }

    /// The error that a status stands for, when it is none that the caller knows. `doing` says what
    /// was tried, `permission` what the token would need for it.
    pub(crate) fn refusal(&self, answer: &Answer, doing: &str, permission: &str) -> StoreError {
        let said = self.said(answer);
        match answer.status {
            StatusCode::FORBIDDEN => denied(doing, &said, permission),
            StatusCode::PAYLOAD_TOO_LARGE => StoreError::new(
                StoreErrorKind::TooLarge,
                format!("Consul finds this too large, {doing}: {said}"),
            ),
            status => StoreError::new(
                StoreErrorKind::Status,
                format!("Consul answered {}, {doing}: {said}", status.as_u16()),
            ),
        }
    }

    /// What an answer says, short enough and safe to be shown.
    pub(crate) fn said(&self, answer: &Answer) -> String {
        let text = String::from_utf8_lossy(&answer.body);
        let text = self.shared.token.redact(text.trim());
        let shown: String = text
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .take(SHOWN_CHARS)
            .collect();
        if shown.is_empty() {
            "(nothing)".to_owned()
        } else {
            shown
        }
    }
}

/// A missing permission, named. Of a token that it does not have at all, Consul says `ACL not found`.
pub(crate) fn denied(doing: &str, said: &str, permission: &str) -> StoreError {
    let what = if said.contains("ACL not found") {
        format!(
            "Consul does not know this token, {doing} ({said}): it was deleted, is mistyped or is of another \
             datacenter; one that it knows needs {permission}"
        )
    } else {
        format!("Consul denies it, {doing} ({said}); the token needs {permission}")
    };
    StoreError::new(StoreErrorKind::Denied, what)
}

/// A body that should be JSON of this shape.
pub(crate) fn decode<'a, T: serde::Deserialize<'a>>(
    answer: &'a Answer,
    doing: &str,
) -> Result<T, StoreError> {
    serde_json::from_slice(&answer.body).map_err(|source| {
        let what = format!("the answer of Consul cannot be understood, {doing}");
        StoreError::new(StoreErrorKind::Undecodable, what).because(source)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_parameters_are_encoded() {
        let target = Target::new("/v1/kv/", "a b/ü?#%2F&x,3A")
            .with("recurse", "")
            .with_some("dc", Some("d c&1"))
            .with_some("ns", None);
        assert_eq!(
            target.0,
            "/v1/kv/a%20b/%C3%BC%3F%23%252F%26x%2C3A?recurse&dc=d%20c%261"
        );
    }
}
