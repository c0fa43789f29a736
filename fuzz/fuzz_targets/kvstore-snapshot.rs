//! The chunks of a snapshot.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| trine_fuzz_bodies::kvstore::snapshot(bytes));
