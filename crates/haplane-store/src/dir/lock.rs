//! One writer at a time.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::files::{LOCK, failed};
use crate::error::{StoreError, StoreErrorKind};

/// How long to wait for the lock, which a writer holds for some milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Held until dropped, or until the process ends in whatever way.
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Waits for its turn. Blocking.
    pub(super) fn take(root: &Path) -> Result<Self, StoreError> {
        let path = root.join(LOCK);
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|source| failed("write", &path, source))?;
        Self::wait_for(file, &path, FlockOperation::NonBlockingLockExclusive)
    }

    /// Keeps writers away while reading, if there can be any. Blocking.
    pub(super) fn share(root: &Path) -> Option<Self> {
        let path = root.join(LOCK);
        let file = File::open(&path).ok()?;
        Self::wait_for(file, &path, FlockOperation::NonBlockingLockShared).ok()
    }

    fn wait_for(file: File, path: &Path, how: FlockOperation) -> Result<Self, StoreError> {
        let begun = Instant::now();
        loop {
            match flock(&file, how) {
                Ok(()) => return Ok(Self { _file: file }),
                Err(Errno::WOULDBLOCK | Errno::INTR) if begun.elapsed() < PATIENCE => {
                    sleep(LOOK_AGAIN);
                }
                Err(Errno::WOULDBLOCK) => {
                    let what = format!(
                        "another haplane has held {} for {PATIENCE:?}; nothing was written",
                        path.display()
                    );
                    return Err(StoreError::new(StoreErrorKind::Timeout, what));
                }
                Err(source) => return Err(failed("lock", path, source.into())),
            }
        }
    }
}
