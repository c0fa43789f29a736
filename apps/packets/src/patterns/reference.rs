//! The reference of the filter, and the patterns and packets that it is tried with.

use crate::frame::{OWN_MAC, build};
use crate::reference::{Reference, Traffic, cut};
use crate::verdict::{Reason, Verdict};
use aho_corasick::AhoCorasick;
use trine_transport::prng::Prng;

/// Letters of patterns. The numbers that a generator appends have too few of them in a row to make a pattern.
const LETTERS: &[u8] = b"abcdefghijklmnop";

/// Random patterns of 8 to 20 letters. Many begin with the same letters, as names of files and commands do.
#[must_use]
pub fn random_patterns(count: usize, prng: &mut Prng) -> Vec<Vec<u8>> {
    let mut patterns: Vec<Vec<u8>> = Vec::with_capacity(count);
    for _ in 0..count {
        let length = 8 + prng.below(13) as usize;
        let mut pattern: Vec<u8> = (0..length).map(|_| letter(prng)).collect();
        if !patterns.is_empty() && prng.below(4) == 0 {
            let model = &patterns[prng.below(patterns.len() as u64) as usize];
            let shared = 1 + prng.below(7) as usize;
            pattern[..shared].copy_from_slice(&model[..shared]);
        }
        patterns.push(pattern);
    }
    patterns
}

fn letter(prng: &mut Prng) -> u8 {
    LETTERS[prng.below(LETTERS.len() as u64) as usize]
}

/// The automaton of another crate.
pub struct PatternsReference {
    automaton: AhoCorasick,
}

impl PatternsReference {
    /// A filter for these patterns.
    ///
    /// # Panics
    ///
    /// If they are too many for the crate.
    #[must_use]
    pub fn new<P: AsRef<[u8]>>(patterns: &[P]) -> Self {
        Self {
            automaton: AhoCorasick::new(patterns).expect("patterns that our automaton holds, too"),
        }
    }
}

impl Reference for PatternsReference {
    fn judge(&self, frame: &mut [u8]) -> Verdict {
        if frame.len() < 14 {
            return Verdict::Drop(Reason::Short);
        }
        match self.automaton.is_match(&frame[14..]) {
            true => Verdict::Drop(Reason::Matched),
            false => Verdict::Forward(0),
        }
    }
}

/// Packets whose content is made of pieces of patterns.
pub struct PatternsTraffic {
    patterns: Vec<Vec<u8>>,
}

impl PatternsTraffic {
    /// Packets for a filter for these patterns.
    #[must_use]
    pub fn new(patterns: Vec<Vec<u8>>) -> Self {
        Self { patterns }
    }

    fn pattern(&self, prng: &mut Prng) -> &[u8] {
        &self.patterns[prng.below(self.patterns.len() as u64) as usize]
    }
}

/// Bytes of the content of a plain packet, as in a frame of the middle size.
const CONTENT: usize = 242;

impl Traffic for PatternsTraffic {
    fn plain(&self, frame: &mut Vec<u8>, prng: &mut Prng) {
        build::ethernet(frame, OWN_MAC, build::PEER, 0x88b5);
        while frame.len() < 14 + CONTENT {
            let pattern = self.pattern(prng);
            // Nearly the whole pattern, but not its end.
            let piece = pattern.len() / 2 + prng.below(pattern.len() as u64 / 2) as usize;
            frame.extend_from_slice(&pattern[..piece]);
            frame.push(b'.');
        }
        build::random(frame, 8, prng);
    }

    fn crafted(&self, frame: &mut Vec<u8>, prng: &mut Prng) {
        self.plain(frame, prng);
        match prng.below(4) {
            0 => {
                let at = prng.below(frame.len() as u64 + 1) as usize;
                let pattern = self.pattern(prng).to_vec();
                frame.splice(at..at, pattern);
            }
            1 => {
                frame.truncate(14);
                build::random(frame, CONTENT, prng);
            }
            // Letters alone, in which short patterns come up by chance.
            2 => {
                frame.truncate(14);
                frame.extend((0..CONTENT).map(|_| letter(prng)));
            }
            _ => cut(frame, prng),
        }
    }
}
