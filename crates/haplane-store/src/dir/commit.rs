//! Writing: under the lock, checked, prepared under other names, committed by a single rename.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use haplane_core::key::Key;
use haplane_core::kv_path::decode;
use haplane_core::log::LogEntry;
use haplane_core::marker::{self, Marker};
use jiff::Timestamp;

use super::files::{
    LOG, MAX_NAME_BYTES, TEMPORARY, failed, is_absence, place, read_value, stamp_of, write_new,
};
use super::journal::{After, Journal, LoggedAs, Step, index_text};
use super::lock::Lock;
use super::log::Logged;
use super::look::read_index;
use super::stamp::Stamp;
use crate::error::{CommitError, StoreError, StoreErrorKind};
use crate::store::{Change, Committed, Expected, Transaction};

/// The most keys of one command: more would be a mistake.
pub(super) const MAX_KEYS: usize = 10_000;

/// What is to happen to one path.
struct Intent<'a> {
    path: &'a str,
    place: PathBuf,
    before: Option<Stamp>,
    text: Option<String>,
}

/// Carries a transaction out. Blocking.
pub(super) fn commit(root: &Path, transaction: &Transaction) -> Result<Committed, CommitError> {
    let Written {
        committed,
        journal,
        _lock,
    } = write_ahead(root, transaction)?;
    if let Some(Err(error)) = journal.map(|journal| journal.carry_out(root)) {
        // It is committed: readers see it, and the next writer goes on with it.
        tracing::warn!(
            "a write is committed but not carried out yet: {}",
            error.story()
        );
    }
    Ok(committed)
}

/// A transaction that is committed, though its files may not be in their places yet.
struct Written {
    committed: Committed,
    journal: Option<Journal>,
    _lock: Lock,
}

fn write_ahead(root: &Path, transaction: &Transaction) -> Result<Written, CommitError> {
    let changes = &transaction.changes;
    if changes.len() > MAX_KEYS {
        let what = format!(
            "one transaction carries {MAX_KEYS} keys, not {}",
            changes.len()
        );
        return Err(CommitError::Unholdable(what));
    }
    make_root(root, transaction)?;
    let places: Vec<PathBuf> = changes
        .iter()
        .map(|change| holdable(root, change))
        .collect::<Result<_, _>>()?;
    let lock = Lock::take(root)?;
    clear_up(root)?;
    let mut intents = check(changes, places)?;
    let marker = if transaction.is_init() {
        marker_intent(root)?
    } else {
        None
    };
    let made_marker = marker.is_some();
    intents.extend(marker);
    let index = read_index(root)?;
    let written = |index, journal| Written {
        committed: Committed { index, made_marker },
        journal,
        _lock: lock,
    };
    if intents.is_empty() && transaction.log.is_none() {
        return Ok(written(index, None));
    }
    room(root, &intents)?;
    let index = index + 1;
    let mut preparation = Preparation::new(root);
    let journal = preparation.journal(index, intents, transaction.log.as_ref())?;
    journal.commit(root, &preparation.next_name())?;
    preparation.keep();
    Ok(written(index, Some(journal)))
}

/// The marker, if there is none yet.
fn marker_intent(root: &Path) -> Result<Option<Intent<'static>>, StoreError> {
    let place = root.join(marker::PATH);
    if stamp_of(&place)
        .map_err(|source| failed("read", &place, source))?
        .is_some()
    {
        return Ok(None);
    }
    let marker = Marker::new(fastrand::u64(..)).text(Timestamp::now());
    Ok(Some(Intent {
        path: marker::PATH,
        place,
        before: None,
        text: Some(format!("{marker}\n")),
    }))
}

/// `haplane init` makes the folder. No other command does: a folder that should be there and is not
/// may be a volume that is not mounted.
fn make_root(root: &Path, transaction: &Transaction) -> Result<(), StoreError> {
    if transaction.is_init() {
        return fs::create_dir_all(root).map_err(|source| failed("make the folder", root, source));
    }
    match fs::metadata(root) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(failed("write", root, io::Error::other("not a folder"))),
        Err(source) if is_absence(&source) => {
            let what = format!(
                "there is no folder {}, nothing was written: `haplane init` makes it, unless it should \
                 be there already",
                root.display()
            );
            Err(StoreError::new(StoreErrorKind::Io, what).because(source))
        }
        Err(source) => Err(failed("write", root, source)),
    }
}

fn holdable(root: &Path, change: &Change) -> Result<PathBuf, CommitError> {
    let Change { key, path, .. } = change;
    if path.split('/').any(|name| name.len() > MAX_NAME_BYTES) {
        let what = format!(
            "the key {key} cannot be held by a folder: a part of it is longer than a file name can be, \
             {MAX_NAME_BYTES} bytes"
        );
        return Err(CommitError::Unholdable(what));
    }
    place(root, path).ok_or_else(|| {
        CommitError::Unholdable(format!(
            "the key {key} cannot be held by a folder as {path:?}"
        ))
    })
}

/// Finishes what a writer that died had committed, and removes what it had not.
pub(super) fn clear_up(root: &Path) -> Result<(), StoreError> {
    if let Some(journal) = Journal::read(root)? {
        journal.carry_out(root)?;
    }
    let entries = fs::read_dir(root).map_err(|source| failed("read", root, source))?;
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(TEMPORARY) {
            let path = entry.path();
            fs::remove_file(&path).map_err(|source| failed("remove", &path, source))?;
        }
    }
    Ok(())
}

/// Compares what is there with what was read, and keeps what is left to do.
fn check(changes: &[Change], places: Vec<PathBuf>) -> Result<Vec<Intent<'_>>, CommitError> {
    let mut conflicts: Vec<Key> = Vec::new();
    let mut intents = Vec::new();
    for (change, place) in changes.iter().zip(places) {
        let now = match read_value(&place) {
            Ok(file) => Some(file),
            Err(error) if is_absence(&error) || place.is_dir() => None,
            Err(error) => return Err(failed("read", &place, error).into()),
        };
        let is_as_expected = match (change.expected, &now) {
            (Expected::Absent, None) => true,
            (Expected::Version(version), Some(file)) => file.version() == version,
            _ => false,
        };
        if !is_as_expected {
            conflicts.push(change.key.clone());
        } else if now.is_some() || change.text.is_some() {
            intents.push(Intent {
                path: &change.path,
                place,
                before: now.map(|file| file.stamp),
                text: change.text.as_ref().map(|text| format!("{text}\n")),
            });
        }
    }
    if conflicts.is_empty() {
        Ok(intents)
    } else {
        Err(CommitError::Conflict { keys: conflicts })
    }
}

/// Makes sure that every file can get to its place.
fn room(root: &Path, intents: &[Intent<'_>]) -> Result<(), CommitError> {
    let device = |path: &Path| fs::metadata(path).map(|metadata| metadata.dev());
    let home = device(root).map_err(|source| failed("read", root, source))?;
    let (written, gone): (Vec<_>, Vec<_>) = intents.iter().partition(|i| i.text.is_some());
    let gone: HashSet<&Path> = gone.iter().map(|intent| intent.place.as_path()).collect();
    let deleted = |place: &Path| gone.contains(place);
    let paths: HashSet<&str> = written.iter().map(|intent| intent.path).collect();
    for intent in &written {
        let mut folders = folders_of(intent.path);
        if let Some(other) = folders.find(|folder| paths.contains(folder)) {
            return Err(beside(intent.path, other));
        }
        let folders = intent.place.ancestors().skip(1);
        for folder in folders.take_while(|folder| *folder != root) {
            match fs::symlink_metadata(folder) {
                Err(error) if is_absence(&error) => {}
                Err(error) => return Err(failed("read", folder, error).into()),
                Ok(metadata) if metadata.is_symlink() || metadata.dev() != home => {
                    return Err(elsewhere(folder).into());
                }
                Ok(metadata) if metadata.is_dir() || deleted(folder) => {}
                Ok(_) => return Err(beside(intent.path, &path_below(root, folder))),
            }
        }
        match fs::symlink_metadata(&intent.place) {
            Ok(metadata) if metadata.is_symlink() => return Err(elsewhere(&intent.place).into()),
            Ok(metadata) if metadata.is_dir() => {
                let stays = first_file(&intent.place, &deleted)
                    .map_err(|source| failed("read", &intent.place, source))?;
                if let Some(file) = stays {
                    return Err(beside(intent.path, &path_below(root, &file)));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// The paths of the folders that a path lies in.
fn folders_of(path: &str) -> impl Iterator<Item = &str> {
    let cuts = path.match_indices('/');
    cuts.filter_map(|(cut, _)| path.get(..cut))
}

/// A file below a folder that stays when the transaction is carried out.
fn first_file(folder: &Path, deleted: &impl Fn(&Path) -> bool) -> io::Result<Option<PathBuf>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if fs::symlink_metadata(&path)?.is_dir() {
            if let Some(file) = first_file(&path, deleted)? {
                return Ok(Some(file));
            }
        } else if !deleted(&path) {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

fn path_below(root: &Path, place: &Path) -> String {
    let below = place.strip_prefix(root).unwrap_or(place);
    below.to_string_lossy().into_owned()
}

fn beside(one: &str, other: &str) -> CommitError {
    let name = |path: &str| decode(path).map_or_else(|_| path.to_owned(), |key| key.to_string());
    CommitError::Unholdable(format!(
        "a folder cannot hold {} beside {}: one would be a file and a folder at once; nothing was \
         written",
        name(one),
        name(other)
    ))
}

fn elsewhere(place: &Path) -> StoreError {
    let what = format!(
        "{} leads elsewhere, to where haplane cannot write all keys of a command at once; nothing was \
         written: write there by hand, or put a plain file or folder in its place",
        place.display()
    );
    StoreError::new(StoreErrorKind::Io, what)
}

/// Files under other names, which are removed when this is dropped without having been kept.
struct Preparation<'a> {
    root: &'a Path,
    files: Vec<PathBuf>,
    folders: Vec<PathBuf>,
    count: usize,
    is_kept: bool,
}

impl<'a> Preparation<'a> {
    fn new(root: &'a Path) -> Self {
        Self {
            root,
            files: Vec::new(),
            folders: Vec::new(),
            count: 0,
            is_kept: false,
        }
    }

    fn next_name(&mut self) -> String {
        self.count += 1;
        let name = format!("{TEMPORARY}{}-{}", std::process::id(), self.count);
        self.files.push(self.root.join(&name));
        name
    }

    fn keep(mut self) {
        self.is_kept = true;
    }

    fn journal(
        &mut self,
        index: u64,
        intents: Vec<Intent<'_>>,
        log: Option<&LogEntry>,
    ) -> Result<Journal, StoreError> {
        let mut steps = Vec::new();
        let mut stamps = BTreeMap::new();
        for intent in intents {
            let after = match intent.text {
                None => None,
                Some(text) => {
                    self.folders_for(&intent.place)?;
                    let (file, stamp) = self.write(&text)?;
                    stamps.insert(intent.path.to_owned(), stamp);
                    Some(After { text, stamp, file })
                }
            };
            steps.push(Step {
                path: intent.path.to_owned(),
                before: intent.before,
                after,
            });
        }
        let log = match log {
            Some(entry) => Some(self.log(entry, stamps)?),
            None => None,
        };
        let (index_file, _) = self.write(&index_text(index))?;
        Ok(Journal {
            index,
            index_file,
            log,
            steps,
        })
    }

    fn log(
        &mut self,
        entry: &LogEntry,
        files: BTreeMap<String, Stamp>,
    ) -> Result<LoggedAs, StoreError> {
        let folder = self.root.join(LOG);
        fs::create_dir_all(&folder).map_err(|source| failed("write", &folder, source))?;
        let logged = Logged {
            entry: entry.clone(),
            files,
        };
        let text = serde_json::to_string(&logged).map_err(|source| {
            let what = "the log entry cannot be written as JSON";
            StoreError::new(StoreErrorKind::Io, what).because(source)
        })?;
        let text = format!("{text}\n");
        let (file, _) = self.write(&text)?;
        Ok(LoggedAs {
            id: entry.id,
            text,
            file,
        })
    }

    fn write(&mut self, text: &str) -> Result<(String, Stamp), StoreError> {
        let name = self.next_name();
        let path = self.root.join(&name);
        let stamp = write_new(&path, text).map_err(|source| failed("write", &path, source))?;
        Ok((name, stamp))
    }

    /// Makes folders before the commit, as far as nothing stands in the way.
    fn folders_for(&mut self, place: &Path) -> Result<(), StoreError> {
        let folders = place.ancestors().skip(1).take_while(|f| *f != self.root);
        let missing: Vec<_> = folders.take_while(|folder| !folder.exists()).collect();
        for folder in missing.into_iter().rev() {
            match fs::create_dir(folder) {
                Ok(()) => self.folders.push(folder.to_owned()),
                // A file that the journal removes first.
                Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(()),
                Err(error) => return Err(failed("make the folder", folder, error)),
            }
        }
        Ok(())
    }
}

impl Drop for Preparation<'_> {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        // What cannot be removed now will be removed by the next writer.
        for file in &self.files {
            drop(fs::remove_file(file));
        }
        for folder in self.folders.iter().rev() {
            drop(fs::remove_dir(folder));
        }
    }
}

#[cfg(test)]
mod tests;
