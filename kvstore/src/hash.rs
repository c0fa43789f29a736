//! Keyed hashing: the bucket of a key, and the sum by which replicas compare themselves.
//!
//! Folded multiplication: the 128-bit product of two words, each masked with a secret, folded to 64
//! bits. The secrets come from the replicated hash seed. So a client that chooses keys does not
//! choose buckets, and every replica computes the same numbers on every architecture.

use crate::position::Position;

/// Odd constants with balanced bits (fractional parts of square roots of primes).
const SPREAD: [u64; 4] = [
    0x6a09_e667_f3bc_c909,
    0xbb67_ae85_84ca_a73b,
    0x3c6e_f372_fe94_f82b,
    0xa54f_f53a_5f1d_36f1,
];

/// The hash of a key. Low bits choose the bucket, the top 16 are the tag; the reversed bits are
/// the order of a snapshot.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Debug)]
pub(crate) struct KeyHash(pub(crate) u64);

impl KeyHash {
    /// The tag of the key in its bucket; never 0, which marks an empty slot.
    #[inline]
    pub(crate) fn tag(self) -> u16 {
        let tag = (self.0 >> 48) as u16;
        if tag == 0 { 1 } else { tag }
    }

    /// The place of the key in the order of a snapshot. Reversing the bits makes every bucket of
    /// every table size a contiguous range of this order.
    #[inline]
    pub(crate) fn order(self) -> u64 {
        self.0.reverse_bits()
    }

    /// The first place behind the range of the order that has the same first `bits` bits as this place; none behind the
    /// last range.
    pub(crate) fn behind_range(order: u64, bits: u32) -> Option<u64> {
        let size = 1_u64 << (64 - bits);
        (order & !(size - 1)).checked_add(size)
    }

    /// The hash with this place in the order.
    pub(crate) fn from_order(order: u64) -> Self {
        Self(order.reverse_bits())
    }
}

/// The hash functions of one store.
#[derive(Clone, Debug)]
pub(crate) struct Hasher {
    seed: [u64; 2],
    key: [u64; 3],
    sum: [[u64; 3]; 2],
}

impl Hasher {
    pub(crate) fn new(seed: [u64; 2]) -> Self {
        let secret = |n: u64| secret(seed, n);
        Self {
            seed,
            key: [secret(1), secret(2), secret(3)],
            sum: [
                [secret(4), secret(5), secret(6)],
                [secret(7), secret(8), secret(9)],
            ],
        }
    }

    /// The replicated seed that this was made from.
    pub(crate) fn seed(&self) -> [u64; 2] {
        self.seed
    }

    #[inline]
    pub(crate) fn key(&self, key: &[u8]) -> KeyHash {
        KeyHash(hash(&self.key, key))
    }

    /// The contribution of one item to the state hash.
    #[inline]
    pub(crate) fn item(
        &self,
        key: KeyHash,
        version: Position,
        expiry_ns: u64,
        value: &[u8],
    ) -> u128 {
        let [first, second] = &self.sum;
        let stamp = fold(version.as_u64() ^ first[0], expiry_ns ^ second[0]);
        let body = hash(first, value);
        let low = fold(stamp ^ key.0 ^ first[1], body ^ second[1]);
        let high = fold(stamp ^ first[2], body ^ key.0.rotate_left(32) ^ second[2]);
        u128::from(high) << 64 | u128::from(low)
    }

    /// The contribution of anything else that is part of the state.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> u128 {
        u128::from(hash(&self.sum[0], bytes)) << 64 | u128::from(hash(&self.sum[1], bytes))
    }
}

/// A checksum of a command's bytes, by which a client session tells one command from another. A
/// client can make two commands whose checksums are alike, if it wants to.
#[must_use]
pub fn command_checksum(bytes: &[u8]) -> u32 {
    let [a, b, c, _] = SPREAD;
    hash(&[a, b, c], bytes) as u32
}

/// Secret number `n` of a seed.
pub(crate) fn secret(seed: [u64; 2], n: u64) -> u64 {
    let first = fold(seed[0] ^ SPREAD[0] ^ n, seed[1] ^ SPREAD[1]);
    let second = fold(seed[1] ^ SPREAD[2] ^ n, seed[0] ^ SPREAD[3]);
    first ^ second.rotate_left(32) ^ n.wrapping_mul(SPREAD[0])
}

#[inline(always)]
pub(crate) fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    (product as u64) ^ (product >> 64) as u64
}

#[inline(always)]
fn word(bytes: &[u8], at: usize) -> u64 {
    let chunk: [u8; 8] = bytes[at..at + 8]
        .try_into()
        .expect("the range has eight bytes");
    u64::from_le_bytes(chunk)
}

#[inline]
fn hash(secrets: &[u64; 3], bytes: &[u8]) -> u64 {
    let length = bytes.len();
    let (low, high, state) = match length {
        0 => (0, 0, secrets[0]),
        1..=3 => (short_word(bytes), 0, secrets[0]),
        4..=7 => {
            let half = |at: usize| {
                let chunk: [u8; 4] = bytes[at..at + 4]
                    .try_into()
                    .expect("the range has four bytes");
                u64::from(u32::from_le_bytes(chunk))
            };
            (half(0), half(length - 4), secrets[0])
        }
        8..=16 => (word(bytes, 0), word(bytes, length - 8), secrets[0]),
        _ => (
            word(bytes, length - 16),
            word(bytes, length - 8),
            absorb(secrets, bytes),
        ),
    };
    let mixed = fold(low ^ secrets[1], high ^ state);
    fold(mixed ^ secrets[2], length as u64 ^ SPREAD[1])
}

/// Three bytes or fewer as one word; the length goes in separately.
fn short_word(bytes: &[u8]) -> u64 {
    let length = bytes.len();
    u64::from(bytes[0]) << 16 | u64::from(bytes[length / 2]) << 8 | u64::from(bytes[length - 1])
}

/// All blocks of 16 bytes but the last, which the caller mixes in (it may overlap).
fn absorb(secrets: &[u64; 3], bytes: &[u8]) -> u64 {
    let mut state = secrets[0];
    let mut other = secrets[2];
    let whole = (bytes.len() - 1) / 16 * 16;
    let mut blocks = bytes[..whole].chunks_exact(32);
    for block in &mut blocks {
        state = fold(word(block, 0) ^ secrets[1], word(block, 8) ^ state);
        other = fold(word(block, 16) ^ secrets[1], word(block, 24) ^ other);
    }
    let rest = blocks.remainder();
    if rest.len() == 16 {
        state = fold(word(rest, 0) ^ secrets[1], word(rest, 8) ^ state);
    }
    state ^ other.rotate_left(17)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn these_numbers_are_part_of_the_snapshot_format() {
        let hasher = Hasher::new([1, 2]);
        let long: Vec<u8> = (0..100).collect();
        let hashes =
            [b"".as_slice(), b"a", b"abcd", b"abcdefgh", &long].map(|key| hasher.key(key).0);
        assert_eq!(hashes, GOLDEN, "{hashes:#x?}");
    }

    const GOLDEN: [u64; 5] = [
        0xddb5_acf9_429f_c753,
        0xf532_8466_b350_9714,
        0xa718_c46c_7bcb_7bf4,
        0x95bb_9dc3_cf7f_9801,
        0xb0c0_e340_4bf3_5868,
    ];

    #[test]
    fn every_byte_and_the_length_matter() {
        let hasher = Hasher::new([7, 11]);
        for length in [
            1_usize, 2, 3, 4, 7, 8, 9, 16, 17, 31, 32, 33, 48, 49, 64, 65, 200,
        ] {
            let mut bytes = vec![0_u8; length];
            let mut seen = BTreeSet::from([hasher.key(&bytes).0]);
            for at in 0..length {
                bytes[at] = 1;
                assert!(seen.insert(hasher.key(&bytes).0), "byte {at} of {length}");
                bytes[at] = 0;
            }
            assert!(
                seen.insert(hasher.key(&vec![0; length + 1]).0),
                "length {length}"
            );
        }
    }

    #[test]
    fn low_bits_and_tags_of_counting_keys_spread() {
        let hasher = Hasher::new([3, 5]);
        let mut buckets = [0_u32; 256];
        let mut tags = BTreeSet::new();
        for n in 0..65_536_u64 {
            let hash = hasher.key(&n.to_le_bytes());
            buckets[(hash.0 & 255) as usize] += 1;
            tags.insert(hash.tag());
        }
        // 256 expected in each with a standard deviation of 16: six of them.
        assert!(
            buckets.iter().all(|&count| (160..352).contains(&count)),
            "{buckets:?}"
        );
        // Balls into 65,536 bins leave 1 - 1/e = 63 % occupied.
        assert!((40_600..42_300).contains(&tags.len()), "{}", tags.len());
    }
}
