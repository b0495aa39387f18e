//! The journal: it makes a write of several files happen at one moment, that of its own rename.
//!
//! All that can fail for lack of space happens before that moment: the files are written under
//! other names first, so that carrying a journal out is only renaming and removing. A writer that
//! dies meanwhile leaves it to the next one; readers see its outcome from that moment on. What a
//! person has done to one of its files meanwhile takes precedence: such a file is left alone.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use haplane_core::log::LogId;
use serde::{Deserialize, Serialize};

use super::files::{
    INDEX, JOURNAL, LOG, failed, is_absence, place, read_text, stamp_of, sync_folder, write_new,
};
use super::stamp::{File, Stamp};
use crate::error::{StoreError, StoreErrorKind};

/// The largest journal: only haplane writes one, and this holds some hundred thousand keys.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// A committed write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Journal {
    /// The index that it brings.
    pub(super) index: u64,
    /// The file that holds this index already.
    pub(super) index_file: String,
    /// Its log entry.
    pub(super) log: Option<LoggedAs>,
    pub(super) steps: Vec<Step>,
}

/// A log entry that waits for its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LoggedAs {
    pub(super) id: LogId,
    pub(super) text: String,
    pub(super) file: String,
}

/// What happens to one path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Step {
    pub(super) path: String,
    /// The file that was there when this was committed.
    pub(super) before: Option<Stamp>,
    /// What comes in its place; nothing for a deletion.
    pub(super) after: Option<After>,
}

/// A file that waits for its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct After {
    pub(super) text: String,
    pub(super) stamp: Stamp,
    pub(super) file: String,
}

/// How far a step has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Waiting,
    Done,
    /// A person changed the file meanwhile.
    Overruled,
}

impl Step {
    fn progress(&self, now: Option<Stamp>) -> Progress {
        let after = self.after.as_ref().map(|after| after.stamp);
        if now == after {
            Progress::Done
        } else if now == self.before {
            Progress::Waiting
        } else {
            Progress::Overruled
        }
    }
}

impl Journal {
    /// The journal that waits to be carried out, if one does.
    pub(super) fn read(root: &Path) -> Result<Option<Self>, StoreError> {
        let path = root.join(JOURNAL);
        let text = match read_text(&path, MAX_BYTES) {
            Ok((_, text)) => text,
            Err(error) if is_absence(&error) => return Ok(None),
            Err(error) => return Err(failed("read", &path, error)),
        };
        serde_json::from_str(&text).map(Some).map_err(|source| {
            let what = format!(
                "{} is not a journal of haplane: somebody damaged it; remove it, then look with \
                 `haplane show` at what the last command wrote",
                path.display()
            );
            StoreError::new(StoreErrorKind::Undecodable, what).because(source)
        })
    }

    /// Commits: from the renaming on, every reader sees the outcome.
    pub(super) fn commit(&self, root: &Path, temporary: &str) -> Result<(), StoreError> {
        let path = root.join(temporary);
        let text = serde_json::to_string(self).map_err(|source| {
            let what = "the journal cannot be written as JSON";
            StoreError::new(StoreErrorKind::Io, what).because(source)
        })?;
        write_new(&path, &text)
            .and_then(|_| fs::rename(&path, root.join(JOURNAL)))
            .map_err(|source| failed("write", &path, source))?;
        // The rename was the commit; that the disk cannot be synchronised does not undo it.
        if let Err(error) = sync_folder(root) {
            tracing::warn!(%error, "cannot synchronise {}", root.display());
        }
        Ok(())
    }

    /// What a reader sees: the files as they will be.
    pub(super) fn overlay(&self, files: &mut BTreeMap<String, File>) {
        for step in &self.steps {
            let now = files.get(&step.path).map(|file| file.stamp);
            if step.progress(now) != Progress::Waiting {
                continue;
            }
            match &step.after {
                None => drop(files.remove(&step.path)),
                Some(after) => {
                    let file = File {
                        stamp: after.stamp,
                        value: after.text.clone().into_bytes(),
                    };
                    files.insert(step.path.clone(), file);
                }
            }
        }
    }

    /// Carries the journal out, or goes on with it. Only under the lock.
    pub(super) fn carry_out(&self, root: &Path) -> Result<(), StoreError> {
        let (deletions, writes): (Vec<_>, Vec<_>) =
            self.steps.iter().partition(|step| step.after.is_none());
        // Deletions first: `zone` may have to make room for `zone/b`.
        for step in deletions.into_iter().chain(writes) {
            step.carry_out(root)
                .map_err(|source| failed("write", &root.join(&step.path), source))?;
        }
        if let Some(log) = &self.log {
            let path = root.join(LOG).join(log.id.to_string());
            settle(root, &log.file, &log.text, &path)
                .map_err(|source| failed("write", &path, source))?;
        }
        let path = root.join(INDEX);
        settle(root, &self.index_file, &index_text(self.index), &path)
            .map_err(|source| failed("write", &path, source))?;
        let path = root.join(JOURNAL);
        sync_folder(root)
            .and_then(|()| fs::remove_file(&path))
            .map_err(|source| failed("remove", &path, source))
    }
}

/// What `.index` holds.
pub(super) fn index_text(index: u64) -> String {
    format!("{index}\n")
}

impl Step {
    fn carry_out(&self, root: &Path) -> io::Result<()> {
        let not_ours = || io::Error::other("a path that cannot be a key");
        let path = place(root, &self.path).ok_or_else(not_ours)?;
        let progress = self.progress(stamp_of(&path)?);
        match &self.after {
            None => {
                if progress == Progress::Waiting {
                    fs::remove_file(&path)?;
                }
                remove_empty_parents(root, &path);
                Ok(())
            }
            Some(after) if progress == Progress::Waiting => {
                match make_room(&path) {
                    // Since the commit, a person has put a file where a folder is needed, or the
                    // other way round. As always, what a person does takes precedence.
                    Err(error) if is_in_the_way(&error) => Ok(()),
                    made => made.and_then(|()| settle(root, &after.file, &after.text, &path)),
                }
            }
            Some(_) => Ok(()),
        }
    }
}

/// Brings a file to its place; writes it anew if somebody removed it from where it waited.
fn settle(root: &Path, waiting: &str, text: &str, path: &Path) -> io::Result<()> {
    let waiting = root.join(waiting);
    match fs::rename(&waiting, path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            write_new(&waiting, text)?;
            fs::rename(&waiting, path)?;
        }
        renamed => renamed?,
    }
    path.parent().map_or(Ok(()), sync_folder)
}

/// Folders for a file, and no empty folder where it goes.
fn make_room(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    if fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir()) {
        remove_empty_tree(path)?;
    }
    Ok(())
}

fn is_in_the_way(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotADirectory
            | io::ErrorKind::AlreadyExists
            | io::ErrorKind::DirectoryNotEmpty
    )
}

fn remove_empty_tree(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        remove_empty_tree(&entry?.path())?;
    }
    fs::remove_dir(folder)
}

/// Folders that hold no key any more would stand in the way of a key of their name.
fn remove_empty_parents(root: &Path, path: &Path) {
    let parents = path
        .ancestors()
        .skip(1)
        .take_while(|parent| *parent != root);
    for parent in parents {
        // Not empty, or not ours to remove: then it stays.
        if fs::remove_dir(parent).is_err() {
            return;
        }
    }
}
