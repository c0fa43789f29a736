//! Reading and writing of fixed layouts: a cursor on either side that knows nothing of the messages.

use super::MESSAGE_VERSION;
use crate::release::Release;

/// Why received bytes are not the message that they should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecodeError {
    /// The message ends before its layout does.
    #[error("the message is cut short")]
    Truncated,
    /// The message continues after its layout has ended.
    #[error("the message has bytes behind its end")]
    Trailing,
    /// The sender speaks another version of the messages.
    #[error(
        "message version {theirs} is not the {MESSAGE_VERSION} that release {} reads",
        Release::THIS
    )]
    Version {
        /// The version that the sender speaks.
        theirs: u8,
    },
    /// A field has a value without a meaning.
    #[error("field `{field}` has a value without a meaning")]
    Field {
        /// The field's name in `PROTOCOL.md`.
        field: &'static str,
    },
}

/// A message that can be written into a buffer.
pub trait Encode {
    /// Exactly the number of bytes that [`Encode::encode`] writes.
    fn encoded_len(&self) -> usize;

    /// Writes the message.
    fn encode(&self, out: &mut Writer<'_>);

    /// Writes the message to the front of `out` and returns its length.
    ///
    /// # Panics
    /// When `out` is shorter than [`Encode::encoded_len`].
    fn encode_to_slice(&self, out: &mut [u8]) -> usize {
        let len = self.encoded_len();
        let mut writer = Writer::new(&mut out[..len]);
        self.encode(&mut writer);
        assert!(writer.is_full(), "encode() wrote less than encoded_len()");
        len
    }

    /// The message as a fresh vector; for tests and rare messages.
    fn encode_to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.encoded_len()];
        self.encode_to_slice(&mut bytes);
        bytes
    }
}

/// Writes fields one behind the other. Writing beyond the end is the caller's bug and panics.
#[derive(Debug)]
pub struct Writer<'a> {
    rest: &'a mut [u8],
}

impl<'a> Writer<'a> {
    /// Starts at the front of `out`.
    pub fn new(out: &'a mut [u8]) -> Self {
        Self { rest: out }
    }

    /// Whether every byte was written.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.rest.is_empty()
    }

    /// Appends `bytes` as they are.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        let (head, tail) = std::mem::take(&mut self.rest).split_at_mut(bytes.len());
        head.copy_from_slice(bytes);
        self.rest = tail;
    }

    /// Appends `count` zero bytes: reserved bytes are zero on the wire.
    pub(super) fn zeros(&mut self, count: usize) {
        let (head, tail) = std::mem::take(&mut self.rest).split_at_mut(count);
        head.fill(0);
        self.rest = tail;
    }

    pub(super) fn u8(&mut self, value: u8) {
        self.bytes(&[value]);
    }

    pub(super) fn u16(&mut self, value: u16) {
        self.bytes(&value.to_le_bytes());
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }
}

/// The sentence with its length as it goes into a message: no more of it than the length can say.
pub(super) fn sentence(text: &str) -> (u16, &str) {
    let text = &text[..text.floor_char_boundary(usize::from(u16::MAX))];
    (text.len() as u16, text)
}

/// The fixed front of a message that every command brings, and the rest. One check covers all fields of the front,
/// which [`u32_at`] and [`u64_at`] then read without checks.
pub(super) fn front<const N: usize>(bytes: &[u8]) -> Result<(&[u8; N], &[u8]), DecodeError> {
    match bytes.first() {
        Some(&MESSAGE_VERSION) => bytes.split_first_chunk::<N>().ok_or(DecodeError::Truncated),
        Some(&theirs) => Err(DecodeError::Version { theirs }),
        None => Err(DecodeError::Truncated),
    }
}

pub(super) const fn u32_at<const N: usize>(front: &[u8; N], offset: usize) -> u32 {
    u32::from_le_bytes([
        front[offset],
        front[offset + 1],
        front[offset + 2],
        front[offset + 3],
    ])
}

pub(super) const fn u64_at<const N: usize>(front: &[u8; N], offset: usize) -> u64 {
    u32_at(front, offset) as u64 | (u32_at(front, offset + 4) as u64) << 32
}

/// Writes one field of a fixed front.
pub(super) fn set<const N: usize, const F: usize>(
    front: &mut [u8; N],
    offset: usize,
    field: [u8; F],
) {
    front[offset..offset + F].copy_from_slice(&field);
}

/// Reads fields one behind the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts behind the version byte, which has to be ours.
    pub(super) fn versioned(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Self { rest: bytes };
        match reader.u8()? {
            MESSAGE_VERSION => Ok(reader),
            theirs => Err(DecodeError::Version { theirs }),
        }
    }

    /// Starts behind a front that was read already.
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, tail) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or(DecodeError::Truncated)?;
        self.rest = tail;
        Ok(*head)
    }

    /// Reserved bytes are skipped unread, so that a later minor addition may use them.
    pub(super) fn skip<const N: usize>(&mut self) -> Result<(), DecodeError> {
        self.array::<N>().map(|_| ())
    }

    pub(super) fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn octets(&mut self) -> Result<[u8; 16], DecodeError> {
        self.array()
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let (head, tail) = self
            .rest
            .split_at_checked(count)
            .ok_or(DecodeError::Truncated)?;
        self.rest = tail;
        Ok(head)
    }

    /// A sentence of so many bytes. What is behind it belongs to a later release.
    pub(super) fn text(&mut self, len: u16) -> Result<&'a str, DecodeError> {
        std::str::from_utf8(self.take(usize::from(len))?)
            .map_err(|_| DecodeError::Field { field: "text" })
    }

    /// Everything behind the fixed part.
    pub(super) fn rest(self) -> &'a [u8] {
        self.rest
    }

    /// Whether nothing is left.
    pub(super) const fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// The message has to end here.
    pub(super) fn finish(self) -> Result<(), DecodeError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(DecodeError::Trailing)
        }
    }
}
