//! Frames in sectors: the layout that lets a torn write be told from damage.
//!
//! ```text
//! 0        4                 12            16             20                          512
//! | CRC32C | frame sequence  | frame bytes | sector no.   | content, zeros after it   |
//! ```
//! One frame is one write and one sync. A sector that was never written is all zeros, and no written one is, for
//! sequences begin at one. The checksum covers the rest of the sector and its place. So after the last complete frame
//! an interrupted write leaves sectors that are either zero or valid sectors of just the next frame. Anything else was
//! not left by a write that did not finish: it is damage.

use trine_kvstore::checksum::crc32c;

/// The unit that a disk writes as a whole.
pub(crate) const SECTOR: usize = 512;
/// In front of each sector's content.
const SECTOR_HEADER: usize = 20;
/// A frame's bytes in one sector.
pub(crate) const SECTOR_CONTENT: usize = SECTOR - SECTOR_HEADER;

/// Sectors of a frame with that many bytes.
pub(crate) fn sectors_of(bytes: usize) -> usize {
    bytes.div_ceil(SECTOR_CONTENT).max(1)
}

/// Writes a frame's sectors to the end of `out`. It begins at sector `at` of segment `segment`.
pub(crate) fn encode(out: &mut Vec<u8>, segment: u64, at: u64, sequence: u64, content: &[u8]) {
    assert!(sequence > 0, "a sector that was written is not all zeros");
    assert!(
        u32::try_from(content.len()).is_ok(),
        "the writer cuts batches"
    );
    let count = sectors_of(content.len());
    out.reserve(count * SECTOR);
    for number in 0..count {
        let from = (number * SECTOR_CONTENT).min(content.len());
        let part = &content[from..content.len().min(from + SECTOR_CONTENT)];
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&sequence.to_le_bytes());
        out.extend_from_slice(&(content.len() as u32).to_le_bytes());
        out.extend_from_slice(&(number as u32).to_le_bytes());
        out.extend_from_slice(part);
        out.resize(start + SECTOR, 0);
        let crc = checksum(&out[start + 4..], segment, at + number as u64);
        out[start..start + 4].copy_from_slice(&crc.to_le_bytes());
    }
}

fn checksum(covered: &[u8], segment: u64, at: u64) -> u32 {
    crc32c([&segment.to_le_bytes(), &at.to_le_bytes(), covered])
}

/// The content of a sector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sector<'a> {
    /// Never written.
    Zero,
    /// Part of a frame.
    Valid {
        sequence: u64,
        frame_bytes: usize,
        number: usize,
        content: &'a [u8],
    },
    /// Neither.
    Damaged,
}

/// Reads sector `at` of a segment, which has at least that many.
pub(crate) fn read(segment_bytes: &[u8], segment: u64, at: usize) -> Sector<'_> {
    let sector = &segment_bytes[at * SECTOR..(at + 1) * SECTOR];
    if sector.iter().all(|&byte| byte == 0) {
        return Sector::Zero;
    }
    let word = |from: usize| {
        u32::from_le_bytes([
            sector[from],
            sector[from + 1],
            sector[from + 2],
            sector[from + 3],
        ])
    };
    if checksum(&sector[4..], segment, at as u64) != word(0) {
        return Sector::Damaged;
    }
    let sequence = u64::from(word(4)) | u64::from(word(8)) << 32;
    if sequence == 0 {
        return Sector::Damaged;
    }
    Sector::Valid {
        sequence,
        frame_bytes: word(12) as usize,
        number: word(16) as usize,
        content: &sector[SECTOR_HEADER..],
    }
}
