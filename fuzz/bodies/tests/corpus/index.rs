//! The corpora of the ordered trees and of the index's messages.

use trine_fuzz_bodies::index as bodies;

/// Of a message; the fuzzers make the rest.
const MUTATIONS: u32 = 2_000;

/// Of a file of operations, many of which check the whole tree.
const LIST_MUTATIONS: u32 = 4;
/// Inputs that were found nowhere.
const MADE_UP: u32 = 40;

#[test]
fn key_trees() {
    trine_corpus::replay("index-key-tree", LIST_MUTATIONS, bodies::key_tree);
    trine_corpus::run_made_up(MADE_UP, bodies::key_tree);
}

#[test]
fn index_requests() {
    trine_corpus::replay("index-requests", MUTATIONS, bodies::requests);
}
