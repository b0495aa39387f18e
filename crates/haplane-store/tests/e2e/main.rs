//! Both stores against the real thing: a real Consul and real folders.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "tests: what goes wrong is the failure of the test"
)]

mod access;
mod consul;
mod contract;
mod dir;
mod dir_faults;
mod dir_writers;
mod follower;
mod guard;
mod lies;
mod lies_about_writes;
mod named;
