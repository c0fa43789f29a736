//! A program of two endpoints' owners and the network's faults.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| trine_fuzz_bodies::transport::operations::run(bytes));
