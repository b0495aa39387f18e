//! Whether an absence may be believed.
//!
//! Consul leaves out of a list, without a word, what the token may not read (facts 8.2). A key that
//! the snapshot does not have may be a drain that this agent is not shown, and to answer `ready` for
//! it would undo the drain. So before an answer that lets traffic in rests on the absence of a key,
//! the key is asked for by its own name; that is where Consul says "denied". Until it has said
//! otherwise, however long that takes, the row is not answered, which changes nothing in HAProxy.
//!
//! A proof ages. An answer that a row did not have before needs one from after the change; all proofs
//! are renewed from time to time, and none outlives a change of what we may read.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use haplane_core::Key;
use haplane_core::guard::Refusal;
use haplane_store::{Named, Store, StoreErrorKind, View, read_keys};
use jiff::Timestamp;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

/// How long a row waits for the store's word on its keys: well within HAProxy's two seconds (facts 1).
const PATIENCE: Duration = Duration::from_millis(500);
/// The most keys that are remembered; all are asked for anew when there are more.
const MAX_KEYS: usize = 200_000;
/// How many are asked for at once, before it is looked again who waits.
const AT_ONCE: usize = 512;
/// How often it is decided what to ask for again: old proofs, and every time all that is denied.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How old a proof becomes before it is asked for again. The old one counts until then, and while the
/// store is away.
const PROVE_AGAIN: Duration = Duration::from_mins(2);
/// What no row has asked for during this time is forgotten instead, a denial when the store repeats it.
const UNUSED_AFTER: Duration = Duration::from_mins(10);
/// After a failure of the store.
const PAUSE: Duration = Duration::from_millis(250);
/// A store that has not answered by then fails.
const SLOW: Duration = Duration::from_secs(2);
/// After how long without an answer rows are reported.
const TOLD_AFTER: Duration = Duration::from_secs(3);

/// Why an answer may not rest on the absence of these keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// The store denies at least one.
    Denied,
    /// It has not said yet.
    Unknown,
}

impl Unreadable {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Denied, Self::Unknown];

    /// The word for it in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Denied => "denied_key",
            Self::Unknown => "unproven_key",
        }
    }

    /// The same as one of the reasons for which a read is refused.
    pub const fn refusal(self) -> Refusal {
        match self {
            Self::Denied => Refusal::Denied,
            Self::Unknown => Refusal::Unproven,
        }
    }
}

/// Keys that rows ask for and that are not known to be absent: those rows go without an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// What the store says of them.
    pub why: Unreadable,
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
        match self.why {
            Unreadable::Denied => write!(
                f,
                "the store denies {which}; those rows are not answered: give the token the right to \
                 read the whole prefix"
            ),
            Unreadable::Unknown => write!(
                f,
                "the store has not said, asked by name, whether it has {which}; those rows are not \
                 answered and stay as they are until it does"
            ),
        }
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
    /// Keys of which the store said that they are absent.
    proven: HashMap<Key, Proof>,
    /// Keys that the store denies, and when a row asked for them last.
    denied: HashMap<Key, Instant>,
    denied_since: Option<Timestamp>,
    /// Keys that rows wait for, and since when.
    waiting: HashMap<Key, Instant>,
    /// Keys that are asked for again though no row waits for them.
    again: HashSet<Key>,
    rights: Rights,
    has_told_unproven: bool,
}

#[derive(Clone, Copy, Debug)]
struct Proof {
    /// When the store was asked.
    at: Instant,
    /// When a row needed it last.
    used: Instant,
}

/// When this changes, other keys than before may be hidden.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Rights {
    /// The store's own count.
    changes: u64,
    /// Since when the list is denied, as a whole or in part.
    denied: Option<Instant>,
}

impl Rights {
    fn of(changes: u64, view: &View) -> Self {
        let is_denial = |why| matches!(why, Refusal::MarkerMissing | Refusal::Denied);
        let guarded = view.guard.as_ref().filter(|one| is_denial(one.reason));
        let failing = view.failure.as_ref();
        let failing = failing.filter(|one| one.kind == StoreErrorKind::Denied);
        let denied = guarded.map(|one| one.since.instant);
        Self {
            changes,
            denied: denied.or_else(|| failing.map(|one| one.since.instant)),
        }
    }
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

    /// Whether an answer may rest on the absence of these keys; waits for the store's word on those of
    /// which there is none, or none `since` then.
    pub async fn may_be_absent(
        &self,
        keys: &[Key],
        since: Option<Instant>,
    ) -> Result<(), Unreadable> {
        let until = Instant::now() + PATIENCE;
        let mut news = self.news.subscribe();
        loop {
            let said = self.say(keys, since);
            if said != Err(Unreadable::Unknown) {
                return said;
            }
            if timeout_at(until, news.changed()).await.is_err() {
                return Err(Unreadable::Unknown);
            }
        }
    }

    /// The same without waiting.
    pub fn believes(&self, keys: &[Key], since: Option<Instant>) -> bool {
        self.say(keys, since).is_ok()
    }

    fn say(&self, keys: &[Key], since: Option<Instant>) -> Result<(), Unreadable> {
        let Some(known) = self.known.as_ref().filter(|_| !keys.is_empty()) else {
            return Ok(());
        };
        let said = lock(known).say(keys, since);
        if said == Err(Unreadable::Unknown) {
            self.asked.notify_one();
        }
        said
    }

    /// Whether rows go without an answer because keys of theirs are denied, or not known to be absent.
    pub fn denial(&self) -> Option<Denial> {
        lock(self.known.as_ref()?).denial()
    }

    /// Asks the store for whatever rows wait for, until stopped.
    pub async fn run(self: Arc<Self>, store: impl Store, stop: CancellationToken) {
        let Some(known) = &self.known else {
            return stop.cancelled().await;
        };
        stop.run_until_cancelled(self.ask(known, &store)).await;
    }

    async fn ask(&self, known: &Mutex<Known>, store: &impl Store) {
        let mut views = self.views.clone();
        let mut next_look = Instant::now() + LOOK_EVERY;
        loop {
            let rights = Rights::of(store.rights(), &views.borrow_and_update());
            lock(known).now_has(rights);
            if Instant::now() >= next_look {
                lock(known).look_again();
                next_look = Instant::now() + LOOK_EVERY;
            }
            let keys = lock(known).next();
            if keys.is_empty() {
                tokio::select! {
                    () = self.asked.notified() => {}
                    () = sleep_until(next_look) => {}
                    Ok(()) = views.changed() => {}
                }
                continue;
            }
            let began = Instant::now();
            let is_news = match timeout_at(began + SLOW, read_keys(store, &keys)).await {
                // The rights changed while this was asked, so the answer counts for nothing.
                Ok(Ok(_)) if store.rights() != rights.changes => false,
                Ok(Ok(named)) => lock(known).learn(keys.into_iter().zip(named), began),
                // The watch loop reports how the store fails.
                Ok(Err(_)) | Err(_) => false,
            };
            if is_news {
                self.news.send_replace(());
            } else {
                lock(known).tell_unproven();
                sleep(PAUSE).await;
            }
        }
    }
}

impl Known {
    fn say(&mut self, keys: &[Key], since: Option<Instant>) -> Result<(), Unreadable> {
        let now = Instant::now();
        let mut said = Ok(());
        for key in keys {
            if let Some(used) = self.denied.get_mut(key) {
                *used = now;
                said = Err(Unreadable::Denied);
            }
        }
        said?;
        for key in keys {
            let proof = self.proven.get_mut(key);
            let is_of_then = |proof: &&mut Proof| since.is_none_or(|since| proof.at >= since);
            if let Some(proof) = proof.filter(is_of_then) {
                proof.used = now;
                continue;
            }
            said = Err(Unreadable::Unknown);
            if self.waiting.len() < MAX_KEYS {
                self.waiting.entry(key.clone()).or_insert(now);
            }
        }
        said
    }

    fn next(&self) -> Vec<Key> {
        let again = self.again.iter();
        let all = self.waiting.keys().chain(again);
        all.take(AT_ONCE).cloned().collect()
    }

    /// Says whether anything was learnt.
    fn learn(&mut self, named: impl Iterator<Item = (Key, Named)>, at: Instant) -> bool {
        if self.proven.len() >= MAX_KEYS {
            self.proven.clear();
        }
        if self.denied.len() >= MAX_KEYS {
            self.denied.clear();
        }
        let mut is_news = false;
        for (key, named) in named {
            let is_needed = self.waiting.remove(&key).is_some();
            let was_waiting = self.again.remove(&key) || is_needed;
            let denied = self.denied.remove(&key);
            let proven = self.proven.remove(&key).map(|proof| proof.used);
            let used = denied.or(proven).filter(|_| !is_needed).unwrap_or(at);
            is_news |= match named {
                Named::Denied if at - used < UNUSED_AFTER => {
                    self.denied.insert(key, used);
                    denied.is_none()
                }
                Named::Denied => false,
                Named::Absent => {
                    self.proven.insert(key, Proof { at, used });
                    was_waiting
                }
                // The snapshot that has it is on its way, and its value will decide; else the row
                // asks again.
                Named::Present => denied.is_some(),
            };
        }
        self.note_denial();
        self.tell_unproven();
        is_news
    }

    /// With other rights what was proven no longer is, and what was denied may be allowed.
    fn now_has(&mut self, rights: Rights) {
        let before = std::mem::replace(&mut self.rights, rights);
        if rights != before {
            self.again.extend(self.denied.keys().cloned());
        }
        let is_denied_anew = rights.denied.is_some() && rights.denied != before.denied;
        if rights.changes != before.changes || is_denied_anew {
            self.proven.clear();
        }
    }

    /// Those that are denied, and proofs that have become old.
    fn look_again(&mut self) {
        let now = Instant::now();
        self.proven
            .retain(|_, proof| now - proof.used < UNUSED_AFTER);
        let old = self.proven.iter();
        let old = old.filter(|(_, proof)| now - proof.at >= PROVE_AGAIN);
        self.again = self
            .denied
            .keys()
            .chain(old.map(|(key, _)| key))
            .cloned()
            .collect();
    }

    fn denial(&self) -> Option<Denial> {
        if let (Some(since), Some(first)) = (self.denied_since, self.denied.keys().min()) {
            return Some(Denial {
                why: Unreadable::Denied,
                since,
                keys: self.denied.len(),
                first: first.clone(),
            });
        }
        let waiting = || {
            let long = |since: &Instant| since.elapsed() >= TOLD_AFTER;
            self.waiting.iter().filter(move |(_, since)| long(since))
        };
        let (first, _) = waiting().min()?;
        let longest = waiting().map(|(_, since)| since.elapsed()).max()?;
        Some(Denial {
            why: Unreadable::Unknown,
            since: Timestamp::now()
                .checked_sub(longest)
                .unwrap_or(Timestamp::MIN),
            keys: waiting().count(),
            first: first.clone(),
        })
    }

    /// Tells when the first key is denied, and when none is any more.
    fn note_denial(&mut self) {
        match (self.denied_since, self.denied.keys().min()) {
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

    /// Tells when rows have waited for too long, and when none waits any more.
    fn tell_unproven(&mut self) {
        let long = |since: &Instant| since.elapsed() >= TOLD_AFTER;
        let longest = self.waiting.iter().filter(|(_, since)| long(since)).min();
        match longest {
            Some((key, _)) if !self.has_told_unproven => {
                tracing::warn!(
                    %key,
                    keys = self.waiting.len(),
                    "the store has not said, asked by name, whether it has a key that a row asks \
                     for, so the row is not answered"
                );
                self.has_told_unproven = true;
            }
            None if self.has_told_unproven => {
                tracing::info!("the store has said of all the rows' keys whether it has them");
                self.has_told_unproven = false;
            }
            _ => {}
        }
    }
}

fn lock(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
