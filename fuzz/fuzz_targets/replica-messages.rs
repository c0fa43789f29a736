//! Bytes for each decoder of messages between replicas, and with clients.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| trine_fuzz_bodies::replica::messages(bytes));
