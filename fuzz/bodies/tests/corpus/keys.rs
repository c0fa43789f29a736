//! The corpora of keys.

use trine_fuzz_bodies::keys as bodies;

/// Mutations of every file; the fuzzers make the rest.
const MUTATIONS: u32 = 300;

#[test]
fn cluster_key_files() {
    trine_corpus::replay("keys-cluster", MUTATIONS, bodies::cluster);
}

#[test]
fn user_keys() {
    trine_corpus::replay("keys-user", MUTATIONS, bodies::user);
}

#[test]
fn key_ids() {
    trine_corpus::replay("keys-id", MUTATIONS, bodies::id);
}
