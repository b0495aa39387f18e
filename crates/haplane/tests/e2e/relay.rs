//! A way to a peer that can be cut.

use std::net::SocketAddr;

use haplane_testkit::ports::Port;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// Carries connections to one peer, until it is cut (or dropped).
pub(crate) struct Relay {
    port: Port,
    carrying: JoinHandle<()>,
}

impl Relay {
    pub(crate) async fn to(peer: SocketAddr) -> Self {
        let port = Port::reserve();
        let listener = TcpListener::bind(port.address()).await.unwrap();
        let carrying = tokio::spawn(async move {
            // Aborted with the task that holds them.
            let mut connections = JoinSet::new();
            while let Ok((mut near, _)) = listener.accept().await {
                connections.spawn(async move {
                    let mut far = TcpStream::connect(peer).await?;
                    copy_bidirectional(&mut near, &mut far).await
                });
            }
        });
        Self { port, carrying }
    }

    /// The peer's Consul, as a store.
    pub(crate) fn store(&self) -> String {
        format!("consul:http://{}", self.port.address())
    }

    /// Closes every connection, and refuses new ones.
    pub(crate) fn cut(&self) {
        self.carrying.abort();
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.cut();
    }
}
