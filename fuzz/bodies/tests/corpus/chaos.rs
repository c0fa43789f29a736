//! The corpora of histories and of faults' names.

use trine_chaos::history::History;
use trine_fuzz_bodies::chaos as bodies;

/// Of each file; the fuzzer makes the rest.
const MUTATIONS: u32 = 1_000;

#[test]
fn faults() {
    trine_corpus::replay("chaos-faults", MUTATIONS, bodies::faults);
}

#[test]
fn histories() {
    trine_corpus::replay("chaos-histories", MUTATIONS, bodies::histories);
}

/// Mutations of an input that is refused immediately would find nothing.
#[test]
fn most_of_the_corpus_is_histories() {
    let files = trine_corpus::files("chaos-histories");
    let is_history = |bytes: &&Vec<u8>| {
        std::str::from_utf8(bytes).is_ok_and(|text| History::from_text(text).is_ok())
    };
    let read = files.iter().filter(is_history).count();
    assert!(read >= 5, "{read} of {}", files.len());
}
