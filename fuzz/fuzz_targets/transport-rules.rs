//! Text; see `bodies/rules.rs`.
#![no_main]

#[path = "../bodies/rules.rs"]
mod rules;

libfuzzer_sys::fuzz_target!(|data: &[u8]| rules::run(data));
