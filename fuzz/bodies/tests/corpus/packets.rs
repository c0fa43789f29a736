//! The corpus of the packet applications.

use trine_fuzz_bodies::packets as bodies;

/// Mutations of every file; the fuzzers make the rest.
const MUTATIONS: u32 = 2_000;

#[test]
fn frames() {
    trine_corpus::replay("packets-frame", MUTATIONS, bodies::frame);
    trine_corpus::run_made_up(MUTATIONS, bodies::frame);
}
