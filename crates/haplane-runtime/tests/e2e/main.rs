//! The Runtime API of real HAProxy processes, and sockets that misbehave.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that fails says where"
)]

mod bad_sockets;
mod changes;
