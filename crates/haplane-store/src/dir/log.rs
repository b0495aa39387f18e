//! The log of a directory store: one file for each entry.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use haplane_core::kv_path::encode;
use haplane_core::log::{LogEntry, LogId};
use serde::{Deserialize, Serialize};

use super::files::{LOG, failed, is_absence, read_text};
use super::journal::Journal;
use super::stamp::Stamp;
use crate::error::{StoreError, StoreErrorKind};

/// An entry names at most some thousand keys.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// What a file of the log holds: the entry, and which files it wrote. A key's file that is still one
/// of these was written by the entry's command; any other was made by hand, or copied.
#[derive(Serialize, Deserialize)]
pub(super) struct Logged {
    #[serde(flatten)]
    pub(super) entry: LogEntry,
    #[serde(default)]
    pub(super) files: BTreeMap<String, Stamp>,
}

/// Which entry wrote which file. Entries never change, so that each is read once.
#[derive(Default)]
pub(super) struct Writers {
    entries: BTreeMap<LogId, Wrote>,
    newest: BTreeMap<String, (Stamp, LogId)>,
    latest: Option<LogId>,
}

/// What an entry says of the files.
#[derive(Default)]
struct Wrote {
    files: BTreeMap<String, Stamp>,
    /// The paths that it removed.
    cleared: Vec<String>,
}

impl From<Logged> for Wrote {
    fn from(Logged { entry, files }: Logged) -> Self {
        let cleared = entry.changes.iter().filter(|change| change.after.is_none());
        Self {
            cleared: cleared.map(|change| encode(&change.key)).collect(),
            files,
        }
    }
}

impl Writers {
    /// Reads what is new, and gives the paths that commands removed since the last time. An entry that
    /// cannot be read only means that its author stays unknown.
    pub(super) fn refresh(&mut self, root: &Path, pending: Option<&Journal>) -> Vec<String> {
        let ids = ids(root).unwrap_or_default();
        let logged = pending.and_then(|journal| journal.log.as_ref());
        let mut entries = BTreeMap::new();
        for id in ids {
            let wrote = self.entries.remove(&id);
            let wrote = wrote.or_else(|| Some(read(root, id).ok()??.into()));
            entries.insert(id, wrote.unwrap_or_default());
        }
        if let Some(logged) = logged
            && let Ok(entry) = serde_json::from_str::<Logged>(&logged.text)
        {
            entries.insert(logged.id, entry.into());
        }
        self.entries = entries;
        self.newest.clear();
        for (id, wrote) in &self.entries {
            for (path, stamp) in &wrote.files {
                self.newest.insert(path.clone(), (*stamp, *id));
            }
        }
        // An old entry that reappears, as when a folder is copied back, is no news.
        let is_new = |id: &LogId| self.latest.is_none_or(|latest| *id > latest);
        let new = self.entries.iter().rev().take_while(|(id, _)| is_new(id));
        let cleared = new.flat_map(|(_, wrote)| wrote.cleared.iter().cloned());
        let cleared = cleared.collect();
        self.latest = self.latest.max(self.entries.keys().next_back().copied());
        cleared
    }

    /// The entry that wrote this file, if it is still the file that it wrote.
    pub(super) fn of(&self, path: &str, stamp: Stamp) -> Option<LogId> {
        let (written, id) = self.newest.get(path)?;
        (*written == stamp).then_some(*id)
    }
}

/// The ids of all entries, oldest first.
pub(super) fn ids(root: &Path) -> Result<Vec<LogId>, StoreError> {
    let folder = root.join(LOG);
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if is_absence(&error) => return Ok(Vec::new()),
        Err(error) => return Err(failed("read", &folder, error)),
    };
    let mut ids = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|source| failed("read", &folder, source))?;
        ids.extend(
            entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse::<LogId>().ok()),
        );
    }
    ids.sort_unstable();
    Ok(ids)
}

/// One entry.
pub(super) fn read(root: &Path, id: LogId) -> Result<Option<Logged>, StoreError> {
    let path = root.join(LOG).join(id.to_string());
    let text = match read_text(&path, MAX_BYTES) {
        Ok((_, text)) => text,
        Err(error) if is_absence(&error) => return Ok(None),
        Err(error) => return Err(failed("read", &path, error)),
    };
    parse(&text, &path).map(Some)
}

/// The text of an entry's file.
pub(super) fn parse(text: &str, path: &Path) -> Result<Logged, StoreError> {
    serde_json::from_str(text).map_err(|source| {
        let what = format!(
            "the log entry {} is not one that haplane wrote",
            path.display()
        );
        StoreError::new(StoreErrorKind::Undecodable, what).because(source)
    })
}
