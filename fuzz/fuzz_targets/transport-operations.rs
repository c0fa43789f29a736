//! Bytes as a program and as the network's faults; see `bodies/operations.rs`.
#![no_main]

#[path = "../bodies/operations.rs"]
mod operations;
#[path = "../bodies/pair.rs"]
mod pair;

libfuzzer_sys::fuzz_target!(|data: &[u8]| operations::run(data));
