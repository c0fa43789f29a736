//! Files of a data directory, one of them made of the input.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| trine_fuzz_bodies::replica::directory(bytes));
