//! The hash that spreads keys over buckets.

/// Mixes 64 bits so that each one changes half of the others.
#[inline(always)]
#[must_use]
pub fn mix(key: u64) -> u64 {
    let word = (key ^ (key >> 32)).wrapping_mul(0x9fb2_1c65_1e98_df25);
    let word = (word ^ (word >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    word ^ (word >> 32)
}

/// Continues a hash with further bytes. Equal pieces in equal order have equal hashes.
#[inline(always)]
#[must_use]
pub fn extend(hash: u64, bytes: &[u8]) -> u64 {
    let mut chunks = bytes.chunks_exact(8);
    let mut hash = hash ^ (bytes.len() as u64).wrapping_mul(0xa076_1d64_78bd_642f);
    for chunk in &mut chunks {
        let word = u64::from_le_bytes(*chunk.first_chunk().expect("eight bytes"));
        hash = mix(hash ^ word);
    }
    let mut last = [0; 8];
    let rest = chunks.remainder();
    last[..rest.len()].copy_from_slice(rest);
    mix(hash ^ u64::from_le_bytes(last))
}
