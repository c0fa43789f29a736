//! Answers of memcached to `trine cache bench`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| trine_fuzz_bodies::cli::memcached(bytes));
