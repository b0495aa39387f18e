//! Tests of decisions that need more than one module.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that fails says where"
)]

mod audit;
mod enroll;
mod rule_pages;
mod seed;
mod slots;
