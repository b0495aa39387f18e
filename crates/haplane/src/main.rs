//! `haplane`: the one binary.

use std::process::ExitCode;

/// The heap profile is jemalloc's.
#[cfg(feature = "heap-profile")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    haplane::run(std::env::args_os().collect())
}
