//! A frame for one of the packet applications.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| trine_fuzz_bodies::packets::frame(bytes));
