//! Unpredictable bytes from a seed: HMAC-SHA256 of a counter.

use aws_lc_rs::hmac;
use zeroize::Zeroize;

/// A cryptographic random number generator. The same seed gives the same bytes, so that a simulated world repeats
/// itself. A program takes its seed from the operating system, once.
#[derive(Clone)]
pub struct Csprng {
    key: hmac::Key,
    drawn: u64,
}

impl Csprng {
    /// A generator with 32 bytes that nobody else knows and that are never used twice.
    #[must_use]
    pub fn new(mut seed: [u8; 32]) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &seed);
        seed.zeroize();
        Self { key, drawn: 0 }
    }

    /// Fills `out` with the next bytes.
    pub fn fill(&mut self, out: &mut [u8]) {
        for part in out.chunks_mut(32) {
            let block = hmac::sign(&self.key, &self.drawn.to_le_bytes());
            self.drawn += 1;
            part.copy_from_slice(&block.as_ref()[..part.len()]);
        }
        // Whoever reads this memory later does not learn what was drawn before.
        let next = hmac::sign(&self.key, b"the next key of this generator");
        self.key = hmac::Key::new(hmac::HMAC_SHA256, next.as_ref());
    }
}

impl std::fmt::Debug for Csprng {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Csprng(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_bytes_and_no_block_comes_twice() {
        let draw = |seed| {
            let mut out = [0; 100];
            Csprng::new([seed; 32]).fill(&mut out);
            out
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        let bytes = draw(1);
        assert_ne!(bytes[..32], bytes[32..64]);
    }
}
