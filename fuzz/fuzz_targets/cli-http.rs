//! Requests of a scraper to `/metrics`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| trine_fuzz_bodies::cli::http(bytes));
