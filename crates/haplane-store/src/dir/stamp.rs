//! Which file this is: told from another one, and from itself after it was changed.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

/// What changes when a file is written or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stamp {
    inode: u64,
    /// Nanoseconds since 1970.
    mtime: i64,
    size: u64,
}

impl Stamp {
    pub(super) fn of(metadata: &Metadata) -> Self {
        let seconds = metadata.mtime().saturating_mul(1_000_000_000);
        Self {
            inode: metadata.ino(),
            mtime: seconds.saturating_add(metadata.mtime_nsec()),
            size: metadata.size(),
        }
    }

    /// How long before `now` it was written; `None` if that is in the future.
    pub(super) fn age(self, now: SystemTime) -> Option<Duration> {
        let written = Duration::from_nanos(u64::try_from(self.mtime).ok()?);
        now.duration_since(SystemTime::UNIX_EPOCH + written).ok()
    }
}

/// When content or name of a file last changed. Nobody can set this time, unlike that of a stamp,
/// which copying tools set back. Not in the stamp, because a renaming changes it too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Changed {
    seconds: i64,
    nanoseconds: i64,
}

impl Changed {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self {
            seconds: metadata.ctime(),
            nanoseconds: metadata.ctime_nsec(),
        }
    }

    /// How long before `now` that was; `None` if it is in the future.
    pub(super) fn age(self, now: SystemTime) -> Option<Duration> {
        let seconds = u64::try_from(self.seconds).ok()?;
        let nanoseconds = u32::try_from(self.nanoseconds).ok()?;
        let changed = SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds);
        now.duration_since(changed).ok()
    }
}

/// One file as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct File {
    pub(super) stamp: Stamp,
    pub(super) value: Vec<u8>,
}

impl File {
    /// Whether nothing is in it: emptied, or what a crash of the machine leaves of a file.
    pub(super) fn is_blank(&self) -> bool {
        let is_nothing = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0;
        self.value.iter().all(is_nothing)
    }

    /// What a check-and-set compares: other content, another file, or the same written again make
    /// another version.
    pub(super) fn version(&self) -> u64 {
        let Stamp { inode, mtime, .. } = self.stamp;
        let mut digest = Digest::default();
        digest.add(&inode.to_le_bytes());
        digest.add(&mtime.to_le_bytes());
        digest.add(&self.value);
        digest.0
    }
}

/// FNV-1a: the same in every build, which the standard library's hashers do not promise.
#[derive(Clone, Copy)]
pub(super) struct Digest(pub(super) u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
