//! HAProxy's texts, read whole: samples from real processes, damage, and properties.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests may fail the test"
)]

mod cfg_reading;
mod server_state_answers;
mod stat_answers;
