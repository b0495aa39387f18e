//! The one watch loop: follows a store, lets the guard judge each read, and publishes what passed.
//!
//! No error ends it, and a failed read changes nothing that is published, except that the failure
//! itself is.

use std::sync::Arc;
use std::time::Duration;

use haplane_core::backoff::Backoff;
use haplane_core::guard::{Arrival, Guard, Mode, Probe, Probed, Reading, Refusal, SETTLE, Verdict};
use haplane_core::marker;
use haplane_core::snapshot::Snapshot;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::error::{StoreError, StoreErrorKind};
use crate::store::{Named, Store};

mod account;

use account::Account;

/// How many doubtful reads in a row are reported as a failure.
const CONTRADICTIONS: u32 = 4;

/// How the loop waits.
#[derive(Clone, Copy, Debug)]
pub struct WatchSettings {
    /// How long one read may wait for a change. A read with an index from before a loss of data sleeps
    /// this long (facts 8.1); so, with some slack, does one whose path was cut silently.
    pub wait: Duration,
    /// The same for the first read after a change. Between two reads the loop pauses, and a store that
    /// is restored from a backup just then does not wake a later read that has the old index.
    pub wait_after_change: Duration,
    /// The least time between the beginnings of two reads, so that a busy key cannot spin the loop.
    pub spacing: Duration,
    /// The longest pause after a failure.
    pub longest_pause: Duration,
}

impl Default for WatchSettings {
    fn default() -> Self {
        Self {
            wait: Duration::from_secs(8),
            wait_after_change: Duration::from_secs(2),
            spacing: Duration::from_millis(100),
            longest_pause: Duration::from_secs(2),
        }
    }
}

/// A point in time, for people and for measuring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// By the calendar.
    pub at: Timestamp,
    /// By the clock that never jumps.
    pub instant: Instant,
}

impl Moment {
    /// This moment.
    pub fn now() -> Self {
        Self {
            at: Timestamp::now(),
            instant: Instant::now(),
        }
    }
}

/// What is known of the store now.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The last snapshot that the guard let pass.
    pub snapshot: Option<Arc<Snapshot>>,
    /// When the store last said what we know, or something new that we believe.
    pub contact: Option<Moment>,
    /// When the snapshot last changed.
    pub changed: Option<Moment>,
    /// What the guard refuses now.
    pub guard: Option<Guarded>,
    /// What fails now.
    pub failure: Option<Failing>,
}

/// The guard refuses what the store says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guarded {
    /// Since when, for this reason.
    pub since: Moment,
    /// Why.
    pub reason: Refusal,
    /// What happened, to what, and what to do.
    pub detail: String,
}

/// The store cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failing {
    /// Since when.
    pub since: Moment,
    /// How it fails now.
    pub kind: StoreErrorKind,
    /// What happened, to what, and what to do.
    pub what: String,
}

/// What the loop tells as it happens, for metrics.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A snapshot was let pass and published.
    Accepted {
        /// The snapshot.
        snapshot: &'a Arc<Snapshot>,
        /// What it is to the one before.
        arrival: Arrival,
        /// The index of the one before.
        from_index: Option<u64>,
    },
    /// The store was reached and said what we know.
    Unchanged,
    /// The guard refused a read.
    Refused(Refusal),
    /// A read failed.
    Failed(StoreErrorKind),
    /// After refusals or failures, the store is well again.
    Recovered {
        /// How long it was not.
        gap: Duration,
    },
}

/// The loop. What happens goes to `observe`, what is known to the receivers of its views.
pub struct Watch<S, F> {
    store: S,
    guard: Guard,
    settings: WatchSettings,
    just_changed: bool,
    account: Account<F>,
}

impl<S: Store, F: FnMut(Event<'_>) + Send> Watch<S, F> {
    /// A loop that has read nothing yet, and the receiver of its views, which is woken when the
    /// snapshot, the guard's word or the failure changes, not at each contact.
    pub fn new(
        store: S,
        guard: Guard,
        settings: WatchSettings,
        observe: F,
    ) -> (Self, watch::Receiver<View>) {
        let (account, views) = Account::new(observe);
        let watch = Self {
            store,
            guard,
            settings,
            just_changed: false,
            account,
        };
        (watch, views)
    }

    /// Follows the store until it is told to stop.
    pub async fn run(mut self, stop: CancellationToken) {
        stop.run_until_cancelled(self.follow()).await;
    }

    async fn follow(&mut self) {
        let WatchSettings {
            spacing,
            longest_pause,
            ..
        } = self.settings;
        let mut backoff = Backoff::new(spacing, spacing * 2, longest_pause);
        let mut doubts = 0_u32;
        loop {
            let earliest = Instant::now() + spacing;
            let pause = match self.turn().await {
                Turn::Well | Turn::Unchanged => {
                    backoff.reset();
                    doubts = 0;
                    Duration::ZERO
                }
                Turn::Doubtful => {
                    doubts += 1;
                    if doubts >= CONTRADICTIONS {
                        self.account.failed(&contradiction());
                    }
                    // The first doubt is looked into at once; a store that stays doubtful is not
                    // pressed.
                    if doubts == 1 {
                        Duration::ZERO
                    } else {
                        backoff.next_wait(fastrand::f64())
                    }
                }
                Turn::Bad => backoff.next_wait(fastrand::f64()),
            };
            tokio::time::sleep_until(earliest.max(Instant::now() + pause)).await;
        }
    }

    async fn turn(&mut self) -> Turn {
        let mode = self.guard.next_mode();
        let wait = if std::mem::take(&mut self.just_changed) {
            self.settings.wait_after_change
        } else {
            self.settings.wait
        };
        let asked = Instant::now();
        let turn = match self.store.read(mode, wait).await {
            Ok(reading) => self.judge(reading).await,
            Err(error) => self.fail(&error),
        };
        let ended_early = mode != Mode::Consistent && asked.elapsed() < wait;
        if matches!(turn, Turn::Unchanged) && ended_early {
            // A Consul that is restored from a backup answers the waiting queries with what they knew
            // already. The next query would sleep on an index from the future (facts 8.1).
            self.guard.doubt();
        }
        turn
    }

    async fn judge(&mut self, reading: Reading) -> Turn {
        let mut verdict = self.guard.judge(reading, Instant::now().into_std());
        if let Verdict::Probe(probe) = &verdict {
            verdict = match self.ask_by_name(probe).await {
                Ok(probed) => self.guard.probed(probed),
                Err(error) => return self.fail(&error),
            };
        }
        match verdict {
            Verdict::Accept(snapshot, arrival) => {
                self.just_changed = true;
                self.account.accepted(&snapshot, arrival);
                Turn::Well
            }
            Verdict::Unchanged => {
                self.account.unchanged();
                Turn::Unchanged
            }
            Verdict::Confirm | Verdict::Probe(_) => Turn::Doubtful,
            Verdict::Refuse(reason) => {
                let detail = self.explain(reason).await;
                self.account.refused(reason, detail);
                Turn::Bad
            }
        }
    }

    fn fail(&mut self, error: &StoreError) -> Turn {
        self.guard.doubt();
        self.account.failed(error);
        Turn::Bad
    }

    /// Asks for each by its own name, where a store cannot hide a missing permission.
    async fn ask_by_name(&self, probe: &Probe) -> Result<Probed, StoreError> {
        let absent = self.store.read_names(&probe.absent).await?;
        if absent.contains(&Named::Denied) {
            return Ok(Probed::Denied);
        }
        if absent.contains(&Named::Present) {
            return Ok(Probed::Contradicted);
        }
        let Some((path, version)) = &probe.present else {
            return Ok(Probed::Confirmed);
        };
        match self.store.read_path(path).await {
            Ok(Some(pair)) if pair.version == *version => Ok(Probed::Confirmed),
            Ok(_) => Ok(Probed::Contradicted),
            Err(error) if error.kind == StoreErrorKind::Denied => Ok(Probed::Denied),
            Err(error) => Err(error),
        }
    }

    async fn explain(&self, reason: Refusal) -> String {
        match reason {
            Refusal::MarkerMissing => match self.store.read_path(marker::PATH).await {
                Err(error) => format!("the marker cannot be read: {}", error.story()),
                Ok(Some(_)) => {
                    "the marker is there but the list does not show it: the token may not read all \
                     of the prefix"
                        .to_owned()
                }
                Ok(None) => {
                    "the prefix has no marker: it was never initialised (run `haplane init`), or \
                     prefix and store are not the ones that were meant"
                        .to_owned()
                }
            },
            Refusal::Denied => {
                "the store leaves keys out of its list that it denies when they are asked for by name: \
                 give the token the right to read the whole prefix"
                    .to_owned()
            }
            Refusal::NoLeader => {
                "the store knows no leader, what it says may be long past: look at the Consul servers"
                    .to_owned()
            }
            Refusal::BadIndex => {
                "the store gave an index that is none: is it Consul, without a proxy that rewrites?"
                    .to_owned()
            }
            Refusal::Refilling => format!(
                "the store was emptied or lost, and came back without keys of the last snapshot: they are \
                 believed to be gone when its names have been the same for {SETTLE:?}"
            ),
            Refusal::Unproven => {
                "the store has not said of some keys, asked for by name, that they are absent".to_owned()
            }
        }
    }
}

fn contradiction() -> StoreError {
    let what = "the store contradicts itself: its list of keys lacks what it shows when asked for by \
                name, or never is what it was a moment before";
    StoreError::new(StoreErrorKind::Undecodable, what)
}

enum Turn {
    Well,
    Unchanged,
    Doubtful,
    Bad,
}
