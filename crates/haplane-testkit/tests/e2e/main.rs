//! The kit against the real peers, with a few facts that haplane is built on.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests"
)]

mod agent_check;
mod consul;
mod fake_consul;
mod haproxy;
mod traffic;
