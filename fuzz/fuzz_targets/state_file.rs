#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| haplane_fuzz::state_file(bytes));
