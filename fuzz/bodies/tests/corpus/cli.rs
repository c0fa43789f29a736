//! Replays the fuzz corpora, and mutations of them, through the same functions as the fuzzers. The unit tests of the files
//! that `bodies.rs` includes run here once more.

#[path = "../fuzz/bodies.rs"]
#[allow(dead_code)] // of the included files only the parsers are called
mod bodies;

// What the command's own files call them.
use bodies::{config, failure};

/// Of each file; the fuzzer makes the rest.
const MUTATIONS: u32 = 1_000;

fn replay(target: &str, run: fn(&[u8])) {
    trine_corpus::replay(env!("CARGO_MANIFEST_DIR"), target, MUTATIONS, run);
}

#[test]
fn answers() {
    replay("answers", bodies::answers);
}

#[test]
fn arguments() {
    replay("arguments", bodies::arguments);
}

#[test]
fn http() {
    replay("http", bodies::http);
}

#[test]
fn words() {
    replay("words", bodies::words);
}
