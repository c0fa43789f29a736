//! The text of a cluster key file.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| trine_fuzz_bodies::keys::cluster(bytes));
