//! Writes a backup file: bytes to append, one part after the other.

use super::header::Header;
use super::{FRAME_BYTES_MAX, FRAME_HEADER, FileProgress};

/// Where the end of the file is.
#[derive(Clone, Copy, Debug)]
pub struct Encoder(FileProgress);

impl Encoder {
    /// Begins a file; the first bytes to write come with it.
    #[must_use]
    pub fn begin(header: &Header) -> (Self, Vec<u8>) {
        let bytes = header.encode();
        (Self(FileProgress::behind(&bytes)), bytes)
    }

    /// Goes on behind the frames that a decoder has passed.
    pub(super) const fn at(place: FileProgress) -> Self {
        Self(place)
    }

    /// Frames so far.
    #[must_use]
    pub const fn frames(&self) -> u64 {
        self.0.frames
    }

    /// Bytes so far.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// The bytes of the next frame, in two parts: what precedes the content is returned.
    ///
    /// # Panics
    /// When `content` is empty or longer than [`FRAME_BYTES_MAX`]: no piece of an image is.
    #[must_use]
    pub fn frame(&mut self, content: &[u8]) -> [u8; FRAME_HEADER] {
        assert!(!content.is_empty() && content.len() <= FRAME_BYTES_MAX);
        let length = (content.len() as u32).to_le_bytes();
        let crc = self.0.checksum(length, content);
        let mut head = [0; FRAME_HEADER];
        head[..4].copy_from_slice(&length);
        head[4..].copy_from_slice(&crc);
        self.0.pass(head, content.len());
        head
    }

    /// The last bytes.
    #[must_use]
    pub fn end(self) -> Vec<u8> {
        self.0.trailer().to_vec()
    }
}
