//! The command line by itself, and on a directory.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod command;
mod directory;
mod terminal;
mod words;
