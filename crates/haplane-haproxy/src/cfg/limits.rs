//! Bounds for hostile input: beyond them a file is reported, not read.

/// All files together.
pub(super) const BYTES: usize = 64 << 20;
/// Lines of all files together.
pub(super) const LINES: usize = 1_000_000;
/// Words of all lines together.
pub(super) const WORDS: usize = 4_000_000;
