//! Replays the corpora of the fuzz targets, and a few thousand inputs made from a seed, with the
//! compiler that everybody has.

use std::path::Path;

use trine_transport::prng::Prng;

#[path = "../fuzz/bodies/operations.rs"]
mod operations;
#[path = "../fuzz/bodies/packets.rs"]
mod packets;
#[path = "../fuzz/bodies/pair.rs"]
mod pair;

const MADE: usize = if cfg!(debug_assertions) { 300 } else { 3_000 };

fn replay(target: &str, run: fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(target);
    let mut inputs = 0;
    for entry in std::fs::read_dir(directory).expect("the corpus is there") {
        let path = entry.expect("a readable directory").path();
        run(&std::fs::read(path).expect("a readable file"));
        inputs += 1;
    }
    assert!(inputs >= 5, "the corpus of {target} has {inputs} inputs");
    let mut prng = Prng::new(1);
    for _ in 0..MADE {
        let mut data = vec![0; prng.below(600) as usize];
        prng.fill(&mut data);
        run(&data);
    }
}

#[test]
fn packets_from_the_corpus() {
    replay("packets", packets::run);
}

#[test]
fn operations_from_the_corpus() {
    replay("operations", operations::run);
}
