//! The common case on the wire: a REQUEST or a RESPONSE that is its whole message.
//!
//! Read as three words, without a field more than the common case looks at. What is not of this
//! shape goes through [`split_first`](super::split_first), which alone says what is wrong with it.

use super::checksum::Seed;
use super::header::{
    DEADLINE_UNIT_NS, EXTENSION_BYTES, Flags, HEADER_BYTES, PacketType, RequestNumber, VERSION,
    Words, words_of,
};
use super::held::Held;

/// A packet that is all of its message.
#[derive(Copy, Clone, Debug)]
pub(crate) struct SinglePacket<'a> {
    words: Words,
    sum: u32,
    /// What follows the header.
    body: &'a [u8],
    /// The message: the body but for an extension.
    pub(crate) payload: &'a [u8],
}

/// The session and the slot that the first packet of a datagram names, unverified, and what lies
/// behind that packet.
#[inline]
pub(crate) fn peek(datagram: &[u8]) -> Option<(u16, u8, &[u8])> {
    let ([low, high], _) = words_of(datagram.first_chunk::<HEADER_BYTES>()?);
    let length = usize::from((low >> 32) as u16).max(HEADER_BYTES);
    let slot = RequestNumber(high >> 32).slot();
    Some(((low >> 16) as u16, slot, datagram.get(length..)?))
}

const REQUEST: u8 = VERSION << 4 | PacketType::Request as u8;
const RESPONSE: u8 = VERSION << 4 | PacketType::Response as u8;

impl<'a> SinglePacket<'a> {
    /// Cuts the first packet off a datagram, if it is of this shape.
    #[inline]
    pub(crate) fn cut(datagram: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let header = datagram.first_chunk::<HEADER_BYTES>()?;
        let words = words_of(header);
        let ([low, high], _) = words;
        let flags = Flags((low >> 8) as u8);
        let is_request = low as u8 == REQUEST;
        if (!is_request && low as u8 != RESPONSE) || flags.has(Flags::TRAILER) {
            return None;
        }
        let length = usize::from((low >> 32) as u16);
        let (packet, after) = datagram.split_at_checked(length)?;
        let body = packet.get(HEADER_BYTES..)?;
        let payload = match flags.has(Flags::EXTENSION) {
            false => body,
            true if is_request => body.get(EXTENSION_BYTES..)?,
            true => return None,
        };
        // The message size, and above it the packet number, which is zero.
        let message = low >> 56 | (high & 0xffff_ffff) << 8;
        if message != payload.len() as u64 {
            return None;
        }
        let sum = u32::from_le_bytes([header[20], header[21], header[22], header[23]]);
        let single = Self {
            words,
            sum,
            body,
            payload,
        };
        Some((single, after))
    }

    #[inline]
    pub(crate) fn is_request(&self) -> bool {
        self.words.0[0] as u8 == REQUEST
    }

    #[inline]
    pub(crate) fn session(&self) -> u16 {
        (self.words.0[0] >> 16) as u16
    }

    #[inline]
    pub(crate) fn flags(&self) -> Flags {
        Flags((self.words.0[0] >> 8) as u8)
    }

    #[inline]
    pub(crate) fn kind(&self) -> u8 {
        (self.words.0[0] >> 48) as u8
    }

    #[inline]
    pub(crate) fn request(&self) -> RequestNumber {
        let ([_, high], rest) = self.words;
        RequestNumber(high >> 32 | u64::from(rest & 0xffff) << 32)
    }

    #[inline]
    pub(crate) fn held(&self) -> Held {
        Held::from_bits((self.words.1 >> 16) as u16)
    }

    /// Nanoseconds that were left until the request's deadline when the packet was sent.
    #[inline]
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        if !self.flags().has(Flags::EXTENSION) {
            return None;
        }
        let left = self
            .body
            .first_chunk()
            .map(|left| u32::from_le_bytes(*left))?;
        Some(u64::from(left) * DEADLINE_UNIT_NS)
    }

    /// Whether the checksum is right under this seed.
    #[inline]
    pub(crate) fn verify(&self, seed: Seed) -> bool {
        let (words, rest) = self.words;
        seed.of_whole(words, rest, self.body) == self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Prng;
    use crate::wire::{Header, Packet, split_first};

    fn is_single(packet: &Packet<'_>) -> bool {
        let header = &packet.header;
        matches!(
            header.packet_type,
            PacketType::Request | PacketType::Response
        ) && header.packet_number == 0
            && header.message_bytes as usize == packet.payload.len()
    }

    /// Whatever bytes come: what is read here is what the general way reads, and nothing of the
    /// common case is left to it.
    #[test]
    fn it_reads_what_the_general_way_reads() {
        let mut prng = Prng::new(3);
        let mut found = 0;
        for _ in 0..50_000 {
            let bytes = a_packet(&mut prng);
            let single = SinglePacket::cut(&bytes);
            let general = split_first(&bytes).ok();
            let Some((packet, rest)) = general.filter(|(packet, _)| is_single(packet)) else {
                assert!(single.is_none(), "{bytes:?}");
                continue;
            };
            found += 1;
            let (single, after) = single.expect("the common case");
            let header = packet.header;
            assert_eq!(after, rest);
            assert_eq!(
                single.is_request(),
                header.packet_type == PacketType::Request
            );
            assert_eq!(single.session(), header.session);
            assert_eq!(single.flags(), header.flags);
            assert_eq!(single.kind(), header.kind);
            assert_eq!(single.request(), header.request);
            assert_eq!(single.held(), header.held);
            assert_eq!(single.payload, packet.payload);
            assert_eq!(single.deadline_ns(), packet.deadline_ns);
            assert!(single.verify(SEED) == packet.verify(SEED));
        }
        assert!(found > 1_000, "{found} packets were of the common case");
    }

    const SEED: Seed = Seed::NONE;

    /// A packet of any type, with some bits of its first half turned now and then.
    fn a_packet(prng: &mut Prng) -> Vec<u8> {
        let mut payload = vec![0; prng.below(40) as usize];
        prng.fill(&mut payload);
        let types = [
            PacketType::Request,
            PacketType::Response,
            PacketType::CreditReturn,
        ];
        let header = Header {
            flags: Flags(prng.next_u64() as u8 & !(Flags::EXTENSION.0 | Flags::TRAILER.0)),
            kind: prng.next_u64() as u8,
            message_bytes: payload.len() as u32,
            packet_number: prng.below(4).saturating_sub(2) as u16,
            request: RequestNumber::token(prng.next_u64()),
            held: Held::from_bits(prng.next_u64() as u16),
            ..Header::new(types[prng.below(3) as usize], prng.next_u64() as u16)
        };
        let extension = (prng.below(4) == 0).then(|| prng.next_u64().to_le_bytes());
        let mut bytes = header.write(SEED, extension, &payload).to_vec();
        bytes.extend_from_slice(&payload);
        if prng.below(3) == 0 {
            let at = prng.below(12) as usize;
            bytes[at] ^= 1 << prng.below(8);
        }
        bytes.truncate(bytes.len() - prng.below(20).saturating_sub(15) as usize);
        bytes.extend_from_slice(&[7; 3][..prng.below(4) as usize]);
        bytes
    }
}
