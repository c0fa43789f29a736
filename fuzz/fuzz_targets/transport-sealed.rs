//! Changes to the packets of a sealed session.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| trine_fuzz_bodies::transport::sealed::run(bytes));
