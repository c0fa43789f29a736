//! Replays the fuzz corpora, and mutations of them, through the same functions as the fuzzers.

#[path = "../fuzz/bodies.rs"]
mod bodies;
mod harness;

use trine_replica::disk::fuzz_open;

fn replay(target: &str, mutations: u32, run: fn(&[u8])) {
    trine_corpus::replay(env!("CARGO_MANIFEST_DIR"), target, mutations, run);
}

#[test]
fn directories() {
    replay("directory", 300, fuzz_open);
}

#[test]
fn messages() {
    replay("messages", 300, bodies::messages);
}

/// Each run is a group of three that elects its leader first.
#[test]
fn peers() {
    replay("peers", 10, |bytes| drop(bodies::peers(bytes)));
}

fn file(name: &str) -> Vec<u8> {
    let corpus = trine_corpus::directory(env!("CARGO_MANIFEST_DIR"), "peers");
    std::fs::read(corpus.join(name)).expect("the file is checked in")
}

/// What is forged is taken for real: mutations of it get as far.
#[test]
fn the_corpus_of_peers_reaches_the_parsers_of_entries_and_of_snapshots() {
    let world = bodies::peers(&file("seed-08"));
    let installed = |place| world.status(place).counters.snapshots_installed;
    assert_eq!([installed(1), installed(2), installed(3)], [0, 1, 0]);
    let untouched = bodies::peers(&[]);
    let world = bodies::peers(&file("seed-01"));
    let applied = |world: &harness::World, place| world.status(place).applied;
    assert_eq!(applied(&untouched, 2), applied(&untouched, 3));
    assert_eq!(applied(&world, 2), applied(&untouched, 2) + 1);
}
