//! A request to an index, and what a client makes of any answer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| trine_fuzz_bodies::index::requests(bytes));
