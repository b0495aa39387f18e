//! As much HTTP/1.1 as the kit needs, by hand, so that broken answers can be made and seen.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{
    AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader,
};
use tokio::net::{TcpStream, UnixStream};

/// How long one request of the kit itself may take. Longer than Consul holds a request without a leader.
const REQUEST: Duration = Duration::from_secs(15);

/// Most bytes of a head, and most bytes of a body, that the kit reads.
const HEAD_LIMIT: u64 = 64 * 1024;
const BODY_LIMIT: u64 = 64 * 1024 * 1024;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// `http://` on this address.
    Tcp(SocketAddr),
    /// HTTP over this unix socket.
    Unix(PathBuf),
}

impl From<SocketAddr> for Target {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

/// Header names and values, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(pub Vec<(String, String)>);

impl Headers {
    /// The first value of a header; names are compared without case.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }
}

/// What a server answered.
#[derive(Clone, Debug)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The headers.
    pub headers: Headers,
    /// The whole body.
    pub body: Vec<u8>,
}

impl Response {
    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON. Panics, showing it, if it is none.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| {
            panic!(
                "not JSON ({error}), status {}: {}",
                self.status,
                self.text()
            )
        })
    }

    /// Itself, if the status is 200; else a panic that shows the answer.
    #[track_caller]
    #[must_use]
    pub fn ok(self) -> Self {
        assert_eq!(self.status, 200, "{}", self.text());
        self
    }
}

/// A request of the kit: method, path with query, headers, body.
#[derive(Clone, Debug)]
pub struct Request {
    /// `GET`, `PUT`, …
    pub method: String,
    /// Path and query, as on the wire.
    pub path: String,
    /// The headers, without `Host`, `Connection` and `Content-Length` when it is to be sent.
    pub headers: Headers,
    /// The body.
    pub body: Vec<u8>,
}

impl Request {
    /// A request without headers and body.
    pub fn new(method: &str, path: &str) -> Self {
        Self {
            method: method.to_owned(),
            path: path.to_owned(),
            headers: Headers::default(),
            body: Vec::new(),
        }
    }

    /// `GET`.
    pub fn get(path: &str) -> Self {
        Self::new("GET", path)
    }

    /// `PUT` with a body.
    pub fn put(path: &str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            body: body.into(),
            ..Self::new("PUT", path)
        }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.0.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The path without the query.
    pub fn path_only(&self) -> &str {
        self.path.split('?').next().unwrap_or_default()
    }

    /// The value of a query parameter; empty for one without a value.
    pub fn query(&self, name: &str) -> Option<&str> {
        let (_, query) = self.path.split_once('?')?;
        query
            .split('&')
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .find(|pair| pair.0 == name)
            .map(|p| p.1)
    }

    /// Sends it on a connection of its own and reads the whole answer.
    pub async fn send(&self, target: &Target) -> io::Result<Response> {
        tokio::time::timeout(REQUEST, self.exchange(target)).await?
    }

    async fn exchange(&self, target: &Target) -> io::Result<Response> {
        match target {
            Target::Tcp(address) => self.send_over(TcpStream::connect(address).await?).await,
            Target::Unix(path) => self.send_over(UnixStream::connect(path).await?).await,
        }
    }

    /// Sends it over a connection that is open already, for example one with TLS.
    pub async fn send_over(
        &self,
        mut stream: impl AsyncRead + AsyncWrite + Unpin,
    ) -> io::Result<Response> {
        use std::fmt::Write as _;

        let mut head = format!(
            "{} {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n",
            self.method, self.path
        );
        for (name, value) in &self.headers.0 {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        let _ = write!(head, "Content-Length: {}\r\n\r\n", self.body.len());
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(&self.body).await?;
        let mut reader = BufReader::new(stream);
        let (first, headers) = read_head(&mut reader)
            .await?
            .ok_or_else(|| broken("closed without an answer"))?;
        let status = first
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .ok_or_else(|| broken("no status line"))?;
        let body = read_body(&mut reader, &headers, Ending::AtClose).await?;
        Ok(Response {
            status,
            headers,
            body,
        })
    }
}

/// Where a body ends that announces no length.
#[derive(Clone, Copy)]
enum Ending {
    AtOnce,
    AtClose,
}

/// Reads one request of a client, or `None` when it has closed instead.
pub async fn read_request(reader: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<Request>> {
    let Some((first, headers)) = read_head(reader).await? else {
        return Ok(None);
    };
    let mut words = first.split(' ');
    let (method, path) = (
        words.next().unwrap_or_default().to_owned(),
        words.next().unwrap_or_default().to_owned(),
    );
    let body = read_body(reader, &headers, Ending::AtOnce).await?;
    Ok(Some(Request {
        method,
        path,
        headers,
        body,
    }))
}

async fn read_head(
    reader: &mut (impl AsyncBufRead + Unpin),
) -> io::Result<Option<(String, Headers)>> {
    let mut reader = reader.take(HEAD_LIMIT);
    let mut first = String::new();
    if reader.read_line(&mut first).await? == 0 {
        return Ok(None);
    }
    let mut headers = Headers::default();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).await? == 0 {
            return Err(broken("closed within the head"));
        }
        match line.trim_end().split_once(':') {
            Some((name, value)) => headers.0.push((name.to_owned(), value.trim().to_owned())),
            None => return Ok(Some((first.trim_end().to_owned(), headers))),
        }
    }
}

async fn read_body(
    reader: &mut (impl AsyncBufRead + Unpin),
    headers: &Headers,
    ending: Ending,
) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    if headers
        .get("transfer-encoding")
        .is_some_and(|how| how.eq_ignore_ascii_case("chunked"))
    {
        loop {
            let mut size = String::new();
            reader.read_line(&mut size).await?;
            let size =
                u64::from_str_radix(size.trim(), 16).map_err(|_| broken("no size of a chunk"))?;
            read_exactly(reader, size, &mut body).await?;
            reader.read_line(&mut String::new()).await?;
            if size == 0 {
                return Ok(body);
            }
        }
    }
    match (headers.get("content-length"), ending) {
        (Some(length), _) => {
            let length = length.parse().map_err(|_| broken("no number as length"))?;
            read_exactly(reader, length, &mut body).await?;
        }
        (None, Ending::AtClose) => {
            reader.take(BODY_LIMIT).read_to_end(&mut body).await?;
        }
        (None, Ending::AtOnce) => {}
    }
    Ok(body)
}

async fn read_exactly(
    reader: &mut (impl AsyncBufRead + Unpin),
    length: u64,
    into: &mut Vec<u8>,
) -> io::Result<()> {
    let before = into.len() as u64;
    reader
        .take(length.min(BODY_LIMIT))
        .read_to_end(into)
        .await?;
    if into.len() as u64 - before < length {
        Err(broken("the body ended early"))
    } else {
        Ok(())
    }
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
