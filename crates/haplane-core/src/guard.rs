//! Which reads may become a snapshot.
//!
//! An absent key means *ready*: a read that wrongly comes back short would put drained servers back
//! into rotation. Consul gives such reads with healthy headers in five ways (facts 8.2), so a read
//! has to earn trust here before anybody sees it. The guard is one state machine over "what came
//! back"; the watch loop brings it reads and does what it says next.

use std::sync::Arc;

use crate::snapshot::Snapshot;

/// Consul's raft indexes are far below this; a larger one is not an index.
const ABSURD_INDEX: u64 = i64::MAX.unsigned_abs();

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
    /// All that is there, as far as the store says: Consul 1.8 leaves out without a word.
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
    /// Keys are missing from the list: the store says that it left some out, or asked for by name
    /// that we may not read them.
    Denied,
    /// The server knows no leader: what it says may be long past.
    NoLeader,
    /// An index of 0 or one that no store counts up to.
    BadIndex,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::MarkerMissing,
        Self::Denied,
        Self::NoLeader,
        Self::BadIndex,
    ];

    /// The word for it in metrics and in `/v1/node`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MarkerMissing => "marker_missing",
            Self::Denied => "denied",
            Self::NoLeader => "no_leader",
            Self::BadIndex => "bad_index",
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
    /// Keys are gone. Ask for each by its own name before believing it, then say what came back
    /// with [`Guard::probed`].
    Probe(Probe),
    /// Not a snapshot. The last one stays.
    Refuse(Refusal),
}

/// What to ask for by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// The marker: nothing was ever read, and the prefix may be empty or not ours to read.
    Marker,
    /// Paths of keys that were there before.
    Paths(Vec<String>),
}

/// What came of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probed {
    /// None of them is there, and we may read each.
    Absent,
    /// At least one is there: the list was wrong, or is past.
    Present,
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
        }
    }

    /// The same guard, knowing what an earlier run was the last to believe: what is gone since has
    /// to be gone honestly, as if there had been no break between the two.
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
    }

    /// Judges one complete read.
    pub fn judge(&mut self, reading: Reading) -> Verdict {
        self.suspect = None;
        match self.check(&reading) {
            Check::Refuse(reason) => {
                self.doubtful = true;
                Verdict::Refuse(reason)
            }
            Check::Confirm => {
                self.doubtful = true;
                Verdict::Confirm
            }
            Check::Probe(probe) => {
                self.doubtful = true;
                self.suspect = Some(reading.snapshot);
                Verdict::Probe(probe)
            }
            Check::Trust => self.accept(reading.snapshot),
        }
    }

    /// What asking by name brought. Only an honest "absent" lets the suspect read become the snapshot.
    pub fn probed(&mut self, probed: Probed) -> Verdict {
        match (self.suspect.take(), probed) {
            (Some(suspect), Probed::Absent) => self.accept(suspect),
            (_, Probed::Denied) => Verdict::Refuse(Refusal::Denied),
            (_, Probed::Absent | Probed::Present) => Verdict::Confirm,
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
                // What an earlier run knew does not make the first read any more believable.
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
            Check::Probe(Probe::Marker)
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
        // All of them: a token may lose its right to a single key.
        let paths: Vec<String> = last.vanished_in(new).map(|key| last.path_of(key)).collect();
        if paths.is_empty() {
            Check::Trust
        } else {
            Check::Probe(Probe::Paths(paths))
        }
    }

    fn accept(&mut self, snapshot: Snapshot) -> Verdict {
        self.doubtful = false;
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
    Refuse(Refusal),
}

#[cfg(test)]
mod tests;
