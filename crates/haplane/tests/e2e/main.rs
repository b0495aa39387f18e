//! The commands against real peers.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

#[path = "../it/command.rs"]
mod command;
mod consul_acl;
mod consul_writes;
