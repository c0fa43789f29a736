//! The packet checksum: CRC32C, seeded so that a packet of an older session at the same index fails.

use super::control::Features;
use super::crc::{self, SHORT_MAX};
use super::layout::{CHECKSUM_AT, HEADER_BYTES, words_of};

/// The checksum's start value, zero before a session exists, else made of the session nonce; and what the
/// checksum covers.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct Seed {
    start: u32,
    covers: Covers,
}

/// The bytes after the header that the checksum covers.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
enum Covers {
    All,
    /// None if there are more than `SHORT_MAX`.
    Short,
    /// There is no checksum: the session's packets are sealed before they are sent.
    Sealed,
}

impl Seed {
    /// For packets that the receiver must understand without a session: CONNECT, PING, DISCONNECT, RESET.
    pub const NONE: Self = Self {
        start: 0,
        covers: Covers::All,
    };

    /// For every other packet of the session that agreed on this nonce.
    #[must_use]
    pub fn of_nonce(nonce: u64) -> Self {
        Self {
            start: crc::append(0, &nonce.to_le_bytes()),
            covers: Covers::All,
        }
    }

    /// For the packets of a sealed session. Until they are sealed, they carry `tag` in the place of the checksum.
    #[must_use]
    pub(crate) fn sealed(tag: u32) -> Self {
        Self {
            start: tag,
            covers: Covers::Sealed,
        }
    }

    /// Whether packets are sealed instead of summed.
    #[inline(always)]
    pub(super) fn is_sealed(self) -> bool {
        self.covers == Covers::Sealed
    }

    /// The same, once the session has agreed on these features.
    #[must_use]
    pub fn agreed(self, features: Features) -> Self {
        Self {
            covers: if features.has(Features::HEADER_CHECKSUMS) {
                Covers::Short
            } else {
                Covers::All
            },
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
        if self.is_sealed() {
            return self.start;
        }
        let covers = self.covers(parts[0].len() + parts[1].len());
        let parts = if covers { parts } else { [&[][..]; 2] };
        crc::of_packet(self.start, header, rest, parts)
    }

    /// Whether so many bytes after a header are summed.
    #[inline(always)]
    fn covers(self, bytes: usize) -> bool {
        bytes <= SHORT_MAX || self.covers == Covers::All
    }

    /// Completes a packet of one part whose header has been written but for the checksum: copies the body
    /// after it, and puts the checksum in, in one pass.
    ///
    /// # Panics
    ///
    /// If the packet does not fit into `packet`.
    #[inline(always)]
    pub(super) fn complete<const ROOM: usize>(self, body: &[u8], packet: &mut [u8; ROOM]) {
        if self.is_sealed() {
            return mark(self.start, body, packet);
        }
        debug_assert!(self.covers(body.len()), "long packets are not copied");
        crc::complete(self.start, body, packet);
    }

    /// Whether the checksum in the header of a packet is right.
    #[inline(always)]
    pub(super) fn is_sum_of(self, header: &[u8; HEADER_BYTES], body: &[u8]) -> bool {
        let covered = if self.covers(body.len()) { body } else { &[] };
        !self.is_sealed() && crc::of_whole(self.start, header, covered) == crc::stored(header)
    }
}

/// Copies the body after its header, with the tag in the place of a checksum. Apart, so that packets with a checksum
/// do not pay for it.
#[inline(never)]
fn mark<const ROOM: usize>(tag: u32, body: &[u8], packet: &mut [u8; ROOM]) {
    packet[HEADER_BYTES..HEADER_BYTES + body.len()].copy_from_slice(body);
    packet[CHECKSUM_AT..HEADER_BYTES].copy_from_slice(&tag.to_le_bytes());
}
