//! Replays the fuzz corpora, and mutations of them, through the same functions as the fuzzers.

#[path = "../fuzz/bodies.rs"]
mod bodies;
mod harness;

use std::path::Path;

use trine_replica::disk::fuzz_open;
use trine_transport::prng::Prng;

/// Runs the files as they are, then each with bytes changed, cut or put in; the fuzzers make the rest.
fn replay(target: &str, mutations: u32, run: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(target);
    let mut files: Vec<_> = std::fs::read_dir(corpus)
        .expect("the corpus is checked in")
        .map(|entry| entry.expect("a directory entry").path())
        .collect();
    files.sort();
    assert!(files.len() >= 5, "{files:?}");
    for file in files {
        let bytes = std::fs::read(&file).expect("the file is readable");
        run(&bytes);
        let mut prng = Prng::new(bytes.len() as u64);
        for _ in 0..mutations {
            let mut mutated = bytes.clone();
            for _ in 0..=prng.below(4) {
                if mutated.is_empty() {
                    break;
                }
                let at = prng.below(mutated.len() as u64) as usize;
                match prng.below(3) {
                    0 => mutated.truncate(at + 1),
                    1 => mutated.insert(at, prng.next_u64() as u8),
                    _ => mutated[at] ^= 1 << prng.below(8),
                }
            }
            run(&mutated);
        }
    }
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
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/peers");
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
