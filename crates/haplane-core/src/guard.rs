//! Which reads may become a snapshot.
//!
//! An absent key means *ready*: a read that wrongly comes back short would put drained servers back
//! into rotation. Consul gives such reads with healthy headers in five ways (facts 8.2), so a read
//! has to earn trust here before anybody sees it. The guard is one state machine over "what came
//! back"; the watch loop brings it reads and does what it says next.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::marker;
use crate::snapshot::Snapshot;

/// Consul's raft indexes stay far below this; a larger number is no index.
const ABSURD_INDEX: u64 = i64::MAX.unsigned_abs();

/// How long a store that was emptied or lost must keep the same names before keys that did not come back are
/// believed to be gone: whoever fills it again writes one key after the other.
pub const SETTLE: Duration = Duration::from_secs(10);

/// What one read brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The content, complete and decoded.
    pub snapshot: Snapshot,
    /// Whether the store vouched for its being the latest (`?consistent`; a directory always does).
    pub consistent: bool,
    /// Consul's `X-Consul-KnownLeader`; a directory always has one.
    pub has_leader: bool,
    /// Whether the store says that it left something out.
    pub extent: Extent,
    /// Whether content cannot change without the index (Consul), or can (a file edited by hand).
    pub index_covers_content: bool,
}

/// How much of the prefix a read shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All that is there, as far as the store says: Consul 1.8 leaves keys out without saying so.
    Whole,
    /// Without what we may not read (`X-Consul-Results-Filtered-By-ACLs`).
    Filtered,
}

/// How to read next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// At once, and consistent: nothing is known, or something was doubtful.
    Consistent,
    /// Wait until the index moves past this one.
    Blocking(u64),
}

/// Why a read is not a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Refusal {
    /// The marker is missing: an uninitialised prefix, or a token that may not read it.
    MarkerMissing,
    /// Keys are missing from the list: the store says that it left some out or, asked by name, that we may not
    /// read them.
    Denied,
    /// The server knows no leader: what it says may be long past.
    NoLeader,
    /// An index of 0 or one that no store counts up to.
    BadIndex,
    /// The store was emptied or lost since the last snapshot, and keys of that are still missing: it may be
    /// about to be filled again.
    Refilling,
    /// Rows ask for keys that the store, asked by name, has not yet said to be absent. The guard itself never
    /// says this: it judges lists.
    Unproven,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::MarkerMissing,
        Self::Denied,
        Self::NoLeader,
        Self::BadIndex,
        Self::Refilling,
        Self::Unproven,
    ];

    /// The word for it in metrics and in `/v1/node`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MarkerMissing => "marker_missing",
            Self::Denied => "denied",
            Self::NoLeader => "no_leader",
            Self::BadIndex => "bad_index",
            Self::Refilling => "refilling",
            Self::Unproven => "unproven",
        }
    }
}

/// What an accepted snapshot is to the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// There was none before.
    First,
    /// The same store, further on.
    Newer,
    /// The same store at a lower index: it was restored from a backup.
    Restored,
    /// A store with another marker: it was initialised anew.
    Reinitialised,
}

/// The guard's word on one read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// This is now the snapshot.
    Accept(Arc<Snapshot>, Arrival),
    /// The store was reached and says what we know.
    Unchanged,
    /// Doubtful: read again, consistent, at once.
    Confirm,
    /// Keys are gone, or an older state is back. Ask by name before believing it, and give the result to
    /// [`Guard::probed`].
    Probe(Probe),
    /// Not a snapshot. The last one stays.
    Refuse(Refusal),
}

/// What to ask for by name, below the prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Probe {
    /// Paths that have to be absent.
    pub absent: Vec<String>,
    /// A path that has to be there, and in which version. A list that is older than what is known may be the
    /// present, after a restore from a backup, or the past, kept by something on the way; a second, different
    /// read tells which.
    pub present: Option<(String, u64)>,
}

/// What came of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probed {
    /// Asked for by name, all is as the list has it.
    Confirmed,
    /// At least one path is not as in the list: the list was wrong, or is out of date.
    Contradicted,
    /// We may not read at least one.
    Denied,
}

/// The state machine.
#[derive(Debug)]
pub struct Guard {
    require_marker: bool,
    last: Option<Arc<Snapshot>>,
    /// The index of the last read that was believed. Consul forgets deletions after a quarter of an
    /// hour, and the index of a prefix then falls to that of the newest key that is left: the same
    /// content at a lower index, which is no restored backup.
    read_at: u64,
    /// Whether `last` came from the store itself and not from an earlier run.
    is_from_store: bool,
    /// The read that waits for its probe.
    suspect: Option<Snapshot>,
    doubtful: bool,
    /// Since `last` the store was emptied or lost.
    refill: Option<Refill>,
}

/// A store that may be about to be filled again.
#[derive(Debug, Default)]
struct Refill {
    /// Its last list, and since when it has these names.
    standing: Option<(Snapshot, Instant)>,
}

impl Guard {
    /// A guard that has seen nothing. Without `require_marker` an empty prefix is believed after it
    /// was confirmed.
    pub fn new(require_marker: bool) -> Self {
        Self {
            require_marker,
            last: None,
            read_at: 0,
            is_from_store: false,
            suspect: None,
            doubtful: true,
            refill: None,
        }
    }

    /// The same guard, continuing from what an earlier run believed last: keys that are gone since then need
    /// the same proof as if there had been no break between the two.
    #[must_use]
    pub fn after(self, kept: Arc<Snapshot>) -> Self {
        Self {
            last: Some(kept),
            ..self
        }
    }

    /// The last accepted snapshot.
    pub fn last(&self) -> Option<&Arc<Snapshot>> {
        self.last.as_ref()
    }

    /// How to read next: consistent at first and after every error, refusal or doubt.
    pub fn next_mode(&self) -> Mode {
        match &self.last {
            Some(_) if !self.doubtful => Mode::Blocking(self.read_at),
            _ => Mode::Consistent,
        }
    }

    /// A read failed, or ended in a way that makes the store doubtful: what is known stays, the next
    /// read has to be consistent (facts 8.2: a server that replays its log answers default reads with
    /// old data).
    pub fn doubt(&mut self) {
        self.doubtful = true;
        self.suspect = None;
        self.stood_still_no_longer();
    }

    /// Judges one complete read, which came at this time.
    pub fn judge(&mut self, reading: Reading, now: Instant) -> Verdict {
        self.suspect = None;
        match self.check(&reading) {
            Check::Refuse(reason) => {
                self.doubtful = true;
                if reason == Refusal::MarkerMissing {
                    self.refill.get_or_insert_default();
                }
                self.stood_still_no_longer();
                Verdict::Refuse(reason)
            }
            Check::Settle(_) if !self.has_settled(&reading.snapshot, now) => {
                self.doubtful = true;
                Verdict::Refuse(Refusal::Refilling)
            }
            Check::Confirm => {
                self.doubtful = true;
                Verdict::Confirm
            }
            Check::Probe(probe) | Check::Settle(probe) => {
                self.doubtful = true;
                self.suspect = Some(reading.snapshot);
                Verdict::Probe(probe)
            }
            Check::Trust => self.accept(reading.snapshot),
        }
    }

    /// Takes what asking by name brought. Only a confirmation turns the doubtful read into the snapshot.
    pub fn probed(&mut self, probed: Probed) -> Verdict {
        match (self.suspect.take(), probed) {
            (Some(suspect), Probed::Confirmed) => self.accept(suspect),
            (_, Probed::Denied) => Verdict::Refuse(Refusal::Denied),
            (_, Probed::Confirmed | Probed::Contradicted) => Verdict::Confirm,
        }
    }

    fn check(&self, reading: &Reading) -> Check {
        let snapshot = &reading.snapshot;
        if !reading.has_leader {
            return Check::Refuse(Refusal::NoLeader);
        }
        if snapshot.index == 0 || snapshot.index > ABSURD_INDEX {
            return Check::Refuse(Refusal::BadIndex);
        }
        if reading.extent == Extent::Filtered {
            return Check::Refuse(Refusal::Denied);
        }
        if self.require_marker && snapshot.marker.is_none() {
            return Check::Refuse(Refusal::MarkerMissing);
        }
        match &self.last {
            None => self.check_first(reading),
            Some(last) => match self.check_against(last, reading) {
                // What an earlier run knew makes the first read no more credible.
                Check::Trust if !self.is_from_store => self.check_first(reading),
                check => check,
            },
        }
    }

    fn check_first(&self, reading: &Reading) -> Check {
        let empty = reading.snapshot.keys().len() == 0 && reading.snapshot.marker.is_none();
        if !reading.consistent {
            Check::Confirm
        } else if empty && !self.require_marker {
            Check::Probe(Probe {
                absent: vec![marker::PATH.to_owned()],
                present: None,
            })
        } else {
            Check::Trust
        }
    }

    fn check_against(&self, last: &Snapshot, reading: &Reading) -> Check {
        let new = &reading.snapshot;
        if !reading.consistent {
            let went_back = new.index < self.read_at;
            let same_index_other_content = reading.index_covers_content
                && new.index == self.read_at
                && !new.says_the_same_as(last);
            let other_store = new.marker != last.marker;
            let lost_all = last.keys().len() > 0 && new.keys().len() == 0;
            if self.doubtful || went_back || same_index_other_content || other_store || lost_all {
                return Check::Confirm;
            }
        }
        // All of them, because a token may lose its right to a single key.
        let absent: Vec<String> = last.vanished_in(new).map(|key| last.path_of(key)).collect();
        let is_the_past = new.index < self.read_at || new.marker != last.marker;
        let present = is_the_past.then(|| new.difference_from(last)).flatten();
        if absent.is_empty() && present.is_none() {
            return Check::Trust;
        }
        let may_be_refilled = !absent.is_empty() && self.is_another_time(last, new);
        let probe = Probe { absent, present };
        if may_be_refilled {
            Check::Settle(probe)
        } else {
            Check::Probe(probe)
        }
    }

    /// Whether the store was emptied or lost since `last`: its marker was missing, or is no longer the very
    /// same key. (A restore from a backup brings back the same key, and everything at once.)
    fn is_another_time(&self, last: &Snapshot, new: &Snapshot) -> bool {
        let is_known = last.marker_version != 0;
        self.refill.is_some()
            || new.marker != last.marker
            || is_known && new.marker_version != last.marker_version
            || new.marker.is_none() && new.index < self.read_at
    }

    fn has_settled(&mut self, list: &Snapshot, now: Instant) -> bool {
        let refill = self.refill.get_or_insert_default();
        match &refill.standing {
            Some((same, since)) if same.has_the_names_of(list) => {
                now.saturating_duration_since(*since) >= SETTLE
            }
            _ => {
                refill.standing = Some((list.clone(), now));
                false
            }
        }
    }

    fn stood_still_no_longer(&mut self) {
        if let Some(refill) = &mut self.refill {
            refill.standing = None;
        }
    }

    fn accept(&mut self, snapshot: Snapshot) -> Verdict {
        self.doubtful = false;
        self.refill = None;
        self.read_at = snapshot.index;
        let arrival = match &self.last {
            Some(last) if self.is_from_store && **last == snapshot => return Verdict::Unchanged,
            _ if !self.is_from_store => Arrival::First,
            None => Arrival::First,
            Some(last) if snapshot.index < last.index && snapshot.holds_the_same_as(last) => {
                return Verdict::Unchanged;
            }
            Some(last) if last.marker != snapshot.marker => Arrival::Reinitialised,
            Some(last) if snapshot.index < last.index => Arrival::Restored,
            Some(_) => Arrival::Newer,
        };
        let snapshot = Arc::new(snapshot);
        self.last = Some(Arc::clone(&snapshot));
        self.is_from_store = true;
        Verdict::Accept(snapshot, arrival)
    }
}

enum Check {
    Trust,
    Confirm,
    Probe(Probe),
    /// The same, once the list has had the same names for a while.
    Settle(Probe),
    Refuse(Refusal),
}

#[cfg(test)]
mod tests;
