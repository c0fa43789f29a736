//! Operations on the tree of keys and on std's set.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| trine_fuzz_bodies::index::key_tree(bytes));
