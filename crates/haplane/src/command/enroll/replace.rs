//! Replacing a file in one step, with its mode and its owner.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::exit::{Exit, Failure};

/// Puts `after` into the place of a file that must still hold `before`. Links are followed: what they lead to is
/// replaced.
pub(super) fn file(path: &Path, before: &[u8], after: &[u8]) -> Result<(), Failure> {
    let shown = path.display();
    let failed = |error: io::Error| {
        Failure::new(
            Exit::Unexpected,
            format!("cannot write {shown}: {error}; it is as it was"),
        )
    };
    let path = fs::canonicalize(path).map_err(failed)?;
    if fs::read(&path).map_err(failed)? != before {
        return Err(Failure::refused(format!(
            "{shown} was changed by somebody else meanwhile; run it again"
        )));
    }
    let aside = Aside::beside(&path).map_err(failed)?;
    aside.fill(&path, after).map_err(failed)?;
    aside.put_in_place_of(&path).map_err(failed)
}

/// A file that is written beside another one, and goes away when it does not take its place.
struct Aside {
    path: PathBuf,
    placed: bool,
}

impl Aside {
    fn beside(path: &Path) -> io::Result<Self> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // Not ending in .cfg: HAProxy must not take it for one of its files.
        let aside = path.with_file_name(format!(".{name}.haplane-{}", std::process::id()));
        fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&aside)?;
        Ok(Self {
            path: aside,
            placed: false,
        })
    }

    /// Content, owner and mode, on the disk before the name changes.
    fn fill(&self, like: &Path, bytes: &[u8]) -> io::Result<()> {
        let metadata = fs::metadata(like)?;
        let mut file = fs::OpenOptions::new().write(true).open(&self.path)?;
        file.write_all(bytes)?;
        let own = file.metadata()?;
        if (own.uid(), own.gid()) != (metadata.uid(), metadata.gid()) {
            std::os::unix::fs::fchown(&file, Some(metadata.uid()), Some(metadata.gid()))?;
        }
        file.set_permissions(fs::Permissions::from_mode(metadata.mode() & 0o7777))?;
        file.sync_all()
    }

    fn put_in_place_of(mut self, path: &Path) -> io::Result<()> {
        fs::rename(&self.path, path)?;
        self.placed = true;
        match path.parent() {
            Some(folder) => fs::File::open(folder)?.sync_all(),
            None => Ok(()),
        }
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        if !self.placed {
            // Nothing more can be done about it, and the failure is told already.
            drop(fs::remove_file(&self.path));
        }
    }
}

/// A folder of our own that goes away with everything in it.
pub(super) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    pub(super) fn new() -> io::Result<Self> {
        let unique = fastrand::u64(..);
        let path =
            std::env::temp_dir().join(format!("haplane-{}-{unique:016x}", std::process::id()));
        fs::DirBuilder::new().create(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700))?;
        Ok(Self { path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // It lies where temporary files are cleaned up anyway.
        drop(fs::remove_dir_all(&self.path));
    }
}
