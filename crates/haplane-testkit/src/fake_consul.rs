//! A Consul that can be told to misbehave.
//!
//! It is honest by default: it keeps keys, raises its index with every change and holds
//! blocking queries, as facts about Consul 1.8 say. On top of that a test scripts what a
//! real Consul will not do on demand: replies cut in half, garbage with status 200,
//! indexes that go back, silence, resets.

mod keys;
mod reply;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, BufStream};
use tokio::net::TcpStream;
use tokio::sync::watch;

pub use reply::Reply;

use crate::http::{Request, read_request};
use crate::listening::Listening;
use crate::ports::Port;
use keys::Keys;
use reply::{Answer, Content};

/// A request that the fake received.
#[derive(Clone, Debug)]
pub struct Received {
    /// The request.
    pub request: Request,
    /// The connection it came on, counted from 1.
    pub connection: u64,
    /// When it came.
    pub at: Instant,
}

/// A fake Consul on loopback. Dropping it closes its port and its connections.
#[derive(Debug)]
pub struct FakeConsul {
    port: Port,
    shared: Arc<Shared>,
    listening: Option<Listening>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Sent to whenever held requests must look again.
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    keys: Keys,
    script: VecDeque<Reply>,
    standing: Vec<(String, Reply)>,
    interruption: (u64, Reply),
    received: Vec<Received>,
    connections: u64,
    held: usize,
}

impl FakeConsul {
    /// Starts an honest one without keys.
    pub fn start() -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed: watch::Sender::new(()),
        });
        let mut fake = Self {
            port: Port::reserve(),
            shared,
            listening: None,
        };
        fake.up();
        fake
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// Writes a key, honestly: a changed value raises the index and wakes held queries.
    pub fn put(&self, key: &str, value: &str) {
        self.shared.lock().keys.put(key, value.as_bytes(), 0);
        self.shared.changed.send_replace(());
    }

    /// Deletes a key, honestly.
    pub fn delete(&self, key: &str) {
        self.shared.lock().keys.delete(key);
        self.shared.changed.send_replace(());
    }

    /// The present index.
    pub fn index(&self) -> u64 {
        self.shared.lock().keys.index()
    }

    /// Loses everything: no keys, and the index starts again. As in a real loss of data, a
    /// query that is held with an old index sleeps on.
    pub fn forget_everything(&self) {
        self.shared.lock().keys = Keys::default();
    }

    /// The next reads of keys get these replies, one each; after that it is honest again.
    pub fn script(&self, replies: impl IntoIterator<Item = Reply>) {
        self.shared.lock().script.extend(replies);
    }

    /// From now on every request whose path starts with `path` gets this reply (the latest
    /// such call counts); a script goes before it.
    pub fn always(&self, path: &str, reply: Reply) {
        self.shared.lock().standing.push((path.to_owned(), reply));
    }

    /// Takes back the script and all [`Self::always`].
    pub fn honest(&self) {
        let mut state = self.shared.lock();
        state.script.clear();
        state.standing.clear();
    }

    /// Gives this reply at once to every query that is held.
    pub fn interrupt(&self, reply: Reply) {
        let mut state = self.shared.lock();
        state.interruption = (state.interruption.0 + 1, reply);
        drop(state);
        self.shared.changed.send_replace(());
    }

    /// How many queries are held now.
    pub fn held(&self) -> usize {
        self.shared.lock().held
    }

    /// How many replies of the script have not been given yet.
    pub fn unsaid(&self) -> usize {
        self.shared.lock().script.len()
    }

    /// All requests so far.
    pub fn received(&self) -> Vec<Received> {
        self.shared.lock().received.clone()
    }

    /// Closes the port and all connections, as when the process dies. The keys stay.
    pub async fn down(&mut self) {
        if let Some(listening) = self.listening.take() {
            listening.stop().await;
        }
    }

    /// Listens again after [`Self::down`], on the same port.
    pub fn up(&mut self) {
        let shared = Arc::clone(&self.shared);
        self.listening = Some(Listening::start(&self.port, move |stream| {
            let shared = Arc::clone(&shared);
            async move {
                let connection = shared.lock().next_connection();
                // Whoever goes away in the middle is the test's business, not the fake's.
                serve(stream, connection, &shared).await.unwrap_or_default();
            }
        }));
    }
}

async fn serve(stream: TcpStream, connection: u64, shared: &Shared) -> std::io::Result<()> {
    let mut stream = BufStream::new(stream);
    while let Some(request) = read_request(&mut stream).await? {
        let received = Received {
            request: request.clone(),
            connection,
            at: Instant::now(),
        };
        shared.lock().received.push(received);
        let reply = shared.lock().reply_to(&request);
        tokio::time::sleep(reply.delay).await;
        let Some(answer) = answer(shared, &request, &reply, &mut stream).await? else {
            return Ok(());
        };
        if !answer.send(&mut stream).await? {
            return Ok(());
        }
    }
    Ok(())
}

/// Finds the answer, which may take as long as a blocking query. `None`: the client has gone.
async fn answer(
    shared: &Shared,
    request: &Request,
    reply: &Reply,
    stream: &mut BufStream<TcpStream>,
) -> std::io::Result<Option<Answer>> {
    let honest = match reply.content {
        Content::WhenChanged => {
            let held = Held::new(shared);
            let deadline = Instant::now() + held_for(request);
            let before = shared.lock().interruption.0;
            let mut changed = shared.changed.subscribe();
            loop {
                {
                    let state = shared.lock();
                    if state.interruption.0 != before {
                        let reply = state.interruption.1.clone();
                        drop(state);
                        drop(held);
                        let honest = shared.lock().keys.answer(request);
                        return Ok(Some(reply.edit(honest)));
                    }
                    if Instant::now() >= deadline || !state.keys.holds(request) {
                        break;
                    }
                }
                tokio::select! {
                    _ = changed.changed() => {}
                    () = tokio::time::sleep_until(deadline.into()) => {}
                    gone = stream.fill_buf() => if gone?.is_empty() { return Ok(None) },
                }
            }
            drop(held);
            shared.lock().keys.answer(request)
        }
        Content::AtOnce => shared.lock().keys.answer(request),
        Content::Never => {
            let _held = Held::new(shared);
            while !stream.fill_buf().await?.is_empty() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            return Ok(None);
        }
    };
    Ok(Some(reply.edit(honest)))
}

/// Counts a held query for as long as it lives.
struct Held<'a>(&'a Shared);

impl<'a> Held<'a> {
    fn new(shared: &'a Shared) -> Self {
        shared.lock().held += 1;
        Self(shared)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.lock().held -= 1;
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn next_connection(&mut self) -> u64 {
        self.connections += 1;
        self.connections
    }

    fn reply_to(&mut self, request: &Request) -> Reply {
        let reads_keys = request.method == "GET" && request.path.starts_with("/v1/kv/");
        if reads_keys && let Some(reply) = self.script.pop_front() {
            return reply;
        }
        let standing = self
            .standing
            .iter()
            .rev()
            .find(|(path, _)| request.path.starts_with(path));
        standing.map(|(_, reply)| reply.clone()).unwrap_or_default()
    }
}

/// How long a query may be held: its `wait`, else Consul's default.
fn held_for(request: &Request) -> Duration {
    let wait = request.query("wait").unwrap_or("5m");
    let digits = wait.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number = digits.parse().unwrap_or_else(|_| panic!("wait={wait}"));
    match &wait[digits.len()..] {
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        "m" => Duration::from_secs(number * 60),
        _ => panic!("wait={wait}"),
    }
}
