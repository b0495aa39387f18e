//! Which losses in a folder are believed, and when.
//!
//! A key that is there says something, whoever wrote it. A key that is *not* there any more, or whose
//! file is empty now, says "ready" only if a person or haplane meant it: an editor between two steps, a
//! folder that is being copied back, a volume that is not mounted look the same. So gains and changes
//! count at once; a loss counts when it is clear, and until then the key keeps its last value.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use haplane_core::marker;

use super::stamp::File;

/// How long a file that is empty, or that vanished by hand, is not believed: shells and editors write
/// in two steps.
pub(super) const SETTLING: Duration = Duration::from_millis(100);

/// How long a loss that may be part of something larger has to stay unchanged: a file that was emptied,
/// many keys at once, or a folder in the place of another one.
pub(super) const SETTLE: Duration = Duration::from_secs(10);

/// More keys than a person takes away between two looks.
const MANY: usize = 10;

/// Device and inode.
pub(super) type Identity = (u64, u64);

/// What a walk saw beside the files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ground {
    /// Every folder by its path, the root's being empty.
    pub(super) folders: BTreeMap<String, Identity>,
    /// What Kubernetes' link leads to.
    pub(super) config_map: Option<PathBuf>,
}

/// What was believed last, and what is not believed yet.
#[derive(Default)]
pub(super) struct Belief {
    files: BTreeMap<String, File>,
    ground: Ground,
    has_marker: bool,
    /// Since when a file is seen empty.
    empty: BTreeMap<String, Instant>,
    /// Since when a path is missing.
    missing: BTreeMap<String, Instant>,
    /// The paths that were missing at the last look, and since when exactly these are.
    lost: Option<(BTreeSet<String>, Instant)>,
}

/// What is to be made of a look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settled {
    /// Nothing is in the middle of a step: otherwise look again before any of it is believed.
    pub(super) is_settled: bool,
    /// Keys that keep their last value for now, and why.
    pub(super) held: Option<String>,
}

/// Why a loss is not clear.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Doubt<'a> {
    /// The marker is gone, too.
    Marker,
    /// A folder without keys that was not there before.
    EmptyFolder(&'a str),
    /// A folder in the place of another one.
    AnotherFolder(&'a str),
    /// So many.
    Many,
}

impl Belief {
    /// A command of haplane removed this key: it is meant to be gone.
    pub(super) fn forget(&mut self, path: &str) {
        self.files.remove(path);
        self.missing.remove(path);
    }

    /// Brings back what is not believed to be lost.
    pub(super) fn settle(
        &mut self,
        files: &mut BTreeMap<String, File>,
        ground: Ground,
        now: Instant,
        clock: SystemTime,
    ) -> Settled {
        let marker_is_gone = self.has_marker && !files.contains_key(marker::PATH);
        let mut held = Vec::new();
        let mut is_settled = self.empty_files(files, &mut held, now, clock);
        let lost: BTreeSet<String> = self
            .files
            .keys()
            .filter(|path| !files.contains_key(*path))
            .cloned()
            .collect();
        self.missing.retain(|path, _| lost.contains(path));
        for path in &lost {
            self.missing.entry(path.clone()).or_insert(now);
        }
        if self.lost.as_ref().is_none_or(|(paths, _)| *paths != lost) {
            self.lost = Some((lost.clone(), now));
        }
        let as_it_is = self.lost.as_ref().map_or(now, |(_, since)| *since);
        // A complete new folder behind Kubernetes' link, put there in one step.
        let is_swapped = ground.config_map != self.ground.config_map;
        let doubt = self.doubt(files, &ground, &lost, marker_is_gone);
        let mut is_held = |path: &String| match doubt {
            _ if is_swapped && !marker_is_gone => false,
            Some(Doubt::Marker | Doubt::EmptyFolder(_)) => true,
            Some(Doubt::AnotherFolder(_) | Doubt::Many) => now - as_it_is < SETTLE,
            None => {
                let since = self.missing.get(path).copied().unwrap_or(now);
                is_settled &= now - since >= SETTLING;
                false
            }
        };
        // Without its marker the whole list is refused, which is reported anyway.
        let keys = lost.iter().filter(|path| *path != marker::PATH);
        let kept: Vec<&String> = keys.filter(|path| is_held(path)).collect();
        if let (Some(first), Some(doubt)) = (kept.first(), doubt) {
            held.push(doubt.told(kept.len(), first));
        }
        for path in &kept {
            if let Some(file) = self.files.get(*path) {
                files.insert((*path).clone(), file.clone());
            }
        }
        if is_settled {
            let doubted: BTreeSet<&str> = kept.iter().flat_map(|path| at_and_above(path)).collect();
            self.believe(files, ground, &doubted);
        }
        Settled {
            is_settled,
            held: (!held.is_empty()).then(|| held.join("; ")),
        }
    }

    /// A file that held a value keeps it while it is empty; one that never did is waited for.
    fn empty_files(
        &mut self,
        files: &mut BTreeMap<String, File>,
        held: &mut Vec<String>,
        now: Instant,
        clock: SystemTime,
    ) -> bool {
        self.empty
            .retain(|path, _| files.get(path).is_some_and(File::is_blank));
        let mut is_settled = true;
        for (path, file) in files.iter_mut().filter(|(_, file)| file.is_blank()) {
            let since = *self.empty.entry(path.clone()).or_insert(now);
            match self.files.get(path).filter(|last| !last.is_blank()) {
                Some(last) if now - since < SETTLE => {
                    if now - since >= SETTLING {
                        held.push(format!("the file of {path} is empty"));
                    }
                    *file = last.clone();
                }
                Some(_) => {}
                None => {
                    let is_old = file.stamp.age(clock).is_some_and(|age| age >= SETTLING);
                    is_settled &= is_old || now - since >= SETTLING;
                }
            }
        }
        is_settled
    }

    /// The worst reason not to believe the loss.
    fn doubt<'a>(
        &self,
        files: &BTreeMap<String, File>,
        ground: &'a Ground,
        lost: &'a BTreeSet<String>,
        marker_is_gone: bool,
    ) -> Option<Doubt<'a>> {
        if lost.iter().all(|path| path == marker::PATH) {
            return None;
        }
        if marker_is_gone {
            return Some(Doubt::Marker);
        }
        let mut doubt = (lost.len() > MANY).then_some(Doubt::Many);
        for folder in lost.iter().flat_map(|path| at_and_above(path)) {
            let was = self.ground.folders.get(folder);
            let Some((folder, is)) = ground.folders.get_key_value(folder) else {
                continue;
            };
            if was == Some(is) {
                continue;
            }
            if has_keys(files, folder) {
                // A file that has become a folder with keys was changed on purpose; it is no copy of
                // the old one.
                if was.is_some() {
                    doubt = Some(Doubt::AnotherFolder(folder));
                }
            } else {
                return Some(Doubt::EmptyFolder(folder));
            }
        }
        doubt
    }

    /// Folders that are doubted stay known as they were before, so that the new ones are still
    /// recognised as others.
    fn believe(
        &mut self,
        files: &BTreeMap<String, File>,
        ground: Ground,
        doubted: &BTreeSet<&str>,
    ) {
        self.has_marker |= files.contains_key(marker::PATH);
        self.files.clone_from(files);
        let mut folders = ground.folders;
        folders.retain(|path, _| !doubted.contains(path.as_str()));
        let before = std::mem::take(&mut self.ground.folders);
        let kept = before
            .into_iter()
            .filter(|(path, _)| doubted.contains(path.as_str()));
        folders.extend(kept);
        self.ground = Ground { folders, ..ground };
    }
}

impl Doubt<'_> {
    fn told(self, keys: usize, first: &str) -> String {
        let which = match keys {
            1 => format!("the key {first} is gone"),
            _ => format!("{keys} keys are gone, {first} is one"),
        };
        match self {
            Self::Marker => format!("{which}, and so is the marker"),
            Self::EmptyFolder(folder) => format!(
                "{which}, and an empty folder stands at {folder:?}: a volume that is not mounted? Remove \
                 the folder if they are to be gone"
            ),
            Self::AnotherFolder(folder) => {
                format!(
                    "{which}, from a folder that was put in the place of another one: {folder:?}"
                )
            }
            Self::Many => which,
        }
    }
}

/// The path itself and the folders that it lies in, the root at last.
fn at_and_above(path: &str) -> impl Iterator<Item = &str> {
    let cuts = path.rmatch_indices('/').map(|(cut, _)| cut);
    let above = cuts.map(move |cut| path.get(..cut).unwrap_or_default());
    std::iter::once(path).chain(above).chain([""])
}

fn has_keys(files: &BTreeMap<String, File>, folder: &str) -> bool {
    let below = if folder.is_empty() {
        String::new()
    } else {
        format!("{folder}/")
    };
    files
        .range(below.clone()..)
        .map(|(path, _)| path)
        .take_while(|path| path.starts_with(&below))
        .any(|path| path != marker::PATH)
}

#[cfg(test)]
mod tests;
