//! CRC32C of short inputs by the processor's own instruction.
//!
//! The `crc32c` crate splits its input into aligned parts and long interleaved runs, which costs a
//! hundred instructions before the first byte; a small packet has seven words. Long inputs go to
//! the crate, whose interleaving wins there.
#![allow(unsafe_code)]

/// Up to this length one chain of instructions is faster than the crate.
const SHORT_MAX: usize = 256;

/// Continues the checksum `sum` over `bytes`.
#[inline]
pub(super) fn append(sum: u32, bytes: &[u8]) -> u32 {
    if bytes.is_empty() {
        return sum;
    }
    #[cfg(target_arch = "x86_64")]
    if bytes.len() <= SHORT_MAX && is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instructions that the function was compiled for.
        return unsafe { append_sse42(sum, bytes) };
    }
    crc32c::crc32c_append(sum, bytes)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn append_sse42(sum: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u32, _mm_crc32_u64};
    let (words, rest) = bytes.as_chunks::<8>();
    let state = words.iter().fold(u64::from(!sum), |state, word| {
        _mm_crc32_u64(state, u64::from_le_bytes(*word))
    });
    let (words, rest) = rest.as_chunks::<4>();
    let state = words.iter().fold(state as u32, |state, word| {
        _mm_crc32_u32(state, u32::from_le_bytes(*word))
    });
    !rest
        .iter()
        .fold(state, |state, byte| _mm_crc32_u8(state, *byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Prng;

    #[test]
    fn the_standard_check_value_comes_out() {
        assert_eq!(append(0, b"123456789"), 0xe306_9283);
    }

    #[test]
    fn short_and_long_inputs_agree_with_the_crate() {
        let mut prng = Prng::new(1);
        let mut bytes = vec![0; 2 * SHORT_MAX];
        prng.fill(&mut bytes);
        for len in 0..bytes.len() {
            let (sum, start) = (prng.next_u64() as u32, len % 7);
            let part = &bytes[start.min(len)..len];
            assert_eq!(
                append(sum, part),
                crc32c::crc32c_append(sum, part),
                "{len} bytes"
            );
        }
    }
}
