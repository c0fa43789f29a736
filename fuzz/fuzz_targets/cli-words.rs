//! `cargo +nightly fuzz run words` in `cli`: lines of a script; see `bodies.rs`.
#![no_main]

#[path = "../bodies.rs"]
#[allow(dead_code)] // each target runs one of the bodies
mod bodies;

// What the command's own files call them.
use bodies::{config, failure};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bodies::words(bytes));
