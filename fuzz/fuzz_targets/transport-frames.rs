//! Ethernet frames, ARP, announcements, addresses and route headers of the verbs backend.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| trine_fuzz_bodies::transport::frames::run(bytes));
