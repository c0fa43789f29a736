//! Replays the corpora of the fuzz targets, mutations of them, and a few thousand inputs made from a seed, with the
//! compiler that everybody has.

use std::path::Path;

// The name by which `verbs/route.rs`, which the frames include, knows it.
use trine_transport::backend;
use trine_transport::prng::Prng;

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

const MADE: usize = if cfg!(debug_assertions) { 300 } else { 3_000 };
/// Of each file, for targets of which a run takes microseconds.
const MUTATIONS: usize = 2_000;

/// Each file as it is and changed `mutations` times, then bytes that are made up.
fn replay(target: &str, mutations: usize, run: fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(target);
    let mut files: Vec<_> = std::fs::read_dir(directory)
        .expect("the corpus is there")
        .map(|entry| entry.expect("a readable directory").path())
        .collect();
    files.sort();
    assert!(files.len() >= 5, "the corpus of {target}: {files:?}");
    let mut prng = Prng::new(1);
    for file in files {
        let data = std::fs::read(file).expect("a readable file");
        run(&data);
        for _ in 0..mutations {
            run(&mutated(&data, &mut prng));
        }
    }
    for _ in 0..MADE {
        let mut data = vec![0; prng.below(600) as usize];
        prng.fill(&mut data);
        run(&data);
    }
}

/// Up to four bytes changed, put in, or the rest cut off.
fn mutated(data: &[u8], prng: &mut Prng) -> Vec<u8> {
    let mut data = data.to_vec();
    for _ in 0..=prng.below(4) {
        if data.is_empty() {
            break;
        }
        let at = prng.below(data.len() as u64) as usize;
        match prng.below(4) {
            0 => data.truncate(at + 1),
            1 => data.insert(at, prng.next_u64() as u8),
            _ => data[at] ^= 1 << prng.below(8),
        }
    }
    data
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
