//! Held to the real HAProxy: words, rows and what a reload makes of a server-state file.
//!
//! The generated cases are the same in every run. `HAPLANE_CASES=N` runs N of each kind instead of a few.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests may fail the test"
)]

mod compare;
mod forecast_truth;
mod generate;
mod lexer_parity;
mod row_parity;

/// How many generated cases to run where `usual` are run otherwise.
fn cases(usual: u64) -> u64 {
    std::env::var("HAPLANE_CASES")
        .ok()
        .and_then(|number| number.parse().ok())
        .unwrap_or(usual)
}
