//! Lines of a script.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| trine_fuzz_bodies::cli::words(bytes));
