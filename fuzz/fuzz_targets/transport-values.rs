//! Values of typed messages; see `bodies/values.rs`.
#![no_main]

#[path = "../bodies/values.rs"]
mod values;

libfuzzer_sys::fuzz_target!(|data: &[u8]| values::run(data));
