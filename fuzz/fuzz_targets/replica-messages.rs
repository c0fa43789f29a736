//! `cargo +nightly fuzz run messages` in `replica`; see `bodies.rs`.
#![no_main]

#[path = "../bodies.rs"]
#[allow(dead_code)] // each target runs one of the bodies
mod bodies;
#[path = "../../tests/harness/mod.rs"]
mod harness;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bodies::messages(bytes));
