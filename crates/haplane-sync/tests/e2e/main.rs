//! The synchroniser beside real HAProxy processes, real Consul and origins that count.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that fails says where"
)]

mod basics;
mod dynamic;
mod enrolled;
mod faults;
mod late_answers;
mod pools;
mod rough_socket;
mod sources;
mod stage;
mod the_day;
