//! Reading the store for a command: one honest snapshot, or a plain word why there is none.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use haplane_core::guard::{Extent, Mode};
use haplane_core::log::{LogEntry, LogId};
use haplane_core::{Key, Snapshot, kv_path, marker};
use haplane_daemon::settings::AgentSettings;
use haplane_store::{Location, Named, Store, StoreError, StoreSettings};

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
}

impl Marker {
    /// What the settings say of it.
    pub fn of(settings: &AgentSettings) -> Self {
        if settings.require_marker {
            Self::Required
        } else {
            Self::Optional
        }
    }
}

/// Reads the whole state prefix of this place, as fresh as the store can.
pub async fn read(
    store: &impl Store,
    marker: Marker,
    place: &StoreSettings,
) -> Result<Snapshot, Failure> {
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
    // Asked for a key by its own name, the store distinguishes "not there" from "not yours to read".
    match store.read_path(marker::PATH).await? {
        None => Err(no_marker(place)),
        Some(_) => Err(Failure::new(
            Exit::Unreachable,
            "the list of keys lacks the marker, and by its own name it is there: the token may read \
             only parts of the state prefix; give it key_prefix read on all of it",
        )),
    }
}

/// Makes sure that those of these keys that a snapshot lacks are not there: in a list, a store may leave out
/// without a word what the token may not read. To a person or a pipeline that asks about a key by its name,
/// a drain that is hidden is no "ready".
pub async fn sure_of_absence<'k>(
    store: &impl Store,
    snapshot: &Snapshot,
    keys: impl IntoIterator<Item = &'k Key>,
    place: &StoreSettings,
) -> Result<(), Failure> {
    if !store.hides_what_it_denies() {
        return Ok(());
    }
    let is_missing =
        |key: &&Key| snapshot.get(key).is_none() && snapshot.get_invalid(key).is_none();
    let missing: Vec<String> = keys
        .into_iter()
        .filter(is_missing)
        .flat_map(kv_path::paths)
        .collect();
    let named = store.read_names(&missing).await?;
    let denied = named
        .iter()
        .zip(&missing)
        .find(|(one, _)| **one == Named::Denied);
    denied.map_or(Ok(()), |(_, path)| {
        let prefix = &place.state_prefix;
        Err(Failure::new(
            Exit::Unreachable,
            format!(
                "Consul denies it, reading {prefix}{path}: it is not in the list of keys because the token may \
                 not read it; give it key_prefix \"{prefix}\" {{ policy = \"read\" }}"
            ),
        ))
    })
}

/// Mostly a typing mistake in the prefix, and what is written next would be a second truth.
fn no_marker(store: &StoreSettings) -> Failure {
    let place = place_of(store);
    Failure::refused(match store.location {
        Location::Dir(_) => format!(
            "{place} has no marker, so it is no store of haplane's, and nothing was written: is it the folder \
             that you mean? `haplane init` makes the marker, once for a new store"
        ),
        Location::Consul(_) => format!(
            "{place} has no marker, so nothing that was read there can be believed, and nothing was written. Is \
             it the prefix that you mean? Then either it is new (`haplane init` makes the marker, once), or \
             the token may not read it (give it key_prefix {:?} read)",
            store.state_prefix.as_str()
        ),
    })
}

/// Where the state is, for people: `haplane/state/ in consul:http://127.0.0.1:8500`, or a folder.
pub fn place_of(store: &StoreSettings) -> String {
    match store.location {
        Location::Dir(_) => store.location.to_string(),
        Location::Consul(_) => format!(
            "{} in consul:{}",
            store.state_prefix,
            store.consul().address
        ),
    }
}

/// The log entries that wrote the keys of a snapshot: who, why, since when.
#[derive(Debug, Default)]
pub struct Origins(BTreeMap<LogId, LogEntry>);

impl Origins {
    /// Looks the entries up; where one is gone, the key has no known origin.
    pub async fn of(
        store: &impl Store,
        ids: impl IntoIterator<Item = LogId>,
    ) -> Result<Self, StoreError> {
        let ids: BTreeSet<LogId> = ids.into_iter().collect();
        let ids: Vec<LogId> = ids.into_iter().collect();
        let entries = store.log_entries(&ids).await?.into_iter();
        Ok(Self(entries.map(|entry| (entry.id, entry)).collect()))
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

    fn place(location: &str) -> StoreSettings {
        StoreSettings {
            location: location.parse().unwrap(),
            consul: haplane_store::consul::ConsulSettings::default(),
            state_prefix: "nope/".parse().unwrap(),
            log_prefix: "log/".parse().unwrap(),
        }
    }

    #[tokio::test]
    async fn a_place_without_marker_is_named_and_only_consul_has_tokens() {
        let empty = MemoryStore::new(62, None);
        let consul = place("consul:http://127.0.0.1:8500");
        let failure = read(&empty, Marker::Required, &consul).await.unwrap_err();
        assert_eq!(failure.exit, Exit::Refused);
        let told = failure.message;
        for word in [
            "nope/ in consul:http://127.0.0.1:8500",
            "haplane init",
            "token",
        ] {
            assert!(told.contains(word), "{word} in {told}");
        }
        let folder = place("dir:/somewhere/else");
        let failure = read(&empty, Marker::Required, &folder).await.unwrap_err();
        let told = failure.message;
        assert!(told.contains("dir:/somewhere/else has no marker"), "{told}");
        assert!(!told.contains("token"), "{told}");
    }

    #[tokio::test]
    async fn a_list_without_what_is_denied_is_not_believed() {
        let whole = MemoryStore::new(62, None);
        let place = place("consul:http://127.0.0.1:8500");
        assert!(read(&whole, Marker::Optional, &place).await.is_ok());
        let filtered = MemoryStore::that_filters();
        let failure = read(&filtered, Marker::Optional, &place).await.unwrap_err();
        assert_eq!(failure.exit, Exit::Unreachable);
        assert!(failure.message.contains("key_prefix"), "{failure:?}");
    }
}
