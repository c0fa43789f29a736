//! The Internet checksum (RFC 1071), in the pieces that templates need.
//!
//! A one's complement sum may be taken over words of any width and in any byte order. The result must be folded to 16
//! bits and read in the same order at the end. The sums here are over native-endian words: `sum` never swaps a byte,
//! and `finish` yields the two bytes as they go into the packet.

/// A partial sum, not yet folded. Holds the sum of 2^32 words before it could overflow.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Sum(u64);

impl Sum {
    pub(super) const ZERO: Self = Self(0);

    /// Adds `bytes`; all but the last piece of a packet must have an even length.
    pub(super) fn add(self, bytes: &[u8]) -> Self {
        let mut sum = self.0;
        let mut words = bytes.chunks_exact(4);
        for word in &mut words {
            sum += u64::from(u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
        }
        let mut rest = [0; 4];
        let tail = words.remainder();
        rest[..tail.len()].copy_from_slice(tail);
        Self(sum + u64::from(u32::from_ne_bytes(rest)))
    }

    /// Adds one 16-bit field given in host order.
    pub(super) fn add_u16(self, value: u16) -> Self {
        Self(self.0 + u64::from(u16::from_ne_bytes(value.to_be_bytes())))
    }

    fn fold(self) -> u16 {
        let sum = (self.0 & 0xffff_ffff) + (self.0 >> 32);
        let sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        u16::try_from(sum).expect("folded twice")
    }

    /// The checksum field, as bytes of the packet.
    pub(super) fn finish(self) -> [u8; 2] {
        (!self.fold()).to_ne_bytes()
    }

    /// The sum itself, as bytes of the packet: what a port that computes the rest expects in the field.
    pub(super) fn partial(self) -> [u8; 2] {
        self.fold().to_ne_bytes()
    }

    /// Whether the sum over data that contains its own checksum is right.
    pub(super) fn is_valid(self) -> bool {
        self.fold() == 0xffff
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_transport::prng::Prng;

    /// RFC 1071 section 4.1, word by word.
    fn reference(bytes: &[u8]) -> u16 {
        let mut sum = 0_u32;
        for pair in bytes.chunks(2) {
            let word = u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]);
            sum += u32::from(word);
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !u16::try_from(sum).unwrap()
    }

    #[test]
    fn the_example_of_rfc_1071() {
        let sum = Sum::ZERO.add(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(sum.partial(), [0xdd, 0xf2]);
        assert_eq!(sum.finish(), [0x22, 0x0d]);
    }

    #[test]
    fn agrees_with_the_reference_at_every_length() {
        let mut prng = Prng::new(1);
        let mut bytes = [0; 1600];
        for length in 0..bytes.len() {
            prng.fill(&mut bytes[..length]);
            assert_eq!(
                u16::from_be_bytes(Sum::ZERO.add(&bytes[..length]).finish()),
                reference(&bytes[..length])
            );
        }
        bytes.fill(0xff);
        assert_eq!(
            u16::from_be_bytes(Sum::ZERO.add(&bytes).finish()),
            reference(&bytes)
        );
    }

    #[test]
    fn pieces_add_up() {
        let bytes: Vec<u8> = (0..60).collect();
        let whole = Sum::ZERO.add(&bytes);
        assert_eq!(
            Sum::ZERO.add(&bytes[..22]).add(&bytes[22..]).finish(),
            whole.finish()
        );
        let split = Sum::ZERO
            .add(&bytes[..20])
            .add_u16(u16::from_be_bytes([20, 21]))
            .add(&bytes[22..]);
        assert_eq!(split.finish(), whole.finish());
    }

    #[test]
    fn data_with_its_own_checksum_is_valid() {
        let mut bytes = [7_u8; 20];
        bytes[10..12].fill(0);
        let checksum = Sum::ZERO.add(&bytes).finish();
        bytes[10..12].copy_from_slice(&checksum);
        assert!(Sum::ZERO.add(&bytes).is_valid());
        bytes[3] ^= 0x10;
        assert!(!Sum::ZERO.add(&bytes).is_valid());
    }
}
