//! A snapshot: one complete, immutable read of the state prefix.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::desired::{Desired, Value};
use crate::key::Key;
use crate::kv_path::{decode, encode};
use crate::log::LogId;
use crate::marker::{self, Marker};

/// How much of an invalid text is kept for people to read, in characters.
const INVALID_TEXT_SHOWN: usize = 120;

/// One pair as a store returned it, its path already below the state prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The path below the prefix.
    pub path: String,
    /// The value's bytes.
    pub value: Vec<u8>,
    /// What a check-and-set compares (Consul's `ModifyIndex`).
    pub version: u64,
    /// The log entry that wrote it, if a command did.
    pub log_id: Option<LogId>,
}

/// A key with a valid value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The value.
    pub value: Value,
    /// The version of this key.
    pub version: u64,
    /// The log entry that wrote it; `None` when it was written by hand.
    pub log_id: Option<LogId>,
    /// Where the store has it, when that is not where haplane would put it.
    path: Option<Box<str>>,
}

/// A key whose text is not a value. It counts as absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// The text, cut to a length that can be shown.
    pub text: String,
    /// The version of this key.
    pub version: u64,
    /// The log entry that wrote it.
    pub log_id: Option<LogId>,
    /// Where the store has it.
    path: Box<str>,
}

/// Everything that the store said at one index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The store's version of the whole prefix.
    pub index: u64,
    /// The marker, if the prefix has one.
    pub marker: Option<Marker>,
    /// The version of the marker's key; 0 where that is not known.
    pub marker_version: u64,
    keys: BTreeMap<Key, Stored>,
    /// By path: a path whose text is not even a key is listed here too.
    invalid: BTreeMap<String, Invalid>,
}

/// How many keys in force want what; for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Keys that say `ready`.
    pub ready: usize,
    /// Keys that say `drain`.
    pub drain: usize,
    /// Keys that say `maint`.
    pub maint: usize,
    /// Keys that say a weight.
    pub weight: usize,
}

impl Snapshot {
    /// Builds a snapshot from one complete answer.
    pub fn new(index: u64, pairs: impl IntoIterator<Item = Pair>) -> Self {
        let mut snapshot = Self {
            index,
            ..Self::default()
        };
        for pair in pairs {
            snapshot.take(pair);
        }
        snapshot
    }

    fn take(&mut self, pair: Pair) {
        if pair.path == marker::PATH {
            self.marker = Some(Marker::from_bytes(&pair.value));
            self.marker_version = pair.version;
            return;
        }
        // Consul's web page creates "folders": keys that end in a slash and have no value.
        if pair.value.is_empty() && (pair.path.is_empty() || pair.path.ends_with('/')) {
            return;
        }
        let Pair {
            path,
            value,
            version,
            log_id,
        } = pair;
        match (decode(&path), Value::from_bytes(&value)) {
            (Ok(key), Ok(value)) => {
                let canonical = encode(&key) == path;
                // The same key under two paths: the one that haplane writes is the one that counts.
                let shadowed = !canonical && self.keys.get(&key).is_some_and(|s| s.path.is_none());
                if shadowed {
                    self.take_invalid(path, &value.to_string().into_bytes(), version, log_id);
                    return;
                }
                let path = (!canonical).then(|| path.into_boxed_str());
                let stored = Stored {
                    value,
                    version,
                    log_id,
                    path,
                };
                let before = self.keys.insert(key, stored);
                if let Some(Stored {
                    path: Some(path),
                    value,
                    version,
                    log_id,
                }) = before
                {
                    self.take_invalid(
                        path.into(),
                        &value.to_string().into_bytes(),
                        version,
                        log_id,
                    );
                }
            }
            _ => self.take_invalid(path, &value, version, log_id),
        }
    }

    fn take_invalid(&mut self, path: String, value: &[u8], version: u64, log_id: Option<LogId>) {
        let text = String::from_utf8_lossy(value);
        let shown: String = text.chars().take(INVALID_TEXT_SHOWN).collect();
        let name = decode(&path).map_or_else(|_| path.clone(), |key| key.to_string());
        self.invalid.insert(
            name,
            Invalid {
                text: shown,
                version,
                log_id,
                path: path.into_boxed_str(),
            },
        );
    }

    /// The keys that have a valid value, by name.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = (&Key, &Stored)> {
        self.keys.iter()
    }

    /// One key, whatever its `until` says.
    pub fn get(&self, key: &Key) -> Option<&Stored> {
        self.keys.get(key)
    }

    /// The keys, or paths that are not even keys, whose text is not a value.
    pub fn invalid(&self) -> impl ExactSizeIterator<Item = (&str, &Invalid)> {
        self.invalid
            .iter()
            .map(|(name, invalid)| (name.as_str(), invalid))
    }

    /// One invalid key.
    pub fn get_invalid(&self, key: &Key) -> Option<&Invalid> {
        self.invalid.get(key.as_str())
    }

    /// The text of a name that holds no value.
    pub fn invalid_text(&self, name: &str) -> Option<&str> {
        self.invalid.get(name).map(|bad| bad.text.as_str())
    }

    /// The path at which the store has a key, or would have it.
    pub fn path_of(&self, key: &Key) -> String {
        let by_hand = match self.keys.get(key) {
            Some(stored) => stored.path.as_deref(),
            None => self.get_invalid(key).map(|invalid| &*invalid.path),
        };
        by_hand.map_or_else(|| encode(key), str::to_owned)
    }

    /// Whether two snapshots say the same, at whatever index.
    pub fn says_the_same_as<'a>(&'a self, other: &'a Self) -> bool {
        let values = |s: &'a Self| s.keys.iter().map(|(key, stored)| (key, stored.value));
        let texts = |s: &'a Self| s.invalid.iter().map(|(name, bad)| (name, &bad.text));
        self.marker == other.marker
            && values(self).eq(values(other))
            && texts(self).eq(texts(other))
    }

    /// Whether two snapshots differ in nothing but their index: not even in who wrote what when.
    pub(crate) fn holds_the_same_as(&self, other: &Self) -> bool {
        self.marker == other.marker
            && self.marker_version == other.marker_version
            && self.keys == other.keys
            && self.invalid == other.invalid
    }

    /// Whether two snapshots have the same marker and the same names, whatever their values.
    pub(crate) fn has_the_names_of(&self, other: &Self) -> bool {
        self.marker == other.marker
            && self.marker_version == other.marker_version
            && self.keys.keys().eq(other.keys.keys())
            && self.invalid.keys().eq(other.invalid.keys())
    }

    /// A path that `other` lacks or has in another version, with its version in this snapshot.
    pub(crate) fn difference_from(&self, other: &Self) -> Option<(String, u64)> {
        let mut keys = self.keys.iter();
        let key = keys.find(|(key, stored)| other.keys.get(*key) != Some(*stored));
        let key = key.map(|(key, stored)| (self.path_of(key), stored.version));
        let invalid = || {
            let mut all = self.invalid.iter();
            let (_, invalid) = all.find(|(name, bad)| other.invalid.get(*name) != Some(*bad))?;
            Some((invalid.path.to_string(), invalid.version))
        };
        let marker = || {
            let is_other =
                self.marker != other.marker || self.marker_version != other.marker_version;
            (self.marker.is_some() && is_other)
                .then(|| (marker::PATH.to_owned(), self.marker_version))
        };
        key.or_else(invalid).or_else(marker)
    }

    /// The valid keys of this snapshot that `newer` does not have at all, valid or invalid.
    pub(crate) fn vanished_in<'a>(&'a self, newer: &'a Self) -> impl Iterator<Item = &'a Key> {
        self.keys.keys().filter(|key| {
            !newer.keys.contains_key(*key) && !newer.invalid.contains_key(key.as_str())
        })
    }

    /// How many keys have kept rows out of rotation since before `since` and name no end. A key
    /// written by hand carries no time and is not counted.
    pub fn forgotten(&self, since: Timestamp) -> usize {
        let is_out = |desired| matches!(desired, Desired::DRAIN | Desired::MAINT);
        self.keys
            .values()
            .filter(|stored| is_out(stored.value.desired) && stored.value.until.is_none())
            .filter(|stored| stored.log_id.is_some_and(|id| id.at() < since))
            .count()
    }

    /// How many keys want what at this time. One whose end has come counts as absent.
    pub fn counts(&self, now: Timestamp) -> Counts {
        let mut counts = Counts::default();
        let in_force = self.keys.values();
        for stored in in_force.filter(|stored| stored.value.holds_at(now)) {
            match stored.value.desired {
                Desired::READY => counts.ready += 1,
                Desired::DRAIN => counts.drain += 1,
                Desired::MAINT => counts.maint += 1,
                Desired::Weight(_) => counts.weight += 1,
            }
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(path: &str, value: &[u8]) -> Pair {
        Pair {
            path: path.to_owned(),
            value: value.to_vec(),
            version: 1,
            log_id: None,
        }
    }

    fn key(text: &str) -> Key {
        text.parse().unwrap()
    }

    #[test]
    fn pairs_become_keys_invalids_and_the_marker() {
        let snapshot = Snapshot::new(
            7,
            [
                pair(".haplane", b"x"),
                pair("canary", b"drain\n"),
                pair("ended", b"maint until=2020-01-01T00:00:00Z"),
                pair("web/a,3A1", b"50%"),
                pair("web/b", b"down"),
                pair("web/c", b"\xff\xfe"),
                pair("folder/", b""),
                pair("", b""),
                pair("full/", b"drain"),
                pair("a,ZZ", b"drain"),
            ],
        );
        assert_eq!(snapshot.marker, Some(Marker { id: "x".into() }));
        assert_eq!(
            snapshot.get(&key("canary")).unwrap().value,
            Value::lasting(Desired::DRAIN)
        );
        assert!(snapshot.get(&key("web/a:1")).is_some());
        assert_eq!(snapshot.keys().len(), 3);
        let invalid: Vec<_> = snapshot.invalid().map(|(name, _)| name).collect();
        assert_eq!(invalid, ["a,ZZ", "full/", "web/b", "web/c"]);
        assert_eq!(
            snapshot.counts("2026-01-01T00:00:00Z".parse().unwrap()),
            Counts {
                drain: 1,
                weight: 1,
                ..Counts::default()
            }
        );
    }

    #[test]
    fn what_is_forgotten() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let written = |path: &str, value: &[u8], second| Pair {
            log_id: Some(LogId::new(at(second), 7)),
            ..pair(path, value)
        };
        let snapshot = Snapshot::new(
            7,
            [
                written("old", b"drain", 1_000),
                written("older", b"maint", 500),
                written("new", b"drain", 3_000),
                written("ending", b"drain until=2030-01-01T00:00:00Z", 1_000),
                written("in", b"ready", 1_000),
                pair("by-hand", b"drain"),
            ],
        );
        assert_eq!(snapshot.forgotten(at(2_000)), 2);
        assert_eq!(snapshot.forgotten(at(4_000)), 3);
    }

    #[test]
    fn a_key_under_two_paths_counts_as_haplane_wrote_it() {
        for pairs in [
            [pair("web/a.json", b"maint"), pair("web/a,2Ejson", b"drain")],
            [pair("web/a,2Ejson", b"drain"), pair("web/a.json", b"maint")],
        ] {
            let snapshot = Snapshot::new(1, pairs);
            let stored = snapshot.get(&key("web/a.json")).unwrap();
            assert_eq!(stored.value, Value::lasting(Desired::DRAIN));
            assert_eq!(snapshot.invalid().len(), 1);
        }
        let by_hand = Snapshot::new(1, [pair("web/a.json", b"maint")]);
        assert_eq!(by_hand.path_of(&key("web/a.json")), "web/a.json");
        assert_eq!(by_hand.path_of(&key("web/b.json")), "web/b,2Ejson");
    }

    #[test]
    fn what_vanished() {
        let old = Snapshot::new(
            1,
            [
                pair("a", b"drain"),
                pair("b", b"drain"),
                pair("c", b"drain"),
            ],
        );
        let new = Snapshot::new(2, [pair("a", b"ready"), pair("b", b"garbage")]);
        let vanished: Vec<_> = old.vanished_in(&new).map(Key::as_str).collect();
        assert_eq!(
            vanished,
            ["c"],
            "an invalid value is still there to be seen"
        );
    }
}
