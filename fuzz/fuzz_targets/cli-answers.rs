//! Answers of the servers of `trine bench` and `trine cache`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| trine_fuzz_bodies::cli::answers(bytes));
