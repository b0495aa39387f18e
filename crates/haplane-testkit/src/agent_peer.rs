//! Both sides of an agent check: one that HAProxy asks, and one that asks as HAProxy does.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::listening::Listening;
use crate::ports::Port;

/// After this silence what has arrived is the whole ask: HAProxy never closes its side,
/// and not every `agent-send` ends with a line feed.
const SILENCE: Duration = Duration::from_millis(100);

/// How long HAProxy's side waits for an answer, unless told otherwise.
const ANSWER: Duration = Duration::from_secs(3);

/// What a recording agent does when it is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Say {
    /// Sends these bytes and closes.
    Text(String),
    /// Sends these bytes and keeps the connection open until HAProxy closes.
    AndStayOpen(String),
    /// Sends these bytes and closes, but not before [`RecordingAgent::release`].
    WhenReleased(String),
    /// Closes without a byte.
    Nothing,
    /// Never answers.
    Silence,
    /// Resets the connection.
    Reset,
}

/// One ask that an agent received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Exactly what was sent.
    pub bytes: Vec<u8>,
    /// When it was complete.
    pub at: Instant,
}

/// An agent that says what it is told to, and records every ask.
#[derive(Debug)]
pub struct RecordingAgent {
    port: Port,
    shared: Arc<Mutex<Shared>>,
    listening: Option<Listening>,
}

#[derive(Debug)]
struct Shared {
    to_all: Say,
    by_first_word: BTreeMap<String, Say>,
    asks: Vec<Ask>,
    releases: watch::Sender<u64>,
}

impl RecordingAgent {
    /// Starts an agent that says this to everybody.
    pub fn start(to_all: Say) -> Self {
        let shared = Shared {
            to_all,
            by_first_word: BTreeMap::new(),
            asks: Vec::new(),
            releases: watch::Sender::new(0),
        };
        let mut agent = Self {
            port: Port::reserve(),
            shared: Arc::new(Mutex::new(shared)),
            listening: None,
        };
        agent.up();
        agent
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// What it says from now on to an ask with this first word.
    pub fn say(&self, first_word: &str, say: Say) {
        self.lock().by_first_word.insert(first_word.to_owned(), say);
    }

    /// What it says from now on to every other ask.
    pub fn say_to_all(&self, say: Say) {
        self.lock().to_all = say;
    }

    /// All asks so far.
    pub fn asks(&self) -> Vec<Ask> {
        self.lock().asks.clone()
    }

    /// How many asks so far had this first word.
    pub fn asked(&self, first_word: &str) -> usize {
        let is_it = |ask: &&Ask| first_word_of(&ask.bytes).as_deref() == Some(first_word);
        self.lock().asks.iter().filter(is_it).count()
    }

    /// Sends every answer that was held back until now.
    pub fn release(&self) {
        self.lock().releases.send_modify(|releases| *releases += 1);
    }

    /// Closes its port: an ask is refused, as with a dead agent.
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
            // HAProxy may close at any time.
            async move { answer(stream, &shared).await.unwrap_or_default() }
        }));
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn answer(mut stream: TcpStream, shared: &Mutex<Shared>) -> io::Result<()> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\n") {
        match tokio::time::timeout(SILENCE, stream.read_buf(&mut bytes)).await {
            Ok(Ok(0)) | Err(_) => break,
            Ok(read) => drop(read?),
        }
    }
    let (say, mut releases) = {
        let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
        let say = first_word_of(&bytes)
            .and_then(|word| shared.by_first_word.get(&word))
            .unwrap_or(&shared.to_all)
            .clone();
        shared.asks.push(Ask {
            bytes,
            at: Instant::now(),
        });
        (say, shared.releases.subscribe())
    };
    match say {
        Say::Text(text) => stream.write_all(text.as_bytes()).await,
        Say::AndStayOpen(text) => {
            stream.write_all(text.as_bytes()).await?;
            until_closed(stream).await
        }
        Say::WhenReleased(text) => {
            if releases.changed().await.is_err() {
                return Ok(());
            }
            stream.write_all(text.as_bytes()).await
        }
        Say::Nothing => Ok(()),
        Say::Silence => until_closed(stream).await,
        Say::Reset => stream.set_zero_linger(),
    }
}

fn first_word_of(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    text.split_whitespace().next().map(str::to_owned)
}

async fn until_closed(mut stream: TcpStream) -> io::Result<()> {
    while stream.read(&mut [0; 256]).await? > 0 {}
    Ok(())
}

/// Asks as HAProxy does: sends the bytes, keeps its side open, and reads to the line's
/// end or to the close.
pub async fn ask(agent: SocketAddr, words: &[u8]) -> io::Result<Vec<u8>> {
    Asking::of(agent).ask(words).await
}

/// An ask that differs from HAProxy's in some way.
#[derive(Clone, Copy, Debug)]
pub struct Asking {
    agent: SocketAddr,
    pause: Option<Duration>,
    patience: Duration,
}

impl Asking {
    /// An ask as HAProxy makes it.
    pub fn of(agent: SocketAddr) -> Self {
        Self {
            agent,
            pause: None,
            patience: ANSWER,
        }
    }

    /// Sends byte by byte, with a pause after each.
    #[must_use]
    pub fn slowly(mut self, pause: Duration) -> Self {
        self.pause = Some(pause);
        self
    }

    /// Gives up after this time, as `timeout check` does.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Asks. The answer holds everything up to the line's end, or, without one, up to the
    /// close; empty when the agent closed without a byte.
    pub async fn ask(&self, words: &[u8]) -> io::Result<Vec<u8>> {
        let exchange = async {
            let mut stream = TcpStream::connect(self.agent).await?;
            stream.set_nodelay(true)?;
            match self.pause {
                None => stream.write_all(words).await?,
                Some(pause) => {
                    for byte in words {
                        stream.write_all(&[*byte]).await?;
                        tokio::time::sleep(pause).await;
                    }
                }
            }
            let mut answer = Vec::new();
            while !answer.contains(&b'\n') && stream.read_buf(&mut answer).await? > 0 {}
            Ok(answer)
        };
        tokio::time::timeout(self.patience, exchange).await?
    }
}
