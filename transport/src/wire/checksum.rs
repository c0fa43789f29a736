//! The packet checksum: CRC32C, seeded so that a packet of an older session at the same index fails.

use super::crc;
use super::header::{CHECKSUM_AT, HEADER_BYTES};

/// The checksum's start value: zero before a session exists, else made of the session nonce.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct Seed(u32);

impl Seed {
    /// For packets that the receiver must understand without a session: CONNECT, PING, DISCONNECT, RESET.
    pub const NONE: Self = Self(0);

    /// For every other packet of the session that agreed on this nonce.
    #[must_use]
    pub fn of_nonce(nonce: u64) -> Self {
        Self(crc32c::crc32c(&nonce.to_le_bytes()))
    }

    /// The checksum of a packet whose header is `header` and whose other bytes are `parts`.
    #[must_use]
    pub fn checksum(self, header: &[u8; HEADER_BYTES], parts: [&[u8]; 2]) -> u32 {
        let start = crc::append(self.0, &header[..CHECKSUM_AT]);
        parts.iter().fold(start, |sum, part| crc::append(sum, part))
    }
}
