//! A fast hash without a key, for data that no adversary chooses: values of a run's own clients, and histories.
//!
//! Unlike the standard library's hash it is the same on every run. Long values cost an eighth of a multiplication a
//! byte.

use std::hash::{BuildHasherDefault, Hasher};

/// A hash map for the checkers' own keys.
pub(crate) type FastMap<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<FastHasher>>;

/// A hash set of the same kind.
pub(crate) type FastSet<K> = std::collections::HashSet<K, BuildHasherDefault<FastHasher>>;

/// Multiplies and folds eight bytes at a time; of long texts four times eight, which do not wait for one another.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct FastHasher {
    state: u64,
}

const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// A text of at least this many bytes is long.
const LONG: usize = 128;

fn fold(state: u64, word: u64) -> u64 {
    let product = u128::from(state.rotate_left(23) ^ word) * u128::from(FACTOR);
    (product as u64) ^ ((product >> 64) as u64) ^ word.rotate_left(32)
}

impl FastHasher {
    /// A multiple of 32 bytes.
    fn write_long(&mut self, bytes: &[u8]) {
        let mut lanes = [1, 2, 3, 4].map(|lane| self.state ^ lane);
        for block in bytes.chunks_exact(32) {
            for (lane, word) in lanes.iter_mut().zip(block.chunks_exact(8)) {
                *lane = fold(
                    *lane,
                    u64::from_le_bytes(word.try_into().expect("eight bytes")),
                );
            }
        }
        if !bytes.is_empty() {
            lanes.into_iter().for_each(|lane| self.write_u64(lane));
        }
    }
}

impl Hasher for FastHasher {
    fn finish(&self) -> u64 {
        let mixed = (self.state ^ (self.state >> 32)).wrapping_mul(FACTOR);
        mixed ^ (mixed >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        let (long, bytes) = match bytes.len() {
            0..LONG => bytes.split_at(0),
            length => bytes.split_at(length - length % 32),
        };
        self.write_long(long);
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            self.write_u64(u64::from_le_bytes(word.try_into().expect("eight bytes")));
        }
        let rest = words.remainder();
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.write_u64(u64::from_le_bytes(last));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.state = fold(self.state, word);
    }

    fn write_u8(&mut self, byte: u8) {
        self.write_u64(u64::from(byte));
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_usize(&mut self, size: usize) {
        self.write_u64(size as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::hash::Hash;

    fn hash(value: &impl Hash) -> u64 {
        let mut hasher = FastHasher::default();
        value.hash(&mut hasher);
        hasher.finish()
    }

    #[test]
    fn small_differences_anywhere_change_the_hash() {
        let mut seen = HashSet::new();
        for length in (0..40_usize).chain([127, 128, 129, 160, 171]) {
            let bytes = vec![0_u8; length];
            assert!(seen.insert(hash(&bytes)), "{length} zeros");
            for place in 0..length {
                for bit in 0..8 {
                    let mut bytes = bytes.clone();
                    bytes[place] ^= 1 << bit;
                    assert!(
                        seen.insert(hash(&bytes)),
                        "bit {bit} of byte {place} of {length}"
                    );
                }
            }
        }
    }
}
