//! A backup file, or the content of its frames.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| trine_fuzz_bodies::replica::backup(bytes));
