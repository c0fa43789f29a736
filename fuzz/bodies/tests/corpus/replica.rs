//! The corpora of messages, of groups that get them, and of data directories.

use trine_fuzz_bodies::replica as bodies;
use trine_replica_harness::World;

#[test]
fn directories() {
    trine_corpus::replay("replica-directory", 300, bodies::directory);
}

#[test]
fn backups() {
    trine_corpus::replay("replica-backup", 300, bodies::backup);
}

#[test]
fn messages() {
    trine_corpus::replay("replica-messages", 300, bodies::messages);
}

/// Each run is a group of three that elects its leader first.
#[test]
fn peers() {
    trine_corpus::replay("replica-peers", 10, |bytes| drop(bodies::peers(bytes)));
}

fn file(name: &str) -> Vec<u8> {
    let corpus = trine_corpus::directory("replica-peers");
    std::fs::read(corpus.join(name)).expect("the file is checked in")
}

/// Forged messages are read like real ones: mutations of them get as far.
#[test]
fn the_corpus_of_peers_reaches_the_parsers_of_entries_and_of_snapshots() {
    let world = bodies::peers(&file("seed-08"));
    let installed = |node_id| world.status(node_id).counters.snapshots_installed;
    assert_eq!([installed(1), installed(2), installed(3)], [0, 1, 0]);
    let untouched = bodies::peers(&[]);
    let world = bodies::peers(&file("seed-01"));
    let applied = |world: &World, node_id| world.status(node_id).applied;
    assert_eq!(applied(&untouched, 2), applied(&untouched, 3));
    assert_eq!(applied(&world, 2), applied(&untouched, 2) + 1);
}
