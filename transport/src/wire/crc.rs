//! CRC32C of short inputs by the processor's own instruction.
//!
//! The `crc32c` crate splits its input into aligned parts and long interleaved runs, which costs a
//! hundred instructions before the first byte; a small packet has seven words. Long inputs go to
//! the crate, whose interleaving wins there.
#![allow(unsafe_code)]

/// Up to this length one chain of instructions is faster than the crate.
const SHORT_MAX: usize = 256;

/// Continues the checksum `sum` over a packet: a header of 20 bytes as little-endian words, then
/// the parts.
#[inline]
pub(super) fn of_packet(sum: u32, header: [u64; 2], rest: u32, parts: [&[u8]; 2]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instructions that the function was compiled for.
        return unsafe { of_packet_sse42(sum, header, rest, parts[0], parts[1]) };
    }
    let words = header.map(u64::to_le_bytes);
    let sum = crc32c::crc32c_append(sum, words.as_flattened());
    let sum = crc32c::crc32c_append(sum, &rest.to_le_bytes());
    parts
        .iter()
        .fold(sum, |sum, part| crc32c::crc32c_append(sum, part))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn of_packet_sse42(sum: u32, header: [u64; 2], rest: u32, first: &[u8], second: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u32, _mm_crc32_u64};
    let state = _mm_crc32_u64(u64::from(!sum), header[0]);
    let state = _mm_crc32_u64(state, header[1]);
    let mut state = _mm_crc32_u32(state as u32, rest);
    // An extension is rare: most packets have one part.
    if !first.is_empty() {
        state = append_sse42(state, first);
    }
    if second.len() > SHORT_MAX {
        return !append_long(state, second);
    }
    !append_sse42(state, second)
}

/// Apart, so that short packets do not save registers for it.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
fn append_long(state: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!state, bytes)
}

/// Continues a state, which is a checksum with all bits inverted.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "sse4.2")]
fn append_sse42(state: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u32, _mm_crc32_u64};
    let (words, rest) = bytes.as_chunks::<8>();
    let mut state = u64::from(state);
    for word in words {
        state = _mm_crc32_u64(state, u64::from_le_bytes(*word));
    }
    if rest.is_empty() {
        return state as u32;
    }
    let (words, rest) = rest.as_chunks::<4>();
    let mut state = state as u32;
    for word in words {
        state = _mm_crc32_u32(state, u32::from_le_bytes(*word));
    }
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
            assert_eq!(
                of_packet(sum, header, rest, [first, second]),
                crc32c::crc32c_append(sum, packet),
                "{len} bytes"
            );
        }
    }
}
