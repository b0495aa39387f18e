//! The names in a folder, and how single files are read and written.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Component, Path, PathBuf};

use haplane_core::marker;

use super::stamp::{File, Stamp};
use crate::error::{StoreError, StoreErrorKind};

pub(super) const INDEX: &str = ".index";
pub(super) const LOG: &str = ".log";
pub(super) const JOURNAL: &str = ".txn";
pub(super) const LOCK: &str = ".lock";
pub(super) const TEMPORARY: &str = ".tmp-";
/// What Kubernetes swaps when a mounted ConfigMap changes.
pub(super) const CONFIG_MAP: &str = "..data";

/// No value is longer. What is longer is shown as invalid, not read.
pub(super) const MAX_VALUE_BYTES: u64 = 4096;
/// How much of a longer one is shown.
const SHOWN_BYTES: usize = 80;

/// The longest name that a file can have.
pub(super) const MAX_NAME_BYTES: usize = 255;

/// Whether a name is somebody's own business and no key: those of haplane itself, of Kubernetes and
/// of editors.
pub(super) fn is_ignored(name: &str) -> bool {
    name.starts_with('.') || name.starts_with('#') || name.ends_with('~')
}

/// The file of a path below the state prefix. `None` for a path that would lead elsewhere.
pub(super) fn place(root: &Path, path: &str) -> Option<PathBuf> {
    let is_marker = path == marker::PATH;
    let stays = Path::new(path)
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    let names_a_key = !path.is_empty()
        && path
            .split('/')
            .all(|name| !name.is_empty() && !is_ignored(name));
    (is_marker || (stays && names_a_key)).then(|| root.join(path))
}

/// Reads one file that holds a value. A link is followed; what is no regular file is an error.
pub(super) fn read_value(path: &Path) -> io::Result<File> {
    let (file, stamp) = open(path)?;
    let mut value = Vec::new();
    file.take(MAX_VALUE_BYTES + 1).read_to_end(&mut value)?;
    if value.len() as u64 > MAX_VALUE_BYTES {
        value.truncate(SHOWN_BYTES);
        value.extend_from_slice(b" and more, longer than a value can be");
    }
    Ok(File { stamp, value })
}

/// Reads a text of haplane's own, no longer than `most` bytes.
pub(super) fn read_text(path: &Path, most: u64) -> io::Result<(Stamp, String)> {
    let (file, stamp) = open(path)?;
    let mut text = String::new();
    file.take(most + 1).read_to_string(&mut text)?;
    if text.len() as u64 > most {
        return Err(io::Error::new(
            ErrorKind::FileTooLarge,
            "longer than haplane writes it",
        ));
    }
    Ok((stamp, text))
}

fn open(path: &Path) -> io::Result<(fs::File, Stamp)> {
    // Without waiting, should it be a pipe.
    let nonblock = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(nonblock)
        .open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    Ok((file, Stamp::of(&metadata)))
}

/// Writes a new file so that it survives a crash of the machine, and tells its stamp.
pub(super) fn write_new(path: &Path, text: &str) -> io::Result<Stamp> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    Ok(Stamp::of(&file.metadata()?))
}

/// Makes what was renamed or removed in a folder survive a crash of the machine.
pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
    fs::File::open(path)?.sync_all()
}

/// The stamp of the file that is there now, if one is. A folder is none.
pub(super) fn stamp_of(path: &Path) -> io::Result<Option<Stamp>> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Ok(None),
        Ok(metadata) => Ok(Some(Stamp::of(&metadata))),
        Err(error) if is_absence(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether an error says that nothing is there, or a file where a folder would have to be.
pub(super) fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// What is to be done about a failure at this path.
pub(super) fn failed(doing: &str, path: &Path, source: io::Error) -> StoreError {
    let (kind, advice) = match source.kind() {
        ErrorKind::PermissionDenied => (
            StoreErrorKind::Denied,
            "give haplane's user the right to it",
        ),
        ErrorKind::ReadOnlyFilesystem => (StoreErrorKind::Io, "the file system is read-only"),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            (StoreErrorKind::Io, "the disk is full: make room")
        }
        ErrorKind::FileTooLarge => (StoreErrorKind::TooLarge, "it is beyond haplane's bounds"),
        ErrorKind::NotFound => (StoreErrorKind::Io, "it is not there"),
        ErrorKind::InvalidData => (StoreErrorKind::Undecodable, "it is not text"),
        _ => (StoreErrorKind::Io, "look at the file and its file system"),
    };
    let what = format!("cannot {doing} {}: {advice}", path.display());
    StoreError::new(kind, what).because(source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_and_the_marker_have_a_place() {
        let root = Path::new("/state");
        for path in ["canary", "web/a", "web/a,3A1", ".haplane", "a/b/c/d"] {
            assert_eq!(place(root, path), Some(root.join(path)), "{path}");
        }
        for path in [
            "",
            "/etc/passwd",
            "../x",
            "a/../b",
            "a//b",
            "a/",
            ".index",
            "a/.b",
            "a~",
            "#a#",
            ".",
        ] {
            assert_eq!(place(root, path), None, "{path}");
        }
    }

    #[test]
    fn a_long_file_is_no_value() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("long");
        fs::write(&path, format!("drain{}", " ".repeat(5000))).unwrap();
        let file = read_value(&path).unwrap();
        assert!(haplane_core::Value::from_bytes(&file.value).is_err());
        assert!(read_value(dir.path()).is_err());
        assert_eq!(
            failed("read", &path, read_text(&path, 10).unwrap_err()).kind,
            StoreErrorKind::TooLarge
        );
    }
}
