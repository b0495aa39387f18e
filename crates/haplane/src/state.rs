//! Reading the store for a command: one honest snapshot, or a plain word why there is none.

use std::collections::BTreeMap;
use std::time::Duration;

use haplane_core::guard::{Extent, Mode};
use haplane_core::log::{LogEntry, LogId};
use haplane_core::{Snapshot, marker};
use haplane_store::{Store, StoreError};

use crate::exit::Exit;
use crate::failure::Failure;

/// How long a read may take; it never waits for a change.
const AT_ONCE: Duration = Duration::ZERO;

/// What a missing marker means to who reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    /// Without it nothing that was read can be believed.
    Required,
    /// A prefix that other tools write has none (`require_marker = false`).
    Optional,
    /// A write makes it when it is truly absent.
    MadeByWriting,
}

/// Reads the whole state prefix, as fresh as the store can.
pub async fn read(store: &impl Store, marker: Marker) -> Result<Snapshot, Failure> {
    let reading = store.read(Mode::Consistent, AT_ONCE).await?;
    if !reading.has_leader {
        return Err(Failure::new(
            Exit::Unreachable,
            "the store has no leader: what it says may be long past; look at the Consul servers",
        ));
    }
    if reading.extent == Extent::Filtered {
        return Err(Failure::new(
            Exit::Unreachable,
            "Consul left keys out of its list that the token may not read, so that what is drained may \
             look ready; give it key_prefix read on all of the state prefix",
        ));
    }
    let snapshot = reading.snapshot;
    if snapshot.marker.is_some() || marker == Marker::Optional {
        return Ok(snapshot);
    }
    // Asked for by its own name, the store tells "not there" from "not yours to read".
    match (store.read_path(marker::PATH).await?, marker) {
        (None, Marker::MadeByWriting) => Ok(snapshot),
        (None, _) => Err(Failure::refused(
            "the prefix has no marker: either it is not initialised (then run `haplane init`), or the \
             token may not read it (then give it key_prefix read on the state prefix); nothing that \
             was read can be believed",
        )),
        (Some(_), _) => Err(Failure::new(
            Exit::Unreachable,
            "the list of keys lacks the marker, and by its own name it is there: the token may read \
             only parts of the state prefix; give it key_prefix read on all of it",
        )),
    }
}

/// The log entries that wrote the keys of a snapshot: who, why, since when.
#[derive(Debug, Default)]
pub struct Origins(BTreeMap<LogId, LogEntry>);

impl Origins {
    /// Looks the entries up; one that is gone is a key without origin.
    pub async fn of(
        store: &impl Store,
        ids: impl IntoIterator<Item = LogId>,
    ) -> Result<Self, StoreError> {
        let mut entries = BTreeMap::new();
        for id in ids {
            if entries.contains_key(&id) {
                continue;
            }
            if let Some(entry) = store.log_entry(id).await? {
                entries.insert(id, entry);
            }
        }
        Ok(Self(entries))
    }

    /// The entry of this id.
    pub fn get(&self, id: Option<LogId>) -> Option<&LogEntry> {
        self.0.get(&id?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryStore;

    #[tokio::test]
    async fn a_list_without_what_is_denied_is_not_believed() {
        let whole = MemoryStore::new(62, None);
        assert!(read(&whole, Marker::Optional).await.is_ok());
        let filtered = MemoryStore::that_filters();
        let failure = read(&filtered, Marker::Optional).await.unwrap_err();
        assert_eq!(failure.exit, Exit::Unreachable);
        assert!(failure.message.contains("key_prefix"), "{failure:?}");
    }
}
