//! Replacing a configuration that nobody else changed meanwhile, and a folder to try the result in.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::atomic_file;
use crate::exit::Exit;
use crate::failure::Failure;

/// Puts `after` into the place of a file that must still hold `before`.
pub(super) fn file(path: &Path, before: &[u8], after: &[u8]) -> Result<(), Failure> {
    let shown = path.display();
    let failed = |error: io::Error| {
        Failure::new(
            Exit::Unexpected,
            format!("cannot write {shown}: {error}; it is as it was"),
        )
    };
    if fs::read(path).map_err(failed)? != before {
        return Err(Failure::refused(format!(
            "{shown} was changed by somebody else meanwhile; run it again"
        )));
    }
    atomic_file::put(path, after).map_err(failed)
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
