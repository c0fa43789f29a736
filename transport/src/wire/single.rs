//! The fast path on the wire: a REQUEST or a RESPONSE that is its whole message.
//!
//! The packet is read in place, and only the fields that the fast path uses. Packets of another
//! shape go through [`split_first`](super::split_first), which alone says what is wrong with them.

use super::checksum::Seed;
use super::header::{
    DEADLINE_UNIT_NS, Flags, HeaderBytes, PacketType, RequestNumber, VERSION, word_at,
};
use super::layout::{EXTENSION_BYTES, HEADER_BYTES, words_of};

/// A packet that is all of its message. Its fields stay where they are until they are read.
#[derive(Copy, Clone, Debug)]
pub(crate) struct SinglePacket<'a> {
    pub(crate) header: HeaderBytes<'a>,
    /// The bytes that follow the header.
    body: &'a [u8],
    /// The message: the body but for an extension.
    pub(crate) payload: &'a [u8],
    /// It was sealed, and has been opened.
    is_opened: bool,
}

/// The session and the slot that the first packet of a datagram names, unverified, and what lies
/// after that packet.
#[inline]
pub(crate) fn peek(datagram: &[u8]) -> Option<(u16, u8, &[u8])> {
    let ([low, high], _) = words_of(datagram.first_chunk::<HEADER_BYTES>()?);
    let length = usize::from((low >> 32) as u16).max(HEADER_BYTES);
    let slot = RequestNumber(high >> 32).slot();
    Some(((low >> 16) as u16, slot, datagram.get(length..)?))
}

const REQUEST: u16 = (VERSION << 4 | PacketType::Request as u8) as u16;
const RESPONSE: u16 = (VERSION << 4 | PacketType::Response as u8) as u16;
const EXTENSION: u16 = (Flags::EXTENSION.0 as u16) << 8;
const TRAILER: u16 = (Flags::TRAILER.0 as u16) << 8;
const EXTENDED: u16 = REQUEST | EXTENSION;
/// Version, type and those flags that say something about the layout.
const SHAPE: u16 = 0xff | EXTENSION | TRAILER;

/// Where the message size begins, three bytes with the packet number after it.
const MESSAGE_AT: usize = 7;
const MESSAGE_MASK: u64 = (1 << 40) - 1;

impl<'a> SinglePacket<'a> {
    /// Cuts the first packet off a datagram, if it is of this shape.
    #[inline(always)]
    pub(crate) fn cut(datagram: &'a [u8]) -> Option<(Self, &'a [u8])> {
        Self::cut_as(datagram, false)
    }

    /// The same for bytes that were sealed and have been opened.
    #[inline(always)]
    pub(crate) fn cut_opened(packets: &'a [u8]) -> Option<(Self, &'a [u8])> {
        Self::cut_as(packets, true)
    }

    #[inline(always)]
    fn cut_as(datagram: &'a [u8], is_opened: bool) -> Option<(Self, &'a [u8])> {
        let header = datagram.first_chunk::<HEADER_BYTES>()?;
        let length = usize::from(u16::from_le_bytes([header[4], header[5]]));
        let (packet, after) = datagram.split_at_checked(length)?;
        let body = packet.get(HEADER_BYTES..)?;
        let payload = match u16::from_le_bytes([header[0], header[1]]) & SHAPE {
            REQUEST | RESPONSE => body,
            EXTENDED => body.get(EXTENSION_BYTES..)?,
            _ => return None,
        };
        // The packet number lies above the message size, and is zero.
        if word_at(header, MESSAGE_AT) & MESSAGE_MASK != payload.len() as u64 {
            return None;
        }
        let single = Self {
            header: HeaderBytes(header),
            body,
            payload,
            is_opened,
        };
        Some((single, after))
    }

    #[inline(always)]
    pub(crate) fn is_request(&self) -> bool {
        u16::from(self.header.0[0]) == REQUEST
    }

    /// Nanoseconds that were left until the request's deadline when the packet was sent.
    #[inline]
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        if !self.header.flags().has(Flags::EXTENSION) {
            return None;
        }
        let left = self
            .body
            .first_chunk()
            .map(|left| u32::from_le_bytes(*left))?;
        Some(u64::from(left) * DEADLINE_UNIT_NS)
    }

    /// Whether it is of the session with this seed: it was opened, or its checksum is right.
    #[inline(always)]
    pub(crate) fn verify(&self, seed: Seed) -> bool {
        self.is_opened || seed.is_sum_of(self.header.0, self.body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Prng;
    use crate::wire::{Header, Packet, ServerTime, split_first};

    fn is_single(packet: &Packet<'_>) -> bool {
        let header = &packet.header;
        matches!(
            header.packet_type,
            PacketType::Request | PacketType::Response
        ) && header.packet_number == 0
            && header.message_bytes as usize == packet.payload.len()
    }

    /// For any bytes, this reads the same fields as the general way, and the general way never gets
    /// a packet of the fast path.
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
            assert_eq!(single.header.session(), header.session);
            assert_eq!(single.header.flags(), header.flags);
            assert_eq!(single.header.kind(), header.kind);
            assert_eq!(single.header.request(), header.request);
            assert_eq!(single.header.server_time(), header.server_time);
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
            server_time: ServerTime::from_bits(prng.next_u64() as u16),
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
