//! Replays the corpora of the fuzz targets, mutations of them, and a few thousand inputs made from a seed, with the
//! compiler that everybody has.

// The name by which `verbs/route.rs`, which the frames include, knows it.
use trine_transport::backend;

#[path = "../fuzz/bodies/frames.rs"]
mod frames;
#[path = "../fuzz/bodies/operations.rs"]
mod operations;
#[path = "../fuzz/bodies/packets.rs"]
mod packets;
#[path = "../fuzz/bodies/pair.rs"]
mod pair;
#[path = "../fuzz/bodies/rules.rs"]
mod rules;
#[path = "../fuzz/bodies/values.rs"]
mod values;

/// Inputs that are made up, for the targets that read any bytes as a program.
const MADE_UP: u32 = if cfg!(debug_assertions) { 300 } else { 3_000 };
/// Of each file, for targets of which a run takes microseconds.
const MUTATIONS: u32 = 2_000;

fn replay(target: &str, mutations: u32, run: fn(&[u8])) {
    trine_corpus::replay(env!("CARGO_MANIFEST_DIR"), target, mutations, run);
    trine_corpus::run_made_up(MADE_UP, run);
}

#[test]
fn packets_from_the_corpus() {
    replay("packets", 0, packets::run);
}

#[test]
fn operations_from_the_corpus() {
    replay("operations", 0, operations::run);
}

#[test]
fn frames_from_the_corpus() {
    replay("frames", MUTATIONS, frames::run);
}

#[test]
fn rules_from_the_corpus() {
    replay("rules", MUTATIONS, rules::run);
}

#[test]
fn values_from_the_corpus() {
    replay("values", MUTATIONS, values::run);
}
