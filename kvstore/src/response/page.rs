//! The answer to WALK: items in the order of their hashes, and where the next ones are.

use crate::codec::{DecodeError, Field, List, Reader, Sink, put_optional, read_optional};
use crate::cursor::Cursor;
use crate::position::Position;

/// A part of a walk: the state of one position.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Page<'a> {
    /// The position.
    pub position: Position,
    /// Where the walk goes on; [`Cursor::START`] if this was the last page.
    pub next: Cursor,
    /// The items. There may be none although more pages follow.
    pub found: Found<'a>,
}

/// The items of a page.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Found<'a> {
    /// Their keys.
    Keys(List<'a, &'a [u8]>),
    /// Their keys and all that is known of them.
    Items(List<'a, Entry<'a>>),
}

/// An item of a page.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Entry<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// The position of the item's last change.
    pub version: Position,
    /// Nanoseconds of group time to live; none if it does not expire.
    pub remaining_ns: Option<u64>,
}

impl Found<'_> {
    /// How many items there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Keys(keys) => keys.len(),
            Self::Items(items) => items.len(),
        }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<'a> Field<'a> for Page<'a> {
    fn write_field(&self, sink: &mut impl Sink) {
        self.position.write_field(sink);
        self.next.write_field(sink);
        match &self.found {
            Found::Keys(keys) => {
                sink.put_u8(0);
                keys.write(sink);
            }
            Found::Items(items) => {
                sink.put_u8(1);
                items.write(sink);
            }
        }
    }
    fn read_field(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            position: Position::read_field(reader)?,
            next: Cursor::read_field(reader)?,
            found: match reader.flag("content")? {
                false => Found::Keys(List::read(reader)?),
                true => Found::Items(List::read(reader)?),
            },
        })
    }
}

impl<'a> Field<'a> for Entry<'a> {
    fn write_field(&self, sink: &mut impl Sink) {
        sink.put_bytes(self.key);
        sink.put_bytes(self.value);
        self.version.write_field(sink);
        put_optional(sink, self.remaining_ns);
    }
    fn read_field(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            key: reader.bytes()?,
            value: reader.bytes()?,
            version: Position::read_field(reader)?,
            remaining_ns: read_optional(reader)?,
        })
    }
}
