//! What is shipped around the program: alerts, units, manifests, packages, documents. Each is
//! tried with the real tool that will read it, and held against the code.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod alerts;
mod checkout;
mod node_page;
