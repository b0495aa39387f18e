//! The last good snapshot, kept for a start while the store is away.
//!
//! Off by default: HAProxy keeps its own state while nobody answers. A site that restarts HAProxy and
//! agent together may prefer yesterday's answers to none.
//!
//! A file that is there says what the last run knew last: what is no longer true is taken away before
//! the new is written, so that neither a full disk nor a sudden end leaves the old to be believed. And
//! a file that this run could not take away is not believed: the last run could not either.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use haplane_core::Snapshot;
use haplane_core::log::LogId;
use haplane_core::marker;
use haplane_core::snapshot::Pair;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// How far in the future the time of a kept file may lie: clocks differ, and get corrected.
const SKEW: Duration = Duration::from_mins(1);

/// A snapshot of an earlier run.
#[derive(Debug)]
pub struct LastGood {
    /// The snapshot.
    pub snapshot: Arc<Snapshot>,
    /// When the store was last known to say this.
    pub kept_at: Timestamp,
}

/// Why there is no last good snapshot to use.
#[derive(Debug, thiserror::Error)]
pub enum LastGoodError {
    /// The file cannot be read.
    #[error("cannot read the last good snapshot {path}")]
    Read {
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file is not one of ours, or only a part of one.
    #[error("the last good snapshot {path} cannot be understood; it will be written anew")]
    Text {
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// Emptied because it could not be replaced.
    #[error("the last good snapshot {path} is empty: what it held was no longer true")]
    Emptied {
        /// The file.
        path: String,
    },
    /// It may be older than what the last run knew.
    #[error(
        "the last good snapshot {path} cannot be written, so that nobody could take it away when it \
         was no longer true; make the file and its folder writable for haplane"
    )]
    NotOurs {
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It was kept for another store, prefix or node.
    #[error("the last good snapshot {path} is of {kept}, not of {wanted}")]
    OtherStore {
        /// The file.
        path: String,
        /// Which store it is of.
        kept: String,
        /// Which store is configured.
        wanted: String,
    },
    /// Its time has passed.
    #[error("the last good snapshot {path} was kept at {kept_at}, longer ago than {max_age:?}")]
    TooOld {
        /// The file.
        path: String,
        /// When it was kept.
        kept_at: Timestamp,
        /// `last_good_max_age`.
        max_age: Duration,
    },
    /// Its time is still to come: nobody can say how old it is.
    #[error("the last good snapshot {path} was kept at {kept_at}, which is in the future")]
    Future {
        /// The file.
        path: String,
        /// When it says that it was kept.
        kept_at: Timestamp,
    },
}

#[derive(Serialize, Deserialize)]
struct Text {
    /// Which store, prefix and node it is of.
    store: String,
    kept_at: Timestamp,
    index: u64,
    marker: Option<String>,
    /// 0, which is "unknown", in a file of an older version.
    #[serde(default)]
    marker_version: u64,
    keys: Vec<KeptKey>,
}

#[derive(Serialize, Deserialize)]
struct KeptKey {
    path: String,
    value: String,
    version: u64,
    log: Option<LogId>,
}

/// Writes a snapshot aside and puts it in place at once. `store` names the store, its prefix and the
/// node. Call [`take_away`] first when what stands there is no longer true.
pub fn keep(path: &Path, store: &str, snapshot: &Snapshot, now: Timestamp) -> io::Result<()> {
    let keys = snapshot.keys().map(|(key, stored)| KeptKey {
        path: snapshot.path_of(key),
        value: stored.value.to_string(),
        version: stored.version,
        log: stored.log_id,
    });
    let text = Text {
        store: store.to_owned(),
        kept_at: now,
        index: snapshot.index,
        marker: snapshot.marker.as_ref().map(ToString::to_string),
        marker_version: snapshot.marker_version,
        keys: keys.collect(),
    };
    let mut aside = path.as_os_str().to_owned();
    // Behind the whole name: `state.new` has to have another one beside it.
    aside.push(".new");
    let aside = Path::new(&aside);
    let text = serde_json::to_vec(&text)?;
    let placed = write(aside, &text).and_then(|()| fs::rename(aside, path));
    if placed.is_err() {
        // Half a file takes room that the next attempt needs; the failure itself is told.
        drop(fs::remove_file(aside));
    }
    placed
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = fs::File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Takes away what is no longer true: removed, or emptied where the folder lets nobody remove it. Both
/// work on a full disk.
pub fn take_away(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Ok(()) => match path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
        {
            Some(folder) => fs::File::open(folder)?.sync_all(),
            None => Ok(()),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(_) => {
            let file = fs::OpenOptions::new().write(true).open(path)?;
            file.set_len(0)?;
            file.sync_all()
        }
    }
}

/// Reads what an earlier run kept, if it is of this store and young enough. No file is no error.
pub fn read(
    path: &Path,
    store: &str,
    max_age: Duration,
    now: Timestamp,
) -> Result<Option<LastGood>, LastGoodError> {
    let Some(text) = read_text(path)? else {
        return Ok(None);
    };
    let path = path.display().to_string();
    let kept_at = text.kept_at;
    if text.store != store {
        return Err(LastGoodError::OtherStore {
            path,
            kept: text.store,
            wanted: store.to_owned(),
        });
    }
    let age = now.duration_since(kept_at);
    if age.is_negative() && age.unsigned_abs() > SKEW {
        return Err(LastGoodError::Future { path, kept_at });
    }
    if age > SignedDuration::try_from(max_age).unwrap_or(SignedDuration::MAX) {
        return Err(LastGoodError::TooOld {
            path,
            kept_at,
            max_age,
        });
    }
    Ok(Some(LastGood {
        snapshot: Arc::new(text.into_snapshot()),
        kept_at,
    }))
}

fn read_text(path: &Path) -> Result<Option<Text>, LastGoodError> {
    let name = || path.display().to_string();
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            return Err(LastGoodError::Read {
                path: name(),
                source,
            });
        }
    };
    if let Err(source) = fs::OpenOptions::new().write(true).open(path) {
        return Err(LastGoodError::NotOurs {
            path: name(),
            source,
        });
    }
    if bytes.is_empty() {
        return Err(LastGoodError::Emptied { path: name() });
    }
    let text = serde_json::from_slice(&bytes);
    text.map(Some).map_err(|source| LastGoodError::Text {
        path: name(),
        source,
    })
}

impl Text {
    fn into_snapshot(self) -> Snapshot {
        let version = self.marker_version;
        let marker = self.marker.map(|id| Pair {
            path: marker::PATH.to_owned(),
            value: id.into_bytes(),
            version,
            log_id: None,
        });
        let keys = self.keys.into_iter().map(|key| Pair {
            path: key.path,
            value: key.value.into_bytes(),
            version: key.version,
            log_id: key.log,
        });
        Snapshot::new(self.index, marker.into_iter().chain(keys))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drained() -> Snapshot {
        let pair = |path: &str, value: &[u8]| Pair {
            path: path.to_owned(),
            value: value.to_vec(),
            version: 3,
            log_id: LogId::from_flags(7),
        };
        Snapshot::new(
            9,
            [
                pair(".haplane", b"m1"),
                pair("web/a,3A1", b"drain until=2030-01-31T12:00:00Z"),
            ],
        )
    }

    #[test]
    fn what_is_kept_is_read_back_while_it_is_young_and_ours() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("last-good.json");
        let day = Duration::from_hours(24);
        let now: Timestamp = "2026-11-29T12:00:00Z".parse().unwrap();
        assert!(read(&path, "consul x", day, now).unwrap().is_none());

        keep(&path, "consul x", &drained(), now).unwrap();
        let kept = read(&path, "consul x", day, now).unwrap().unwrap();
        assert!(kept.snapshot.says_the_same_as(&drained()));
        let odd = folder.path().join("state.new");
        keep(&odd, "consul x", &drained(), now).unwrap();
        assert!(read(&odd, "consul x", day, now).unwrap().is_some());
        let mut names: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["last-good.json", "state.new"]);
        assert_eq!((kept.snapshot.index, kept.kept_at), (9, now));

        let later = now + SignedDuration::from_hours(25);
        let too_old = read(&path, "consul x", day, later).unwrap_err();
        assert!(matches!(too_old, LastGoodError::TooOld { .. }));
        let little = now - SignedDuration::from_secs(50);
        assert!(read(&path, "consul x", day, little).unwrap().is_some());
        let before = now - SignedDuration::from_secs(70);
        let future = read(&path, "consul x", day, before).unwrap_err();
        assert!(matches!(future, LastGoodError::Future { .. }));
        let other = read(&path, "consul y", day, now).unwrap_err();
        assert!(matches!(other, LastGoodError::OtherStore { .. }));

        let half = fs::read(&path).unwrap();
        fs::write(&path, &half[..half.len() / 2]).unwrap();
        let cut = read(&path, "consul x", day, now).unwrap_err();
        assert!(matches!(cut, LastGoodError::Text { .. }));
    }

    #[test]
    fn what_is_taken_away_is_not_believed_wherever_it_stands() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("last-good.json");
        let now: Timestamp = "2026-11-29T12:00:00Z".parse().unwrap();
        let day = Duration::from_hours(24);
        take_away(&path).unwrap();
        keep(&path, "x", &drained(), now).unwrap();
        take_away(&path).unwrap();
        assert!(read(&path, "x", day, now).unwrap().is_none());

        fs::write(&path, "").unwrap();
        let emptied = read(&path, "x", day, now).unwrap_err();
        assert!(matches!(emptied, LastGoodError::Emptied { .. }));
    }

    #[test]
    fn a_file_that_cannot_be_put_leaves_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("last-good.json");
        let now: Timestamp = "2026-11-29T12:00:00Z".parse().unwrap();
        fs::create_dir_all(path.join("in the way")).unwrap();
        assert!(keep(&path, "x", &drained(), now).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(
            take_away(&path).is_err(),
            "an old file stands, and it is told"
        );
    }
}
