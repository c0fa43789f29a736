//! Text: faults of links, probabilities, Ethernet addresses, ports of DPDK.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| trine_fuzz_bodies::transport::rules::run(bytes));
