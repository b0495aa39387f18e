//! What is shipped around the program: alerts, units, manifests, packages, documents. Each is
//! tried with the real tool that will read it, and held against the code.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod agent;
mod alerts;
mod checkout;
#[allow(dead_code, reason = "shared with the tests of the commands")]
#[path = "../it/command.rs"]
mod command;
mod demo;
mod documents;
mod fleet_page;
mod heartbeat;
mod image;
mod kubernetes;
mod machine;
mod node_page;
mod packages;
mod page_policy;
mod policies;
#[cfg(all(feature = "cpu-profile", feature = "heap-profile"))]
mod profiles;
mod shells;
mod units;
