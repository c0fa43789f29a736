//! A Redis client's bytes for a connection with a store behind it.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| trine_fuzz_bodies::resp::connection(bytes));
