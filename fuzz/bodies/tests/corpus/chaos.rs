//! Replays the fuzz corpora, and mutations of them, through the same functions as the fuzzers.

#[path = "../fuzz/bodies.rs"]
mod bodies;

use trine_chaos::history::History;

/// Of each file; the fuzzer makes the rest.
const MUTATIONS: u32 = 1_000;

fn replay(target: &str, run: fn(&[u8])) {
    trine_corpus::replay(env!("CARGO_MANIFEST_DIR"), target, MUTATIONS, run);
}

#[test]
fn faults() {
    replay("faults", bodies::faults);
}

#[test]
fn histories() {
    replay("histories", bodies::histories);
}

/// Mutations of what is refused at once would find nothing.
#[test]
fn most_of_the_corpus_is_histories() {
    let files = trine_corpus::files(env!("CARGO_MANIFEST_DIR"), "histories");
    let is_history = |bytes: &&Vec<u8>| {
        std::str::from_utf8(bytes).is_ok_and(|text| History::from_text(text).is_ok())
    };
    let read = files.iter().filter(is_history).count();
    assert!(read >= 5, "{read} of {}", files.len());
}
