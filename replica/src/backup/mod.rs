//! Backup files: the replicated state of one position, apart from any replica.
//!
//! ```text
//! | header | frame | frame | ... | trailer |
//!
//! header   0  "TRINEBAK"                      8 bytes
//!          8  format                          u16, 1
//!          10 length of the header            u16, 100
//!          12 options                         u32; bit 0: the state has users
//!          16 cluster                         u64
//!          24 index of the last entry         u64
//!          32 its term                        u64
//!          40 group time                      u64, nanoseconds
//!          48 time of the backup              u64, milliseconds since 1970
//!          56 items                           u64
//!          64 logical bytes                   u64
//!          72 users                           u32
//!          76 state-machine version           u8
//!          77 zero                            3 bytes
//!          80 the image's name                u64
//!          88 the replica that had it         u64, its incarnation
//!          96 CRC-32C of all of the above     u32
//! frame    0  length of the content           u32, not 0
//!          4  CRC-32C of number, length, content   u32
//!          8  content
//! trailer  0  zero                            u32
//!          4  CRC-32C of number, zero, and the rest of the trailer   u32
//!          8  frames                          u64
//!          16 bytes in front of the trailer   u64
//!          24 checksum of the whole           u32
//!          28 zero                            u32
//! ```
//!
//! Numbers are little-endian. The number of a frame is a u64 and counts from 0; the trailer has the one after the last
//! frame. It is in no frame, so a frame in the wrong place is damage. The contents are the pieces of a snapshot
//! (`snapshot_transfer/image.rs`) without client sessions. The checksum of the whole is that of a chain: it begins with
//! the header's, and is with each frame the CRC-32C of itself and of the frame's first 8 bytes.
//!
//! [`Encoder`] and [`Decoder`] turn this into bytes and back, and do no input or output.

mod damage;
mod decoder;
mod encoder;
#[cfg(test)]
mod golden_tests;
mod header;
mod restore;
#[cfg(test)]
mod tests;

pub use damage::{Damage, FORMAT, WhatIsWrong};
pub use decoder::{Decoder, Part};
pub use encoder::Encoder;
pub use header::Header;
pub use restore::{
    Begun, Content, RestoreError, Restorer, TimeToLive, fuzz_restore, restore, restore_in_memory,
};

use trine_kvstore::checksum::crc32c;

/// No frame is longer; a greater length is damage.
pub const FRAME_BYTES_MAX: usize = 2 << 20;
/// Bytes in front of a frame's content.
const FRAME_HEADER: usize = 8;
/// Bytes of a trailer.
const TRAILER: usize = 32;

/// How far a file is: what the next frame's checksum, and that of the whole, depend on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct FileProgress {
    /// Frames so far.
    frames: u64,
    /// Bytes so far.
    bytes: u64,
    /// The chain of checksums.
    whole: u32,
}

impl FileProgress {
    /// Behind the header.
    fn behind(header: &[u8]) -> Self {
        let own = header.last_chunk::<4>().copied().unwrap_or_default();
        Self {
            frames: 0,
            bytes: header.len() as u64,
            whole: u32::from_le_bytes(own),
        }
    }

    /// The checksum of the frame that comes next.
    fn checksum(&self, length: [u8; 4], content: &[u8]) -> [u8; 4] {
        crc32c([&self.frames.to_le_bytes(), &length, content]).to_le_bytes()
    }

    /// Behind the frame with these first bytes.
    fn pass(&mut self, head: [u8; FRAME_HEADER], content: usize) {
        self.whole = crc32c([&self.whole.to_le_bytes(), &head]);
        self.frames += 1;
        self.bytes += (FRAME_HEADER + content) as u64;
    }

    /// The trailer that ends a file here.
    fn trailer(&self) -> [u8; TRAILER] {
        let mut rest = [0; TRAILER - FRAME_HEADER];
        rest[..8].copy_from_slice(&self.frames.to_le_bytes());
        rest[8..16].copy_from_slice(&self.bytes.to_le_bytes());
        rest[16..20].copy_from_slice(&self.whole.to_le_bytes());
        let mut trailer = [0; TRAILER];
        trailer[4..8].copy_from_slice(&self.checksum([0; 4], &rest));
        trailer[8..].copy_from_slice(&rest);
        trailer
    }
}
