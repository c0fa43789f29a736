//! The packet checksum: CRC32C, seeded so that a packet of an older session at the same index fails.

use super::control::Features;
use super::crc::{self, SHORT_MAX};
use super::layout::{HEADER_BYTES, words_of};

/// The checksum's start value, zero before a session exists, else made of the session nonce; and what the
/// checksum covers.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct Seed {
    start: u32,
    /// More than `SHORT_MAX` bytes after the header are left out.
    is_short: bool,
}

impl Seed {
    /// For packets that the receiver must understand without a session: CONNECT, PING, DISCONNECT, RESET.
    pub const NONE: Self = Self {
        start: 0,
        is_short: false,
    };

    /// For every other packet of the session that agreed on this nonce.
    #[must_use]
    pub fn of_nonce(nonce: u64) -> Self {
        Self {
            start: crc::append(0, &nonce.to_le_bytes()),
            is_short: false,
        }
    }

    /// The same, once the session has agreed on these features.
    #[must_use]
    pub fn agreed(self, features: Features) -> Self {
        Self {
            is_short: features.has(Features::HEADER_CHECKSUMS),
            ..self
        }
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
        let covers = self.covers(parts[0].len() + parts[1].len());
        let parts = if covers { parts } else { [&[][..]; 2] };
        crc::of_packet(self.start, header, rest, parts)
    }

    /// Whether so many bytes after a header are summed.
    #[inline(always)]
    fn covers(self, bytes: usize) -> bool {
        bytes <= SHORT_MAX || !self.is_short
    }

    /// Completes a packet of one part whose header has been written but for the checksum: copies the body
    /// after it, and puts the checksum in, in one pass.
    ///
    /// # Panics
    ///
    /// If the packet does not fit into `packet`.
    #[inline(always)]
    pub(super) fn complete<const ROOM: usize>(self, body: &[u8], packet: &mut [u8; ROOM]) {
        debug_assert!(self.covers(body.len()), "long packets are not copied");
        crc::complete(self.start, body, packet);
    }

    /// Whether the checksum in the header of a packet is right.
    #[inline(always)]
    pub(super) fn is_sum_of(self, header: &[u8; HEADER_BYTES], body: &[u8]) -> bool {
        let covered = if self.covers(body.len()) { body } else { &[] };
        crc::of_whole(self.start, header, covered) == crc::stored(header)
    }
}
