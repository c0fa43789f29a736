//! Runs a fuzz corpus without a fuzzer: the files as they are, then each with bytes changed, cut or put in.

use std::path::Path;

use trine_transport::prng::Prng;

/// How often each file is changed.
const MUTATIONS: u32 = 1_000;

pub(crate) fn replay(target: &str, run: impl Fn(&[u8])) {
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
        for _ in 0..MUTATIONS {
            run(&mutated(&bytes, &mut prng));
        }
    }
}

fn mutated(bytes: &[u8], prng: &mut Prng) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=prng.below(4) {
        if bytes.is_empty() {
            break;
        }
        let at = prng.below(bytes.len() as u64) as usize;
        match prng.below(4) {
            0 => bytes.truncate(at + 1),
            1 => bytes.insert(at, prng.next_u64() as u8),
            // What stands elsewhere means more to a parser of text than chance does.
            2 => bytes.insert(at, bytes[prng.below(bytes.len() as u64) as usize]),
            _ => bytes[at] ^= 1 << prng.below(8),
        }
    }
    bytes
}
