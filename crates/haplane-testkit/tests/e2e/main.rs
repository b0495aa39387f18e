//! The kit against the real peers, with a few facts that haplane is built on.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod consul;
mod haproxy;
