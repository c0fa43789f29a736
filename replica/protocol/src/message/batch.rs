//! Several client requests in one message, and their replies, in the same order, in another.

use super::MESSAGE_VERSION;
use super::codec::{DecodeError, Reader, Writer};

/// Bytes in front of the first item.
pub const BATCH_HEADER_SIZE: usize = 8;
/// Bytes in front of each item: its length.
pub const BATCH_ITEM_HEADER_SIZE: usize = 4;
/// The most items of one batch.
pub const BATCH_ITEMS_MAX: usize = 64;

/// Writes a batch into a buffer, item by item.
#[derive(Debug)]
pub struct BatchWriter<'a> {
    out: &'a mut [u8],
    len: usize,
    count: u16,
}

impl<'a> BatchWriter<'a> {
    /// Starts at the front of `out`.
    ///
    /// # Panics
    /// When `out` is shorter than [`BATCH_HEADER_SIZE`].
    pub fn new(out: &'a mut [u8]) -> Self {
        Writer::new(&mut out[..BATCH_HEADER_SIZE]).zeros(BATCH_HEADER_SIZE);
        out[0] = MESSAGE_VERSION;
        Self {
            out,
            len: BATCH_HEADER_SIZE,
            count: 0,
        }
    }

    /// Adds an item.
    ///
    /// # Panics
    /// When the buffer or the batch is full.
    pub fn push(&mut self, item: &[u8]) {
        assert!(
            usize::from(self.count) < BATCH_ITEMS_MAX,
            "a batch has at most {BATCH_ITEMS_MAX} items"
        );
        let end = self.len + BATCH_ITEM_HEADER_SIZE + item.len();
        let mut writer = Writer::new(&mut self.out[self.len..end]);
        writer.u32(item.len() as u32);
        writer.bytes(item);
        self.len = end;
        self.count += 1;
    }

    /// Ends the batch; its length.
    #[must_use]
    pub fn finish(self) -> usize {
        Writer::new(&mut self.out[2..4]).u16(self.count);
        self.len
    }
}

/// The items of a batch, in their order.
#[derive(Clone, Debug)]
pub struct BatchItems<'a> {
    reader: Reader<'a>,
    left: usize,
}

impl<'a> BatchItems<'a> {
    /// Reads a batch of requests, and checks that its items fill it exactly.
    ///
    /// # Errors
    /// When it is cut short, too long, of another version, or has too many items.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let (items, behind) = Self::read(bytes)?;
        behind.finish()?;
        Ok(items)
    }

    /// Reads a batch of replies. What is behind its items belongs to a later release.
    ///
    /// # Errors
    /// When it is cut short, of another version, or has too many items.
    pub fn decode_replies(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        Self::read(bytes).map(|(items, _)| items)
    }

    /// The items, and what is behind them.
    fn read(bytes: &'a [u8]) -> Result<(Self, Reader<'a>), DecodeError> {
        let mut reader = Reader::versioned(bytes)?;
        reader.skip::<1>()?;
        let left = usize::from(reader.u16()?);
        reader.skip::<4>()?;
        if left > BATCH_ITEMS_MAX {
            return Err(DecodeError::Field {
                field: "item count",
            });
        }
        let items = Self { reader, left };
        let mut check = items.clone();
        while check.left > 0 {
            check.take_item()?;
        }
        Ok((items, check.reader))
    }

    fn take_item(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = self.reader.u32()? as usize;
        let item = self.reader.take(len)?;
        self.left -= 1;
        Ok(item)
    }
}

impl<'a> Iterator for BatchItems<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.left == 0 {
            return None;
        }
        // `decode` has checked every item.
        self.take_item().ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for BatchItems<'_> {}
