//! The packet checksum: CRC32C, seeded so that a packet of an older session at the same index fails.

use super::crc;
use super::header::{HEADER_BYTES, words_of};

/// The checksum's start value: zero before a session exists, else made of the session nonce.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct Seed(u32);

impl Seed {
    /// For packets that the receiver must understand without a session: CONNECT, PING, DISCONNECT, RESET.
    pub const NONE: Self = Self(0);

    /// For every other packet of the session that agreed on this nonce.
    #[must_use]
    pub fn of_nonce(nonce: u64) -> Self {
        Self(crc::append(0, &nonce.to_le_bytes()))
    }

    /// The checksum of a packet whose header is `header` and whose other bytes are `parts`.
    #[must_use]
    pub fn checksum(self, header: &[u8; HEADER_BYTES], parts: [&[u8]; 2]) -> u32 {
        let (words, rest) = words_of(header);
        self.checksum_of_words(words, rest, parts)
    }

    /// The same with the header's 20 bytes before the checksum as little-endian words.
    #[inline]
    pub(super) fn checksum_of_words(self, header: [u64; 2], rest: u32, parts: [&[u8]; 2]) -> u32 {
        crc::of_packet(self.0, header, rest, parts)
    }

    /// The same for a packet of one part, which is copied behind the header's place on the way.
    #[inline(always)]
    pub(super) fn copy<const ROOM: usize>(
        self,
        header: [u64; 2],
        rest: u32,
        body: &[u8],
        packet: &mut [u8; ROOM],
    ) -> u32 {
        crc::copy(self.0, header, rest, body, packet)
    }

    /// The same for a packet of one part.
    #[inline(always)]
    pub(super) fn of_whole(self, header: [u64; 2], rest: u32, body: &[u8]) -> u32 {
        crc::of_whole(self.0, header, rest, body)
    }
}
