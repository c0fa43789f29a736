//! Sizes and places of a packet's parts (PROTOCOL.md section 2), and its header as words.

/// Header size.
pub const HEADER_BYTES: usize = 24;
/// The deadline extension, after the header of a request's first packet.
pub const EXTENSION_BYTES: usize = 8;
/// Room after the data for an authentication tag of a later version.
pub const TRAILER_BYTES: usize = 16;
/// The maximum that a packet carries besides data. Every packet of a message has the same room for data.
pub const PACKET_OVERHEAD: usize = HEADER_BYTES + EXTENSION_BYTES + TRAILER_BYTES;
/// The largest control packet (CONNECT).
pub const CONTROL_BYTES_MAX: usize = 64;

pub(super) const CHECKSUM_AT: usize = 20;

const _: () = assert!(CHECKSUM_AT + 4 == HEADER_BYTES);

/// A header up to the checksum.
pub(super) type Words = ([u64; 2], u32);

#[inline]
pub(super) fn words_of(header: &[u8; HEADER_BYTES]) -> Words {
    let (words, _) = header.as_chunks::<8>();
    let low = u64::from_le_bytes(words[0]);
    let high = u64::from_le_bytes(words[1]);
    // The last word's upper half is the checksum.
    ([low, high], u64::from_le_bytes(words[2]) as u32)
}

#[inline(always)]
pub(super) fn put_words<const ROOM: usize>(
    out: &mut [u8; ROOM],
    ([low, high], rest): Words,
    sum: u32,
) {
    out[..8].copy_from_slice(&low.to_le_bytes());
    out[8..16].copy_from_slice(&high.to_le_bytes());
    out[16..20].copy_from_slice(&rest.to_le_bytes());
    out[CHECKSUM_AT..HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
}
