//! Messages, records and the epoch file of a sequencer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| trine_fuzz_bodies::sequencer::messages(bytes));
