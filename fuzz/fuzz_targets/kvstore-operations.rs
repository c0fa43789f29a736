//! Operations on two stores of which one is rebuilt now and then.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| trine_fuzz_bodies::kvstore::operations(bytes));
