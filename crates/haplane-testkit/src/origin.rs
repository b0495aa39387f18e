//! Origins: the servers behind HAProxy. Each answers with its own name.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncWriteExt, BufStream};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::http::{Request, read_request};
use crate::listening::Listening;
use crate::ports::Port;

/// The response header with the origin's name.
pub const ORIGIN_HEADER: &str = "X-Origin";

/// A small HTTP/1.1 server on loopback. Dropping it closes its port and its connections.
///
/// | path | answer |
/// |---|---|
/// | `/health` | 200, or 503 after [`Origin::set_healthy`]`(false)`, but not while [`Origin::hold_health`]; counted apart |
/// | `/long?pieces=N&pause_ms=M` | a body of N bytes, one each M milliseconds |
/// | any other | 200, the name as header `X-Origin` and as body |
#[derive(Debug)]
pub struct Origin {
    name: String,
    port: Port,
    shared: Arc<Shared>,
    listening: Option<Listening>,
}

#[derive(Debug, Default)]
struct Shared {
    served: AtomicU64,
    checked: AtomicU64,
    sick: AtomicBool,
    held: watch::Sender<bool>,
}

impl Origin {
    /// Starts an origin on a port of its own.
    pub fn start(name: &str) -> Self {
        let shared = Arc::default();
        let mut origin = Self {
            name: name.to_owned(),
            port: Port::reserve(),
            shared,
            listening: None,
        };
        origin.up();
        origin
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// How many requests it has begun to answer, without health checks.
    pub fn served(&self) -> u64 {
        self.shared.served.load(Ordering::Relaxed)
    }

    /// How many health checks it has received.
    pub fn checked(&self) -> u64 {
        self.shared.checked.load(Ordering::Relaxed)
    }

    /// Whether health checks, also those that it has received, wait for their answer.
    pub fn hold_health(&self, held: bool) {
        self.shared.held.send_replace(held);
    }

    /// What `/health` says from now on.
    pub fn set_healthy(&self, healthy: bool) {
        self.shared.sick.store(!healthy, Ordering::Relaxed);
    }

    /// Closes its port and all its connections, as when the process dies.
    pub async fn down(&mut self) {
        if let Some(listening) = self.listening.take() {
            listening.stop().await;
        }
    }

    /// Listens again after [`Self::down`], on the same port.
    pub fn up(&mut self) {
        let (name, shared) = (
            Arc::<str>::from(self.name.as_str()),
            Arc::clone(&self.shared),
        );
        self.listening = Some(Listening::start(&self.port, move |stream| {
            let (name, shared) = (Arc::clone(&name), Arc::clone(&shared));
            // A client that goes away is no failure of the origin.
            async move { serve(stream, &name, &shared).await.unwrap_or_default() }
        }));
    }
}

async fn serve(stream: TcpStream, name: &str, shared: &Shared) -> io::Result<()> {
    let mut stream = BufStream::new(stream);
    while let Some(request) = read_request(&mut stream).await? {
        if request.path_only() == "/health" {
            shared.checked.fetch_add(1, Ordering::Relaxed);
            let mut held = shared.held.subscribe();
            // Without a sender the origin is gone, and so is the test.
            let _gone = held.wait_for(|held| !held).await;
        }
        let status = match request.path_only() {
            "/health" if shared.sick.load(Ordering::Relaxed) => "503 Service Unavailable",
            "/health" => "200 OK",
            _ => {
                shared.served.fetch_add(1, Ordering::Relaxed);
                "200 OK"
            }
        };
        if request.path_only() == "/long" {
            long(&mut stream, &request, name).await?;
        } else {
            let length = name.len();
            let head = format!(
                "HTTP/1.1 {status}\r\n{ORIGIN_HEADER}: {name}\r\nContent-Length: {length}\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).await?;
            // No body follows an answer to HEAD.
            stream
                .write_all(if request.method == "HEAD" {
                    b""
                } else {
                    name.as_bytes()
                })
                .await?;
            stream.flush().await?;
        }
        if request
            .headers
            .get("connection")
            .is_some_and(|how| how.eq_ignore_ascii_case("close"))
        {
            return Ok(());
        }
    }
    Ok(())
}

async fn long(stream: &mut BufStream<TcpStream>, request: &Request, name: &str) -> io::Result<()> {
    let number = |parameter| {
        request
            .query(parameter)
            .and_then(|text| text.parse().ok())
            .unwrap_or(10)
    };
    let (pieces, pause) = (number("pieces"), Duration::from_millis(number("pause_ms")));
    let head =
        format!("HTTP/1.1 200 OK\r\n{ORIGIN_HEADER}: {name}\r\nContent-Length: {pieces}\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    for _ in 0..pieces {
        stream.write_all(b".").await?;
        stream.flush().await?;
        tokio::time::sleep(pause).await;
    }
    Ok(())
}
