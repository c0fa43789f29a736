//! The corpus of messages and records of a sequencer.

use trine_fuzz_bodies::sequencer as bodies;

/// Of each file; the fuzzer makes the rest.
const MUTATIONS: u32 = 2_000;

#[test]
fn sequencer_messages() {
    trine_corpus::replay("sequencer-messages", MUTATIONS, bodies::messages);
}
