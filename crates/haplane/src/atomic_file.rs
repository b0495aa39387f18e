//! Replacing files in one step: written aside, then renamed, keeping the mode and the owner they had.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The mode of a file that was not there before.
const NEW_MODE: u32 = 0o644;

/// Puts `bytes` into the place of `path`, whatever stood there. Links are followed: what they lead to is replaced.
pub fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let path = match fs::canonicalize(path) {
        Ok(path) => path,
        Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_owned(),
        Err(error) => return Err(error),
    };
    let aside = Aside::beside(&path)?;
    aside.fill(&path, bytes)?;
    aside.put_in_place_of(&path)
}

/// How a file went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// It was not there.
    NeverThere,
    /// It is no more.
    Removed,
    /// It cannot be removed, and holds nothing now.
    Emptied,
}

/// Takes a file away that must not be read any more: removes it, or empties it where that is not allowed. Both work on a
/// full disk. Links are followed.
pub fn take_away(path: &Path) -> io::Result<Gone> {
    let path = match fs::canonicalize(path) {
        Ok(path) => path,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Gone::NeverThere),
        Err(error) => return Err(error),
    };
    if fs::remove_file(&path).is_ok() {
        return Ok(Gone::Removed);
    }
    let file = fs::OpenOptions::new().write(true).open(&path)?;
    file.set_len(0)?;
    file.sync_all()?;
    Ok(Gone::Emptied)
}

/// A file that is written beside another one; it is removed unless it takes the other's place.
struct Aside {
    path: PathBuf,
    placed: bool,
}

impl Aside {
    fn beside(path: &Path) -> io::Result<Self> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // Not ending in .cfg: HAProxy must not take it for one of its files.
        let aside = path.with_file_name(format!(".{name}.haplane-{:016x}", fastrand::u64(..)));
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
        let mut file = fs::OpenOptions::new().write(true).open(&self.path)?;
        file.write_all(bytes)?;
        let mode = match fs::metadata(like) {
            Ok(like) => {
                let own = file.metadata()?;
                if (own.uid(), own.gid()) != (like.uid(), like.gid()) {
                    std::os::unix::fs::fchown(&file, Some(like.uid()), Some(like.gid()))?;
                }
                like.mode() & 0o7777
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => NEW_MODE,
            Err(error) => return Err(error),
        };
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.sync_all()
    }

    fn put_in_place_of(mut self, path: &Path) -> io::Result<()> {
        fs::rename(&self.path, path)?;
        self.placed = true;
        match path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
        {
            Some(folder) => fs::File::open(folder)?.sync_all(),
            None => fs::File::open(".")?.sync_all(),
        }
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        if !self.placed {
            // Nothing more can be done about it, and the failure has been reported already.
            drop(fs::remove_file(&self.path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_run_left_is_in_nobodys_way() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("seed");
        // In a container every run has the same process id.
        let left = format!(".seed.haplane-{}", std::process::id());
        fs::write(folder.path().join(left), "1\n").unwrap();
        put(&file, b"1\n").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"1\n");
    }

    #[test]
    fn what_is_taken_away_is_not_there_or_empty() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("seed");
        assert_eq!(take_away(&file).unwrap(), Gone::NeverThere);
        fs::write(&file, "1\n").unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(take_away(&link).unwrap(), Gone::Removed);
        assert!(!file.exists());
        // A device can be neither.
        assert!(take_away(Path::new("/proc/version")).is_err());
    }
}
