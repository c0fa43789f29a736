//! Datagrams for two endpoints.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| trine_fuzz_bodies::transport::packets::run(bytes));
