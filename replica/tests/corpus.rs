//! Replays the fuzz corpus, and mutations of it, through the same function as the fuzzer.

use std::path::Path;

use trine_replica::disk::fuzz_open;
use trine_transport::prng::Prng;

/// Mutations of every file; the fuzzer makes the rest.
const MUTATIONS: u32 = 300;

#[test]
fn directories() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/directory");
    let mut files: Vec<_> = std::fs::read_dir(corpus)
        .expect("the corpus is checked in")
        .map(|entry| entry.expect("a directory entry").path())
        .collect();
    files.sort();
    assert!(files.len() >= 5, "{files:?}");
    for file in files {
        let bytes = std::fs::read(&file).expect("the file is readable");
        fuzz_open(&bytes);
        let mut prng = Prng::new(bytes.len() as u64);
        for _ in 0..MUTATIONS {
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
            fuzz_open(&mutated);
        }
    }
}
