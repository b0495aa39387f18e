//! One look at a folder: all of its files as they were at one moment, or an error.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use haplane_core::marker;

use super::files::{
    CONFIG_MAP, INDEX, JOURNAL, failed, is_absence, is_ignored, read_text, read_value, stamp_of,
};
use super::journal::Journal;
use super::lock::Lock;
use super::log::Writers;
use super::settle::{Belief, Ground, Identity, Settled};
use super::stamp::{Changed, File, Stamp};
use crate::error::{StoreError, StoreErrorKind};

/// How old a file has to be when it is read for its time stamp to tell it from a later writing.
const TELLING_AGE: Duration = Duration::from_millis(100);

const MAX_FILES: usize = 200_000;
const MAX_DEPTH: usize = 130;

/// How often a look is begun again because somebody wrote meanwhile.
const ATTEMPTS: usize = 40;
const BEFORE_LOCKING: usize = 10;
const BEFORE_NEXT_ATTEMPT: Duration = Duration::from_millis(5);

/// A number that is no index.
const BEYOND_INDEXES: u64 = i64::MAX.unsigned_abs();

/// What a folder holds at one moment.
pub(super) struct Look {
    pub(super) index: u64,
    pub(super) files: BTreeMap<String, File>,
    /// Otherwise something is being written right now: look again before any of it is believed.
    pub(super) settled: Settled,
}

/// What is remembered between looks.
#[derive(Default)]
pub(super) struct Memory {
    read: BTreeMap<String, Read>,
    belief: Belief,
    pub(super) writers: Writers,
}

struct Read {
    file: File,
    changed: Changed,
    /// Whether the same stamp and time of change will mean the same content.
    is_telling: bool,
}

/// Changes whenever somebody writes, except for single files changed by hand.
#[derive(PartialEq, Eq)]
struct Seal {
    root: u64,
    index: u64,
    journal: Option<Stamp>,
    config_map: Option<PathBuf>,
}

impl Seal {
    fn of(root: &Path) -> Result<Self, StoreError> {
        let metadata = find_root(root)?;
        let journal = root.join(JOURNAL);
        Ok(Self {
            root: metadata.ino(),
            index: read_index(root)?,
            journal: stamp_of(&journal).map_err(|source| failed("read", &journal, source))?,
            config_map: fs::read_link(root.join(CONFIG_MAP)).ok(),
        })
    }
}

/// The number in `.index`; a folder that haplane never wrote has none and counts as 1.
pub(super) fn read_index(root: &Path) -> Result<u64, StoreError> {
    let path = root.join(INDEX);
    let text = match read_text(&path, 64) {
        Ok((_, text)) => text,
        Err(error) if is_absence(&error) => return Ok(1),
        Err(error) => return Err(failed("read", &path, error)),
    };
    let index: Option<u64> = text.trim().parse().ok();
    index
        .filter(|index| (1..BEYOND_INDEXES).contains(index))
        .ok_or_else(|| {
            let what = format!(
                "{} holds no index: write a number into it that is larger than any before",
                path.display()
            );
            StoreError::new(StoreErrorKind::Undecodable, what)
        })
}

/// Looks once, blocking.
pub(super) fn look(root: &Path, memory: &mut Memory) -> Result<Look, StoreError> {
    let mut last_error = None;
    let mut _lock = None;
    for attempt in 0..ATTEMPTS {
        if attempt == BEFORE_LOCKING {
            // Some writer never rests, so keep writers out; where no lock can be taken, nobody can
            // write.
            _lock = Lock::share(root);
        }
        let before = Seal::of(root)?;
        let walked = Walk::new(root, memory).walk();
        let pending = Journal::read(root)?;
        if Seal::of(root)? == before && pending.is_some() == before.journal.is_some() {
            match walked {
                Ok((files, folders)) => {
                    let ground = Ground {
                        folders,
                        config_map: before.config_map.clone(),
                    };
                    return Ok(finish(
                        root,
                        memory,
                        &before,
                        files,
                        ground,
                        pending.as_ref(),
                    ));
                }
                // A file that was there a moment ago, or a link that is just being replaced.
                Err(error) if error.is_passing => last_error = Some(error.error),
                Err(error) => return Err(error.error),
            }
        }
        sleep(BEFORE_NEXT_ATTEMPT);
    }
    Err(last_error.unwrap_or_else(|| {
        let what = format!("{} changes faster than it can be read", root.display());
        StoreError::new(StoreErrorKind::Io, what)
    }))
}

fn finish(
    root: &Path,
    memory: &mut Memory,
    seal: &Seal,
    mut files: BTreeMap<String, File>,
    ground: Ground,
    pending: Option<&Journal>,
) -> Look {
    let index = pending.map_or(seal.index, |journal| journal.index);
    if let Some(journal) = pending {
        journal.overlay(&mut files);
    }
    for path in memory.writers.refresh(root, pending) {
        memory.forget(&path);
    }
    let (now, clock) = (Instant::now(), SystemTime::now());
    let settled = memory.belief.settle(&mut files, ground, now, clock);
    Look {
        index,
        files,
        settled,
    }
}

impl Memory {
    /// A command removed this key: it is meant to be gone.
    pub(super) fn forget(&mut self, path: &str) {
        self.belief.forget(path);
    }
}

/// Why a walk did not come to its end.
struct Stumble {
    error: StoreError,
    is_passing: bool,
}

impl From<StoreError> for Stumble {
    fn from(error: StoreError) -> Self {
        Self {
            error,
            is_passing: false,
        }
    }
}

type Walked = (BTreeMap<String, File>, BTreeMap<String, Identity>);

struct Walk<'a> {
    root: &'a Path,
    memory: &'a mut Memory,
    now: SystemTime,
    files: BTreeMap<String, File>,
    read: BTreeMap<String, Read>,
    folders: BTreeMap<String, Identity>,
    /// The folders above, so that a link to one of them is noticed.
    above: Vec<Identity>,
}

impl<'a> Walk<'a> {
    fn new(root: &'a Path, memory: &'a mut Memory) -> Self {
        Self {
            root,
            memory,
            now: SystemTime::now(),
            files: BTreeMap::new(),
            read: BTreeMap::new(),
            folders: BTreeMap::new(),
            above: Vec::new(),
        }
    }

    fn walk(mut self) -> Result<Walked, Stumble> {
        self.folder(self.root, "")?;
        self.memory.read = self.read;
        Ok((self.files, self.folders))
    }

    fn folder(&mut self, folder: &Path, path: &str) -> Result<(), Stumble> {
        let metadata = fs::metadata(folder).map_err(|source| stumble(folder, source))?;
        let this = (metadata.dev(), metadata.ino());
        if self.above.contains(&this) {
            let what = format!(
                "{} leads back to a folder that it lies in: take the link away",
                self.link_to(folder).display()
            );
            return Err(StoreError::new(StoreErrorKind::Io, what).into());
        }
        if self.above.len() >= MAX_DEPTH {
            return Err(too_large(folder, "is deeper than any key").into());
        }
        self.above.push(this);
        self.folders.insert(path.to_owned(), this);
        let entries = fs::read_dir(folder).map_err(|source| stumble(folder, source))?;
        for entry in entries {
            let entry = entry.map_err(|source| stumble(folder, source))?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let is_marker = path.is_empty() && name == marker::PATH;
            if is_marker || !is_ignored(&name) {
                let path = if path.is_empty() {
                    name.into_owned()
                } else {
                    format!("{path}/{name}")
                };
                self.entry(&entry.path(), path)?;
            }
        }
        self.above.pop();
        Ok(())
    }

    /// The last link on the way to a folder: it is the one to be taken away, not what it leads to.
    fn link_to<'p>(&self, folder: &'p Path) -> &'p Path {
        let is_link =
            |path: &&Path| fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink());
        let below = folder.ancestors().take_while(|path| *path != self.root);
        below.into_iter().find(is_link).unwrap_or(folder)
    }

    fn entry(&mut self, place: &Path, path: String) -> Result<(), Stumble> {
        let metadata = fs::metadata(place).map_err(|source| stumble(place, source))?;
        if metadata.is_dir() {
            return self.folder(place, &path);
        }
        if self.files.len() >= MAX_FILES {
            return Err(too_large(place, "is one file too many").into());
        }
        let (stamp, changed) = (Stamp::of(&metadata), Changed::of(&metadata));
        let is_same = |read: &Read| read.file.stamp == stamp && read.changed == changed;
        let known = self.memory.read.remove(&path);
        let read = match known {
            Some(read) if read.is_telling && is_same(&read) => read,
            _ => {
                let file = read_value(place).map_err(|source| stumble(place, source))?;
                let is_old = |age: Option<Duration>| age.is_some_and(|age| age >= TELLING_AGE);
                Read {
                    is_telling: is_old(file.stamp.age(self.now)) && is_old(changed.age(self.now)),
                    file,
                    changed,
                }
            }
        };
        self.files.insert(path.clone(), read.file.clone());
        self.read.insert(path, read);
        Ok(())
    }
}

fn stumble(path: &Path, source: io::Error) -> Stumble {
    Stumble {
        is_passing: is_absence(&source),
        error: failed("read", path, source),
    }
}

fn too_large(path: &Path, how: &str) -> StoreError {
    let what = format!(
        "{} {how}: is this the folder that was meant?",
        path.display()
    );
    StoreError::new(StoreErrorKind::TooLarge, what)
}

/// The folder itself; an error says what to do when there is none.
pub(super) fn find_root(root: &Path) -> Result<Metadata, StoreError> {
    fs::metadata(root).map_err(|source| {
        if !is_absence(&source) {
            return failed("read", root, source);
        }
        let what = format!(
            "there is no folder {}: `haplane init` makes it, unless it should be there already",
            root.display()
        );
        StoreError::new(StoreErrorKind::Io, what).because(source)
    })
}
