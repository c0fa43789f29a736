//! CRC32C of packets: short ones by the processor's own instruction, long ones by `crc-fast`.
//!
//! A packet of 32 bytes has seven words, for which any call with a choice in it costs more than the
//! checksum. A full packet is folded in the widest registers that there are, four times as fast as
//! by the instruction.
#![allow(unsafe_code)]

use crc_fast::{CrcAlgorithm, Digest};

use super::header::HEADER_BYTES;

/// Up to this length one chain of instructions is faster than folding.
const SHORT_MAX: usize = 256;

/// Continues the checksum `sum` over a packet: a header of 20 bytes as little-endian words, then
/// the parts.
pub(super) fn of_packet(sum: u32, header: [u64; 2], rest: u32, parts: [&[u8]; 2]) -> u32 {
    let sum = of_whole(sum, header, rest, parts[0]);
    append(sum, parts[1])
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

/// The same for a packet whose other bytes are one part, as most packets are.
#[inline(always)]
pub(super) fn of_whole(sum: u32, header: [u64; 2], rest: u32, body: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instructions that the function was compiled for.
        return unsafe { of_whole_sse42(sum, header[0], header[1], rest, body) };
    }
    append_long(of_header(sum, header, rest), body)
}

/// The same for a packet whose body is copied on the way, in one pass, behind the header's place.
///
/// # Panics
///
/// If the packet does not fit into `packet`.
#[inline(always)]
pub(super) fn copy<const ROOM: usize>(
    sum: u32,
    [low, high]: [u64; 2],
    rest: u32,
    body: &[u8],
    packet: &mut [u8; ROOM],
) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if body.len() <= SHORT_MAX && is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instructions that the function was compiled for.
        return unsafe { copy_sse42(sum, low, high, rest, body, packet) };
    }
    packet[HEADER_BYTES..HEADER_BYTES + body.len()].copy_from_slice(body);
    append_long(of_header(sum, [low, high], rest), body)
}

#[cold]
fn of_header(sum: u32, header: [u64; 2], rest: u32) -> u32 {
    let words = header.map(u64::to_le_bytes);
    let sum = append_long(sum, words.as_flattened());
    append_long(sum, &rest.to_le_bytes())
}

/// A state, which is a checksum with all bits inverted, after the header.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "sse4.2")]
fn header_sse42(sum: u32, low: u64, high: u64, rest: u32) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u32, _mm_crc32_u64};
    let state = _mm_crc32_u64(u64::from(!sum), low);
    let state = _mm_crc32_u64(state, high);
    _mm_crc32_u32(state as u32, rest)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn of_whole_sse42(sum: u32, low: u64, high: u64, rest: u32, body: &[u8]) -> u32 {
    append_sse42(!header_sse42(sum, low, high, rest), body)
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
fn copy_sse42<const ROOM: usize>(
    sum: u32,
    low: u64,
    high: u64,
    rest: u32,
    body: &[u8],
    packet: &mut [u8; ROOM],
) -> u32 {
    let mut state = header_sse42(sum, low, high, rest);
    let (blocks, tail) = body.as_chunks::<BLOCK>();
    let to = &mut packet[HEADER_BYTES..HEADER_BYTES + body.len()];
    let (places, last) = to.as_chunks_mut::<BLOCK>();
    for (block, place) in blocks.iter().zip(places) {
        state = block_sse42(state, block);
        *place = *block;
    }
    if !tail.is_empty() {
        state = tail_sse42(state, tail);
        last.copy_from_slice(tail);
    }
    !state
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
        for len in 20..bytes.len() {
            let (sum, packet) = (prng.next_u64() as u32, &bytes[..len]);
            let (words, _) = packet.as_chunks::<8>();
            let header = [u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1])];
            let rest = u32::from_le_bytes([packet[16], packet[17], packet[18], packet[19]]);
            let (first, second) = packet[20..].split_at((len - 20) / 3);
            let expected = crc32c::crc32c_append(sum, packet);
            let parts = of_packet(sum, header, rest, [first, second]);
            assert_eq!(parts, expected, "{len} bytes");
            assert_eq!(
                of_whole(sum, header, rest, &packet[20..]),
                expected,
                "{len} bytes"
            );
            let mut copied = [0; HEADER_BYTES + 20 + 2 * SHORT_MAX];
            let sum = copy(sum, header, rest, &packet[20..], &mut copied);
            assert_eq!(sum, expected, "{len} bytes");
            assert_eq!(
                copied[HEADER_BYTES..][..len - 20],
                packet[20..],
                "{len} bytes"
            );
        }
    }
}
