//! One agent's HTTP side, asked over one connection within a deadline.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use haplane_core::key::is_unprintable;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::TcpStream;

/// How long a dial may take.
const DIAL: Duration = Duration::from_secs(1);
/// The largest answer: 50,000 rows with all that is observed of them.
const MAX_BODY: usize = 64 << 20;

/// Where an agent's HTTP side listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AgentAddress {
    host: String,
    port: u16,
}

/// Not `http://HOST:PORT` or `HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no address of an agent: write http://HOST:PORT or HOST:PORT")]
pub struct AddressError(String);

impl AgentAddress {
    /// An address from its parts; IPv6 without brackets.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self {
            host: host.into(),
            port,
        }
    }

    fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl FromStr for AgentAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = || AddressError(text.to_owned());
        let rest = text.strip_prefix("http://").unwrap_or(text);
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = rest.rsplit_once(':').ok_or_else(wrong)?;
        let bare = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let is_plain = !host.is_empty()
            && (bare.is_some() || !host.contains(':'))
            && !host.contains(['/', '@', '?', ' ']);
        let port = port.parse().ok().filter(|port| *port > 0);
        match port {
            Some(port) if is_plain => Ok(Self::new(bare.unwrap_or(host), port)),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for AgentAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.authority())
    }
}

/// A connection to one agent.
pub(crate) struct Connection {
    authority: String,
    sender: SendRequest<Full<Bytes>>,
    _driver: tokio_util::task::AbortOnDropHandle<()>,
}

impl Connection {
    pub(crate) async fn dial(address: &AgentAddress) -> Result<Self, String> {
        let dial = TcpStream::connect((address.host.as_str(), address.port));
        let stream = match tokio::time::timeout(DIAL, dial).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(error.to_string()),
            Err(_) => return Err(format!("no connection within {DIAL:?}")),
        };
        let (sender, driver) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| error.to_string())?;
        // Its end shows when the sender is used next.
        let driver = tokio::spawn(async move { drop(driver.await) });
        Ok(Self {
            authority: address.authority(),
            sender,
            _driver: tokio_util::task::AbortOnDropHandle::new(driver),
        })
    }

    /// Reads one JSON page, whole.
    pub(crate) async fn get<T: DeserializeOwned>(&mut self, path: &str) -> Result<T, String> {
        let (status, body) = self
            .exchange(Request::get(path), path, Bytes::new())
            .await?;
        if status != StatusCode::OK {
            return Err(format!(
                "{path} is answered with status {}",
                status.as_u16()
            ));
        }
        read(&body).map_err(|error| format!("{path} cannot be understood: {error}"))
    }

    /// Sends one JSON document; the status and the document that come back.
    pub(crate) async fn post(
        &mut self,
        path: &str,
        document: &Value,
    ) -> Result<(StatusCode, Value), String> {
        let request = Request::post(path).header(header::CONTENT_TYPE, "application/json");
        let (status, body) = self
            .exchange(request, path, document.to_string().into())
            .await?;
        let document =
            read(&body).map_err(|error| format!("{path} cannot be understood: {error}"))?;
        Ok((status, document))
    }

    async fn exchange(
        &mut self,
        request: http::request::Builder,
        path: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), String> {
        let request = request
            .header(header::HOST, &self.authority)
            .body(Full::new(body))
            .map_err(|error| error.to_string())?;
        self.sender
            .ready()
            .await
            .map_err(|error| error.to_string())?;
        let answer = self
            .sender
            .send_request(request)
            .await
            .map_err(|error| format!("{path}: {error}"))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MAX_BODY).collect().await;
        let body = body.map_err(|error| format!("{path} is not whole: {error}"))?;
        Ok((status, body.to_bytes()))
    }
}

/// Reads a page. What a peer says is shown to people, and the peer may be anybody who could
/// register: no text of it may bring a character to a terminal that moves the cursor or forges a
/// line.
fn read<T: DeserializeOwned>(body: &[u8]) -> serde_json::Result<T> {
    // In JSON control characters are escaped, and everything else that is invisible is not ASCII.
    let is_plain = body.iter().all(|&byte| byte.is_ascii() && byte != b'\\');
    if is_plain {
        return serde_json::from_slice(body);
    }
    let mut page = serde_json::from_slice(body)?;
    clean(&mut page);
    serde_json::from_value(page)
}

fn clean(value: &mut Value) {
    match value {
        Value::String(text) => clean_text(text),
        Value::Array(items) => items.iter_mut().for_each(clean),
        Value::Object(fields) => {
            for (mut name, mut value) in std::mem::take(fields) {
                clean_text(&mut name);
                clean(&mut value);
                fields.insert(name, value);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn clean_text(text: &mut String) {
    if text.contains(is_unprintable) {
        *text = text.replace(is_unprintable, "\u{fffd}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_peer_says_cannot_move_the_cursor_or_forge_a_line() {
        let body =
            r#"{"a\u001b[2J": ["x\ny", {"b": "\u202eevil\u009b"}], "n": 7, "ok": "Zoë \"q\" \\"}"#;
        let page: Value = read(body.as_bytes()).unwrap();
        let want = serde_json::json!({
            "a\u{fffd}[2J": ["x\u{fffd}y", {"b": "\u{fffd}evil\u{fffd}"}], "n": 7, "ok": "Zoë \"q\" \\",
        });
        assert_eq!(page, want);
        let plain: Vec<u32> = read(b"[1, 2]").unwrap();
        assert_eq!(plain, [1, 2]);
        assert!(read::<Value>(b"{\"a\": \"\\").is_err());
    }

    #[test]
    fn addresses() {
        for (text, shown) in [
            ("http://127.0.0.1:9778", "http://127.0.0.1:9778"),
            ("lb-01:9778", "http://lb-01:9778"),
            ("http://[::1]:9778/", "http://[::1]:9778"),
        ] {
            assert_eq!(text.parse::<AgentAddress>().unwrap().to_string(), shown);
        }
        for bad in [
            "",
            "lb-01",
            "https://lb:1",
            "http://lb:0",
            "http://u@lb:1",
            "::1:9778",
            "http://lb:1/x",
        ] {
            assert!(bad.parse::<AgentAddress>().is_err(), "{bad:?}");
        }
    }
}
