//! What a write would make of rows, before it is written.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::desired::{Desired, Value};
use crate::key::Key;
use crate::snapshot::Snapshot;

/// A snapshot with some keys as they will be.
#[derive(Clone, Debug)]
pub struct Outlook<'s> {
    snapshot: &'s Snapshot,
    wanted: BTreeMap<Key, Option<Value>>,
    now: Timestamp,
}

impl<'s> Outlook<'s> {
    /// The snapshot as it is.
    pub fn present(snapshot: &'s Snapshot, now: Timestamp) -> Self {
        Self {
            snapshot,
            wanted: BTreeMap::new(),
            now,
        }
    }

    /// The snapshot with these keys written; `None` deletes.
    #[must_use]
    pub fn with(mut self, wanted: impl IntoIterator<Item = (Key, Option<Value>)>) -> Self {
        self.wanted.extend(wanted);
        self
    }

    /// The index of the snapshot below it.
    pub fn index(&self) -> u64 {
        self.snapshot.index
    }

    /// The value of a key, if it has one that holds.
    pub fn value(&self, key: &Key) -> Option<Value> {
        let value = match self.wanted.get(key) {
            Some(wanted) => *wanted,
            None => self.snapshot.get(key).map(|stored| stored.value),
        };
        value.filter(|value| value.holds_at(self.now))
    }

    /// The first of a row's keys with a value, and what it wants.
    pub fn deciding<'k>(&self, keys: &'k [Key]) -> Option<(&'k Key, Desired)> {
        keys.iter()
            .find_map(|key| self.value(key).map(|value| (key, value.desired)))
    }

    /// What is desired of a row; without any value it is ready.
    pub fn desired(&self, keys: &[Key]) -> Desired {
        self.deciding(keys)
            .map_or(Desired::READY, |(_, desired)| desired)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Pair;

    #[test]
    fn what_will_be_written_comes_before_what_is() {
        let pair = |path: &str, value: &str| Pair {
            path: path.to_owned(),
            value: value.as_bytes().to_vec(),
            version: 1,
            log_id: None,
        };
        let now: Timestamp = "2026-11-29T12:00:00Z".parse().unwrap();
        let snapshot = Snapshot::new(
            1,
            [
                pair("canary", "drain"),
                pair("zone/b", "maint"),
                pair("web/old", "drain until=2026-11-29T12:00:00Z"),
            ],
        );
        let keys =
            |line: &str| -> Vec<Key> { line.split(' ').map(|key| key.parse().unwrap()).collect() };
        let present = Outlook::present(&snapshot, now);
        assert_eq!(present.desired(&keys("web/a canary")), Desired::DRAIN);
        assert_eq!(
            present.desired(&keys("web/old")),
            Desired::READY,
            "its time is over"
        );
        let without = present.with([("canary".parse().unwrap(), None)]);
        assert_eq!(without.desired(&keys("web/a canary")), Desired::READY);
        let row = keys("web/a canary zone/b");
        let (key, desired) = without.deciding(&row).unwrap();
        assert_eq!((key.as_str(), desired), ("zone/b", Desired::MAINT));
    }
}
