//! One connection to Consul: dialled, used for one request at a time, dropped to cancel.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_util::task::AbortOnDropHandle;

use crate::blocking::off_the_loop;
use crate::consul::address::Address;
use crate::consul::tls::{self, TlsSettings};
use crate::error::{StoreError, StoreErrorKind};

/// How long a dial, with its TLS handshake, may take.
const DIAL_DEADLINE: Duration = Duration::from_secs(5);
/// The largest answer: some hundred thousand keys.
const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;
/// The largest head of an answer, and the most fields in it.
const MAX_HEAD_BYTES: usize = 64 * 1024;
const MAX_FIELDS: usize = 64;

/// One answer, whole.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) fields: HeaderMap,
    pub(crate) body: Bytes,
}

/// How far a request came before it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Nothing of it left this process.
    Unsent,
    /// It may have arrived; no answer came.
    Sent,
    /// The answer began and was not finished, or was too large.
    Answering,
}

/// A request that brought no whole answer.
pub(crate) struct Broken {
    pub(crate) stage: Stage,
    pub(crate) error: StoreError,
}

/// One connection. Dropping it closes it, whatever is under way.
pub(crate) struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    _driver: AbortOnDropHandle<()>,
}

impl Connection {
    pub(crate) async fn dial(address: &Address, tls: &TlsSettings) -> Result<Self, StoreError> {
        let dialled = tokio::time::timeout(DIAL_DEADLINE, dial(address, tls)).await;
        dialled.unwrap_or_else(|_| {
            let what = format!("Consul at {address} took no connection within {DIAL_DEADLINE:?}");
            Err(StoreError::new(StoreErrorKind::Timeout, what))
        })
    }

    /// Whether it can take another request, as far as is known.
    pub(crate) fn is_open(&self) -> bool {
        self.sender.is_ready() && !self.sender.is_closed()
    }

    pub(crate) async fn round_trip(
        &mut self,
        address: &Address,
        request: Request<Full<Bytes>>,
    ) -> Result<Answer, Broken> {
        let lost = |stage, source| Broken {
            stage,
            error: StoreError::new(
                StoreErrorKind::Unreachable,
                format!(
                    "the connection to Consul at {address} broke before an answer was complete"
                ),
            )
            .because(source),
        };
        self.sender
            .ready()
            .await
            .map_err(|source| lost(Stage::Unsent, source))?;
        let response = self
            .sender
            .try_send_request(request)
            .await
            .map_err(|mut unsent| {
                let stage = match unsent.take_message() {
                    Some(_) => Stage::Unsent,
                    None => Stage::Sent,
                };
                lost(stage, unsent.into_error())
            })?;
        let (head, body) = response.into_parts();
        let body =
            Limited::new(body, MAX_BODY_BYTES)
                .collect()
                .await
                .map_err(|source| match source.downcast::<hyper::Error>() {
                    Ok(source) => lost(Stage::Answering, *source),
                    Err(source) => Broken {
                        stage: Stage::Answering,
                        error: body_error(address, source),
                    },
                })?;
        Ok(Answer {
            status: head.status,
            fields: head.headers,
            body: body.to_bytes(),
        })
    }
}

fn body_error(address: &Address, source: Box<dyn std::error::Error + Send + Sync>) -> StoreError {
    let kind = if source.is::<LengthLimitError>() {
        StoreErrorKind::TooLarge
    } else {
        StoreErrorKind::Unreachable
    };
    let what = format!("the answer of Consul at {address} is beyond {MAX_BODY_BYTES} bytes");
    StoreError {
        kind,
        what,
        source: Some(source),
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

async fn dial(address: &Address, tls: &TlsSettings) -> Result<Connection, StoreError> {
    let stream: Box<dyn Stream> = match address {
        Address::Unix(path) => Box::new(dial_unix(path).await?),
        Address::Tcp {
            host,
            port,
            tls: false,
        } => Box::new(dial_tcp(address, host, *port).await?),
        Address::Tcp {
            host,
            port,
            tls: true,
        } => {
            let settings = tls.clone();
            let connector = off_the_loop(move || tls::connector(&settings)).await??;
            let stream = dial_tcp(address, host, *port).await?;
            let name = tls.server_name.as_deref().unwrap_or(host);
            let plain = Address::Tcp {
                host: host.clone(),
                port: *port,
                tls: false,
            };
            Box::new(tls::handshake(&connector, name, &plain, stream).await?)
        }
    };
    let (sender, driver) = http1::Builder::new()
        .max_headers(MAX_FIELDS)
        .max_header_size(MAX_HEAD_BYTES)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|source| unreachable(address).because(source))?;
    // Its end is seen by whoever uses the sender next; its error says no more than that one's.
    let driver = tokio::spawn(async move { drop(driver.await) });
    Ok(Connection {
        sender,
        _driver: AbortOnDropHandle::new(driver),
    })
}

async fn dial_tcp(address: &Address, host: &str, port: u16) -> Result<TcpStream, StoreError> {
    let stream = TcpStream::connect((host, port))
        .await
        .map_err(|source| unreachable(address).because(source))?;
    stream
        .set_nodelay(true)
        .map_err(|source| unreachable(address).because(source))?;
    Ok(stream)
}

async fn dial_unix(path: &Path) -> Result<UnixStream, StoreError> {
    UnixStream::connect(path)
        .await
        .map_err(|source| unreachable(&Address::Unix(path.to_owned())).because(source))
}

fn unreachable(address: &Address) -> StoreError {
    let what = format!("cannot reach Consul at {address}: is its agent running?");
    StoreError::new(StoreErrorKind::Unreachable, what)
}
