//! `haplane`: the one binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    haplane::run(std::env::args_os().collect())
}
