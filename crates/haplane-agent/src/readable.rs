//! Whether an absence may be believed.
//!
//! Consul leaves out of a list, without a word, what the token may not read (facts 8.2). A key that
//! the snapshot does not have may be a drain that this agent is not shown, and to answer `ready` for
//! it would undo the drain. So before an answer that lets traffic in rests on the absence of a key,
//! the key is asked for once by its own name; that is where Consul says "denied". Until it has said
//! otherwise, the row is not answered, which changes nothing in HAProxy.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use haplane_core::{Key, kv_path};
use haplane_store::{Named, Store, View};
use jiff::Timestamp;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

/// How long a row waits for the word on its keys: within HAProxy's two seconds (facts 1).
const PATIENCE: Duration = Duration::from_millis(500);
/// The most keys that are remembered; all are asked for anew when there are more.
const MAX_KEYS: usize = 200_000;
/// How many are asked for between two looks at who waits.
const AT_ONCE: usize = 512;
/// How often keys that are denied are asked for again.
const DENIED_AGAIN: Duration = Duration::from_secs(5);
/// After a failure of the store.
const PAUSE: Duration = Duration::from_millis(250);
/// A store that fails for this long is away. Rows that ask for the first time are then answered from
/// the last snapshot, as all the others are.
const AWAY_AFTER: Duration = Duration::from_secs(3);
/// A store that has not answered by then fails.
const SLOW: Duration = Duration::from_secs(2);

/// Why an answer may not rest on the absence of these keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// The store denies at least one.
    Denied,
    /// It has not said yet.
    Unknown,
}

impl Unreadable {
    /// The word for it in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Denied => "denied_key",
            Self::Unknown => "unproven_key",
        }
    }
}

/// Keys that rows ask for and that the store denies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// Since when there is at least one.
    pub since: Timestamp,
    /// How many.
    pub keys: usize,
    /// The first of them by name.
    pub first: Key,
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { keys, first, .. } = self;
        let which = match keys {
            1 => format!("the key {first}, which a row asks for"),
            _ => format!("{keys} keys that rows ask for, {first} is one"),
        };
        write!(
            f,
            "the store denies {which}; those rows are not answered: give the token the right to read \
             the whole prefix"
        )
    }
}

/// What is known of the keys that rows ask for and the snapshot does not have.
#[derive(Debug)]
pub struct Readable {
    /// `None` for a store that hides nothing.
    known: Option<Mutex<Known>>,
    views: watch::Receiver<View>,
    asked: Notify,
    news: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Known {
    readable: HashSet<Key>,
    denied: HashSet<Key>,
    denied_since: Option<Timestamp>,
    waiting: HashSet<Key>,
    failing_since: Option<Instant>,
}

impl Readable {
    /// Knows nothing yet. `hides` is whether the store leaves out what it denies.
    pub fn new(hides: bool, views: watch::Receiver<View>) -> Self {
        Self {
            known: hides.then(Mutex::default),
            views,
            asked: Notify::new(),
            news: watch::Sender::new(()),
        }
    }

    /// Whether an answer may rest on the absence of these keys; waits for the store's word on those
    /// that nobody asked for before.
    pub async fn may_be_absent(&self, keys: &[Key]) -> Result<(), Unreadable> {
        let until = Instant::now() + PATIENCE;
        let mut news = self.news.subscribe();
        loop {
            let said = self.say(keys);
            if said != Err(Unreadable::Unknown) {
                return said;
            }
            if timeout_at(until, news.changed()).await.is_err() {
                return Err(Unreadable::Unknown);
            }
        }
    }

    /// The same without waiting.
    pub fn believes(&self, keys: &[Key]) -> bool {
        self.say(keys).is_ok()
    }

    fn say(&self, keys: &[Key]) -> Result<(), Unreadable> {
        let Some(known) = self.known.as_ref().filter(|_| !keys.is_empty()) else {
            return Ok(());
        };
        // What an earlier run kept is the last good state, whatever the store may say in the end.
        if self.views.borrow().snapshot.is_none() {
            return Ok(());
        }
        let said = match lock(known).say(keys) {
            Err(Unreadable::Unknown) if self.is_known_away() => Ok(()),
            said => said,
        };
        if said == Err(Unreadable::Unknown) {
            self.asked.notify_one();
        }
        said
    }

    /// The watch loop has been without the store for a while.
    fn is_known_away(&self) -> bool {
        let view = self.views.borrow();
        let since = view.failure.as_ref().map(|failing| failing.since.instant);
        since.is_some_and(|since| since.elapsed() >= AWAY_AFTER)
    }

    /// Whether rows go without an answer because the store denies keys of theirs.
    pub fn denial(&self) -> Option<Denial> {
        let known = lock(self.known.as_ref()?);
        Some(Denial {
            since: known.denied_since?,
            keys: known.denied.len(),
            first: known.denied.iter().min()?.clone(),
        })
    }

    /// Asks the store for whatever rows wait for, until stopped.
    pub async fn run(self: Arc<Self>, store: impl Store, stop: CancellationToken) {
        let Some(known) = &self.known else {
            return stop.cancelled().await;
        };
        stop.run_until_cancelled(self.ask(known, &store)).await;
    }

    async fn ask(&self, known: &Mutex<Known>, store: &impl Store) {
        let mut denied_again = Instant::now() + DENIED_AGAIN;
        loop {
            if Instant::now() >= denied_again {
                lock(known).ask_again_for_denied();
                denied_again = Instant::now() + DENIED_AGAIN;
            }
            let keys = lock(known).next();
            if keys.is_empty() {
                tokio::select! {
                    () = self.asked.notified() => {}
                    () = sleep_until(denied_again) => {}
                }
                continue;
            }
            let paths: Vec<String> = keys.iter().map(kv_path::encode).collect();
            let began = Instant::now();
            let is_news = match timeout_at(began + SLOW, store.read_names(&paths)).await {
                Ok(Ok(named)) => lock(known).learn(keys.into_iter().zip(named)),
                Ok(Err(_)) | Err(_) => lock(known).failed(began),
            };
            if is_news {
                self.news.send_replace(());
            } else {
                sleep(PAUSE).await;
            }
        }
    }
}

impl Known {
    fn say(&mut self, keys: &[Key]) -> Result<(), Unreadable> {
        if keys.iter().any(|key| self.denied.contains(key)) {
            return Err(Unreadable::Denied);
        }
        let unknown = keys.iter().filter(|key| !self.readable.contains(*key));
        let unknown: Vec<Key> = unknown.cloned().collect();
        if unknown.is_empty() {
            return Ok(());
        }
        if self.waiting.len() < MAX_KEYS {
            self.waiting.extend(unknown);
        }
        let is_away = |since: Instant| since.elapsed() >= AWAY_AFTER;
        if self.failing_since.is_some_and(is_away) {
            Ok(())
        } else {
            Err(Unreadable::Unknown)
        }
    }

    fn next(&self) -> Vec<Key> {
        self.waiting.iter().take(AT_ONCE).cloned().collect()
    }

    /// Says whether anything was learnt.
    fn learn(&mut self, named: impl Iterator<Item = (Key, Named)>) -> bool {
        self.failing_since = None;
        if self.readable.len() >= MAX_KEYS {
            self.readable.clear();
        }
        let mut is_news = false;
        for (key, named) in named {
            self.waiting.remove(&key);
            is_news |= match named {
                Named::Denied => self.denied.insert(key),
                Named::Absent => self.denied.remove(&key) | self.readable.insert(key),
                // The snapshot that has it is on its way, and its value will decide; else the row
                // asks again.
                Named::Present => self.denied.remove(&key),
            };
        }
        self.note_denial();
        is_news
    }

    /// No word on any key. Says that nothing was learnt.
    ///
    /// The watch loop tells people of the failure.
    fn failed(&mut self, began: Instant) -> bool {
        self.failing_since.get_or_insert(began);
        false
    }

    /// Tells when the first key is denied, and when none is any more.
    fn note_denial(&mut self) {
        match (self.denied_since, self.denied.iter().min()) {
            (None, Some(key)) => {
                self.denied_since = Some(Timestamp::now());
                tracing::warn!(
                    %key,
                    "the store denies a key that a row asks for, so the row is not answered: give \
                     the token the right to read the whole prefix"
                );
            }
            (Some(_), None) => {
                self.denied_since = None;
                tracing::info!("the store denies none of the rows' keys any more");
            }
            _ => {}
        }
    }

    fn ask_again_for_denied(&mut self) {
        self.waiting.extend(self.denied.iter().cloned());
    }
}

fn lock(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
