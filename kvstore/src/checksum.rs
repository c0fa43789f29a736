//! CRC32C of bytes in several places, and a fast checksum of commands.

use crc_fast::{CrcAlgorithm, Digest};

pub use crate::hash::command_checksum;

/// The checksum of the parts as one run of bytes.
#[must_use]
pub fn crc32c<const N: usize>(parts: [&[u8]; N]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    parts.into_iter().for_each(|part| digest.update(part));
    // The algorithm's 32 bits.
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::crc32c;

    /// The check value of the catalogue of parametrised CRC algorithms, however the bytes are cut.
    #[test]
    fn the_parts_have_the_checksum_of_the_whole() {
        let whole = b"123456789";
        for cut in 0..=whole.len() {
            let (head, tail) = whole.split_at(cut);
            assert_eq!(crc32c([head, tail]), 0xe306_9283, "cut at {cut}");
        }
    }
}
