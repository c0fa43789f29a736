//! The corpora of the transport, and a few thousand inputs made from a seed.

use trine_fuzz_bodies::transport::{frames, operations, packets, rules, sealed, values};

/// Generated inputs, for the targets that read any bytes as a program.
const MADE_UP: u32 = if cfg!(debug_assertions) { 300 } else { 3_000 };
/// Of each file, for targets of which a run takes microseconds.
const MUTATIONS: u32 = 2_000;

fn replay(target: &str, mutations: u32, run: fn(&[u8])) {
    trine_corpus::replay(target, mutations, run);
    trine_corpus::run_made_up(MADE_UP, run);
}

#[test]
fn packets_from_the_corpus() {
    replay("transport-packets", 0, packets::run);
}

#[test]
fn sealed_packets_from_the_corpus() {
    replay("transport-sealed", 0, sealed::run);
}

#[test]
fn operations_from_the_corpus() {
    replay("transport-operations", 0, operations::run);
}

#[test]
fn frames_from_the_corpus() {
    replay("transport-frames", MUTATIONS, frames::run);
}

#[test]
fn rules_from_the_corpus() {
    replay("transport-rules", MUTATIONS, rules::run);
}

#[test]
fn values_from_the_corpus() {
    replay("transport-values", MUTATIONS, values::run);
}
