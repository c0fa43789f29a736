//! Replays the corpora of fuzz targets without a fuzzer, for tests alone. The stable compiler runs the fuzzers' seeds,
//! and a few mutations of them. [`goldens`] has the files that earlier releases wrote.

pub mod goldens;

use std::fs;
use std::path::{Path, PathBuf};

/// A target with fewer files has no real corpus.
const FILES_MIN: usize = 3;
/// Bytes of a generated input.
const MADE_MAX: usize = 600;
/// Bytes that mean something in many encodings, in JSON and in the Redis protocol.
const TELLING: [u8; 24] = *b"\x00\x01\x02\x7f\x80\xff{}[]\":,\\.*$+-_#~\r\n";

/// The directory of a target's corpus.
#[must_use]
pub fn directory(target: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus")).join(target)
}

/// The contents of the files of a corpus, in the order of their names.
///
/// # Panics
///
/// If the corpus cannot be read or has next to no files: a replay of nothing would pass.
#[must_use]
pub fn files(target: &str) -> Vec<Vec<u8>> {
    let directory = directory(target);
    let read =
        |path: &Path| fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let entries =
        fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("a directory entry").path())
        .collect();
    paths.sort();
    assert!(
        paths.len() >= FILES_MIN,
        "{}: {paths:?}",
        directory.display()
    );
    paths.iter().map(|path| read(path)).collect()
}

/// Runs the files of a corpus as they are, then each with `mutations` changes of it. The changes are always the same.
///
/// # Panics
///
/// If the corpus cannot be read, or if `run` panics: that is the finding.
pub fn replay(target: &str, mutations: u32, run: impl Fn(&[u8])) {
    for bytes in files(target) {
        run(&bytes);
        let mut draw = Draw(bytes.len() as u64);
        for _ in 0..mutations {
            run(&mutated(&bytes, &mut draw));
        }
    }
}

/// Runs `count` generated inputs, always the same ones, for targets that read any bytes as a program.
pub fn run_made_up(count: u32, run: impl Fn(&[u8])) {
    let mut draw = Draw(1);
    for _ in 0..count {
        let made: Vec<u8> = (0..draw.below(MADE_MAX)).map(|_| draw.byte()).collect();
        run(&made);
    }
}

/// A file with its lines in another order behind the first, or with up to four bytes changed.
fn mutated(bytes: &[u8], draw: &mut Draw) -> Vec<u8> {
    // Single bytes hardly ever turn a text whose order matters into another that can be read.
    let mut lines: Vec<&[u8]> = bytes.split(|&byte| byte == b'\n').collect();
    if lines.len() > 2 && draw.below(5) == 0 {
        for at in (2..lines.len()).rev() {
            lines.swap(at, 1 + draw.below(at));
        }
        return lines.join(&b'\n');
    }
    let mut bytes = bytes.to_vec();
    for _ in 0..=draw.below(4) {
        if bytes.is_empty() {
            break;
        }
        let at = draw.below(bytes.len());
        match draw.below(7) {
            0 => bytes.truncate(at),
            1 => bytes.extend_from_within(at..),
            2 => bytes.insert(at, draw.byte()),
            // A parser reads bytes from elsewhere in the input further than random ones.
            3 => bytes.insert(at, bytes[draw.below(bytes.len())]),
            4 => bytes[at] = bytes[draw.below(bytes.len())],
            5 => bytes[at] = TELLING[draw.below(TELLING.len())],
            _ => bytes[at] ^= 1 << draw.below(8),
        }
    }
    bytes
}

/// SplitMix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014). The crates above have
/// generators of their own; this one is below them.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not 0.
    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn byte(&mut self) -> u8 {
        self.next() as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Changes that change nothing, or all the same thing, would find nothing.
    #[test]
    fn a_file_is_changed_in_many_ways_and_always_the_same_ones() {
        let text = b"first\nsecond\nthird\nfourth".as_slice();
        let changes = || -> Vec<Vec<u8>> {
            let mut draw = Draw(7);
            (0..1_000).map(|_| mutated(text, &mut draw)).collect()
        };
        let made = changes();
        assert_eq!(made, changes());
        let distinct: HashSet<&Vec<u8>> = made.iter().collect();
        assert!(distinct.len() > 600, "{}", distinct.len());
        assert!(made.iter().filter(|made| **made == text).count() < 60);
        let sorted = |text: &[u8]| {
            let mut lines: Vec<Vec<u8>> = text.split(|&b| b == b'\n').map(<[u8]>::to_vec).collect();
            lines.sort();
            lines
        };
        let shuffled = made.iter().filter(|made| sorted(made) == sorted(text));
        assert!(shuffled.count() > 100);
        assert!(made.iter().any(|made| made.len() < 6));
        assert!(made.iter().any(|made| made.len() > 30));
    }

    #[test]
    fn nothing_stays_nothing() {
        assert_eq!(mutated(b"", &mut Draw(1)), b"");
    }

    #[test]
    #[should_panic(expected = "fuzz/corpus/nowhere")]
    fn a_corpus_that_is_not_there_is_no_pass() {
        replay("nowhere", 1, |_| ());
    }
}
