//! Messages, entries and parts of a snapshot to a group at work.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| drop(trine_fuzz_bodies::replica::peers(bytes)));
