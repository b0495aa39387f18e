//! The small HTTP server of a daemon: pages, probes and metrics, never anything that HAProxy waits
//! for.
//!
//! axum routes; the accept loop is ours, because it bounds connections, headers and time.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use crate::connections::Connections;
use crate::unstalled::Unstalled;

/// Connections at once; one more takes the place of the oldest. Each may keep a page in memory
/// until it is read.
const MAX_CONNECTIONS: usize = 64;
/// For a request's headers, and between two requests of one connection.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a peer may refuse to read what is sent to it.
const STALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of headers.
const MAX_HEADER_BYTES: usize = 16 * 1024;
/// How long a connection may take to finish its request once we are to stop.
const GRACE: Duration = Duration::from_secs(2);
/// After an `accept` that failed for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until stopped. Connections that are at a request then may finish it.
pub async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) {
    let mut connections = Connections::new(MAX_CONNECTIONS);
    let mut is_failing = false;
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
            () = connections.ended() => continue,
        };
        match accepted {
            Ok((stream, peer)) => {
                is_failing = false;
                connections.admit(connection(stream, peer, router.clone(), stop.clone()));
            }
            Err(error) => {
                // Told once, or a process without descriptors would write twenty lines a second.
                if !std::mem::replace(&mut is_failing, true) {
                    tracing::warn!(%error, "cannot accept HTTP connections");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    connections.finish(GRACE).await;
}

async fn connection(stream: TcpStream, peer: SocketAddr, router: Router, stop: CancellationToken) {
    let service = service_fn(move |request: Request<Incoming>| {
        let mut router = router.clone();
        async move {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(ConnectInfo(peer));
            Ok::<_, Infallible>(
                router
                    .call(request)
                    .await
                    .unwrap_or_else(|never| match never {}),
            )
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEADER_BYTES)
        .serve_connection(TokioIo::new(Unstalled::new(stream, STALL_TIMEOUT)), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::trace!(%error, %peer, "an HTTP connection ended early");
    }
}

/// Binds the address, saying to whom it failed.
pub async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Bytes;
    use std::net::Ipv4Addr;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::timeout;

    const SOON: Duration = Duration::from_secs(5);

    async fn asks(address: SocketAddr, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    #[tokio::test]
    async fn those_who_take_nothing_keep_nobody_from_an_answer() {
        // More than two sockets' buffers hold; shared, so that the test stays small.
        let big = Bytes::from(vec![b'x'; 16 << 20]);
        let router = Router::new()
            .route("/big", axum::routing::get(async move || big.clone()))
            .route("/healthz", axum::routing::get(|| async { "ok" }));
        let listener = bind((Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let serving = tokio::spawn(serve(listener, router, stop.clone()));

        let mut deaf = Vec::new();
        for _ in 0..MAX_CONNECTIONS {
            let stream = asks(address, "/big").await;
            // It has its place once the answer has begun.
            timeout(SOON, stream.readable()).await.unwrap().unwrap();
            deaf.push(stream);
        }
        let mut answer = String::new();
        let mut health = asks(address, "/healthz").await;
        timeout(SOON, health.read_to_string(&mut answer))
            .await
            .unwrap()
            .unwrap();
        assert!(answer.ends_with("ok"), "{answer}");
        stop.cancel();
        timeout(SOON, serving).await.unwrap().unwrap();
    }
}
