//! Replays the fuzz corpora, and mutations of them, through the same functions as the fuzzers.

#[path = "../fuzz/bodies.rs"]
mod bodies;

use std::path::Path;

use trine_chaos::history::History;
use trine_transport::prng::Prng;

/// Of each file; the fuzzer makes the rest.
const MUTATIONS: u32 = 1_000;

fn files(target: &str) -> Vec<Vec<u8>> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(target);
    let mut files: Vec<_> = std::fs::read_dir(corpus)
        .expect("the corpus is checked in")
        .map(|entry| entry.expect("a directory entry").path())
        .collect();
    files.sort();
    assert!(files.len() >= 5, "{files:?}");
    files
        .into_iter()
        .map(|file| std::fs::read(file).expect("the file is readable"))
        .collect()
}

/// Single bytes, and whole lines put elsewhere: few of the former are a history still.
fn mutated(bytes: &[u8], prng: &mut Prng) -> Vec<u8> {
    if bytes.is_empty() {
        return Vec::new();
    }
    if prng.below(4) == 0 {
        let mut lines: Vec<&[u8]> = bytes.split(|&byte| byte == b'\n').collect();
        prng.shuffle(&mut lines[1..]);
        return lines.join(&b'\n');
    }
    let mut bytes = bytes.to_vec();
    for _ in 0..=prng.below(2) {
        let at = prng.below(bytes.len() as u64) as usize;
        match prng.below(4) {
            0 => bytes.truncate(at + 1),
            1 => bytes.insert(at, b"0123456789\"\\,:{}xn"[prng.below(18) as usize]),
            2 => bytes[at] = b'0' + prng.below(10) as u8,
            _ => bytes[at] ^= 1 << prng.below(8),
        }
    }
    bytes
}

fn replay(target: &str, run: fn(&[u8])) {
    for bytes in files(target) {
        run(&bytes);
        let mut prng = Prng::new(bytes.len() as u64);
        for _ in 0..MUTATIONS {
            run(&mutated(&bytes, &mut prng));
        }
    }
}

#[test]
fn faults() {
    replay("faults", bodies::faults);
}

#[test]
fn histories() {
    replay("histories", bodies::histories);
}

/// Mutations of what is refused at once would find nothing.
#[test]
fn most_of_the_corpus_is_histories() {
    let files = files("histories");
    let is_history = |bytes: &&Vec<u8>| {
        std::str::from_utf8(bytes).is_ok_and(|text| History::from_text(text).is_ok())
    };
    let read = files.iter().filter(is_history).count();
    assert!(read >= 5, "{read} of {}", files.len());
}
