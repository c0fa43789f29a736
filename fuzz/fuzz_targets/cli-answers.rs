//! What the servers of `trine bench` and `trine cache` answer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| trine_fuzz_bodies::cli::answers(bytes));
