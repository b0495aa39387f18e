//! The watch loop in simulated time, over a store that says what it is told to.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests: what goes wrong is the failure of the test"
)]

mod scripted;
mod watch;
