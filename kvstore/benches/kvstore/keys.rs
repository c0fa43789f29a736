//! Keys, values and random order, the same in every run.

pub(crate) type Key = [u8; 16];

pub(crate) const VALUE: [u8; 64] = [7; 64];

/// Spreads a counter over 64 bits (splitmix64).
pub(crate) fn mix(counter: u64) -> u64 {
    let mut x = counter.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

pub(crate) fn key(number: u64) -> Key {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&mix(number).to_le_bytes());
    key[8..].copy_from_slice(&mix(!number).to_le_bytes());
    key
}

/// Draws without end.
pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 += 1;
        mix(self.0)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// Keys of uniformly drawn items.
    pub(crate) fn keys(&mut self, count: usize, items: u64) -> Vec<Key> {
        (0..count).map(|_| key(self.below(items))).collect()
    }
}

/// Reads all of a value, as the answer to a GET must.
#[inline(always)]
pub(crate) fn consume(value: &[u8]) -> u64 {
    let words = value.chunks_exact(8);
    words.fold(0, |sum, word| {
        sum ^ u64::from_le_bytes(word.try_into().expect("eight bytes"))
    })
}
