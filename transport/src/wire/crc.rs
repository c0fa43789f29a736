//! CRC32C of packets: short ones by the processor's own instruction, long ones by `crc-fast`.
//!
//! A packet of 32 bytes has seven words, for which any call with a choice in it costs more than the
//! checksum. A full packet is folded in the widest registers that there are, four times as fast as
//! by the instruction.
#![allow(unsafe_code)]

use crc_fast::{CrcAlgorithm, Digest};

use super::layout::{CHECKSUM_AT as SUMMED_BYTES, HEADER_BYTES, words_of};

/// Up to this length one chain of instructions is faster than folding.
pub(super) const SHORT_MAX: usize = 256;

/// Continues the checksum `sum` over a packet: a header of 20 bytes as little-endian words, then
/// the parts.
pub(super) fn of_packet(sum: u32, [low, high]: [u64; 2], rest: u32, parts: [&[u8]; 2]) -> u32 {
    let mut header = [0; SUMMED_BYTES];
    header[..8].copy_from_slice(&low.to_le_bytes());
    header[8..16].copy_from_slice(&high.to_le_bytes());
    header[16..].copy_from_slice(&rest.to_le_bytes());
    let sum = append(sum, &header);
    append(append(sum, parts[0]), parts[1])
}

/// The checksum in a header.
#[inline(always)]
pub(super) fn stored(header: &[u8; HEADER_BYTES]) -> u32 {
    u32::from_le_bytes([header[20], header[21], header[22], header[23]])
}

/// Continues a checksum over bytes of any length.
pub(super) fn append(sum: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instructions that the function was compiled for.
        return unsafe { append_sse42(sum, bytes) };
    }
    append_long(sum, bytes)
}

/// Continues a checksum by whatever this processor folds with. Apart, so that short packets do not
/// save registers for it.
#[inline(never)]
fn append_long(sum: u32, bytes: &[u8]) -> u32 {
    // The state of a reflected checksum is its complement.
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!sum));
    digest.update(bytes);
    digest.finalize() as u32
}

/// The checksum of a packet whose other bytes are one part, as most packets' are.
#[inline(always)]
pub(super) fn of_whole(sum: u32, header: &[u8; HEADER_BYTES], body: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instructions that the function was compiled for.
        return unsafe { of_whole_sse42(sum, header, body) };
    }
    append_long(append_long(sum, &header[..SUMMED_BYTES]), body)
}

/// Copies a packet's body after its header and puts the checksum of both in, in one pass.
///
/// # Panics
///
/// If the packet does not fit into `packet`.
#[inline(always)]
pub(super) fn complete<const ROOM: usize>(sum: u32, body: &[u8], packet: &mut [u8; ROOM]) {
    #[cfg(target_arch = "x86_64")]
    if body.len() <= SHORT_MAX && is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instructions that the function was compiled for.
        return unsafe { complete_sse42(sum, body, packet) };
    }
    packet[HEADER_BYTES..HEADER_BYTES + body.len()].copy_from_slice(body);
    let sum = append_long(append_long(sum, &packet[..SUMMED_BYTES]), body);
    packet[SUMMED_BYTES..HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
}

/// A state, which is a checksum with all bits inverted, after the header.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "sse4.2")]
fn header_sse42(sum: u32, header: &[u8; HEADER_BYTES]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u32, _mm_crc32_u64};
    let ([low, high], rest) = words_of(header);
    let state = _mm_crc32_u64(u64::from(!sum), low);
    let state = _mm_crc32_u64(state, high);
    _mm_crc32_u32(state as u32, rest)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn of_whole_sse42(sum: u32, header: &[u8; HEADER_BYTES], body: &[u8]) -> u32 {
    append_sse42(!header_sse42(sum, header), body)
}

#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "sse4.2")]
fn append_sse42(sum: u32, bytes: &[u8]) -> u32 {
    if bytes.len() > SHORT_MAX {
        return append_long(sum, bytes);
    }
    let (blocks, tail) = bytes.as_chunks::<BLOCK>();
    let state = blocks
        .iter()
        .fold(!sum, |state, block| block_sse42(state, block));
    if tail.is_empty() {
        return !state;
    }
    !tail_sse42(state, tail)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn complete_sse42<const ROOM: usize>(sum: u32, body: &[u8], packet: &mut [u8; ROOM]) {
    let (header, room) = packet
        .split_first_chunk_mut::<HEADER_BYTES>()
        .expect("a packet has a header");
    let mut state = header_sse42(sum, header);
    let (blocks, tail) = body.as_chunks::<BLOCK>();
    let (places, last) = room[..body.len()].as_chunks_mut::<BLOCK>();
    for (block, place) in blocks.iter().zip(places) {
        state = block_sse42(state, block);
        *place = *block;
    }
    if !tail.is_empty() {
        state = tail_sse42(state, tail);
        last.copy_from_slice(tail);
    }
    header[SUMMED_BYTES..].copy_from_slice(&(!state).to_le_bytes());
}

#[cfg(target_arch = "x86_64")]
const BLOCK: usize = 32;

#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "sse4.2")]
fn block_sse42(state: u32, block: &[u8; BLOCK]) -> u32 {
    let (words, _) = block.as_chunks::<8>();
    let step =
        |state, word: &[u8; 8]| std::arch::x86_64::_mm_crc32_u64(state, u64::from_le_bytes(*word));
    words.iter().fold(u64::from(state), step) as u32
}

/// Fewer than [`BLOCK`] bytes.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "sse4.2")]
fn tail_sse42(state: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u64};
    let (words, rest) = bytes.as_chunks::<8>();
    let mut state = u64::from(state);
    for word in words {
        state = _mm_crc32_u64(state, u64::from_le_bytes(*word));
    }
    let mut state = state as u32;
    for byte in rest {
        state = _mm_crc32_u8(state, *byte);
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Prng;

    #[test]
    fn short_and_long_packets_agree_with_the_crate() {
        let mut prng = Prng::new(1);
        let mut bytes = vec![0; 20 + 2 * SHORT_MAX];
        prng.fill(&mut bytes);
        for len in HEADER_BYTES..bytes.len() {
            let (sum, packet) = (prng.next_u64() as u32, &bytes[..len]);
            let (header, body) = packet.split_first_chunk().expect("a header");
            let summed = crc32c::crc32c_append(sum, &header[..SUMMED_BYTES]);
            let expected = crc32c::crc32c_append(summed, body);
            let (words, rest) = words_of(header);
            let (first, second) = body.split_at(body.len() / 3);
            let parts = of_packet(sum, words, rest, [first, second]);
            assert_eq!(parts, expected, "{len} bytes");
            assert_eq!(of_whole(sum, header, body), expected, "{len} bytes");
            let mut copied = [0; 20 + 2 * SHORT_MAX];
            copied[..HEADER_BYTES].copy_from_slice(header);
            complete(sum, body, &mut copied);
            assert_eq!(copied[HEADER_BYTES..len], *body, "{len} bytes");
            let header = copied.first_chunk().expect("a header");
            assert_eq!(stored(header), expected, "{len} bytes");
            assert_eq!(copied[..SUMMED_BYTES], packet[..SUMMED_BYTES]);
        }
    }
}
