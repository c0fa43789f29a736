//! Sizes, times and lists of peers.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| trine_fuzz_bodies::cli::arguments(bytes));
