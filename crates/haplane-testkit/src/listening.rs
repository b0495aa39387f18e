//! Accepting connections until dropped.

use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::ports::Port;

/// A port on which every connection is served by a task of its own. Dropping it closes
/// the port and ends all connections, soon; [`Listening::stop`] waits for that.
#[derive(Debug)]
pub(crate) struct Listening {
    task: JoinHandle<()>,
}

impl Listening {
    /// Starts to serve; needs a tokio runtime around it.
    pub(crate) fn start<Serving>(
        port: &Port,
        serve: impl Fn(TcpStream) -> Serving + Send + 'static,
    ) -> Self
    where
        Serving: Future<Output = ()> + Send + 'static,
    {
        let listener = port.listen();
        listener.set_nonblocking(true).unwrap();
        let listener = TcpListener::from_std(listener).unwrap();
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream));
                while connections.try_join_next().is_some() {}
            }
        });
        Self { task }
    }

    pub(crate) async fn stop(mut self) {
        self.task.abort();
        // What it returns is that it was aborted.
        drop((&mut self.task).await);
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.task.abort();
    }
}
