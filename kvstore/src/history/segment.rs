//! A piece of the ring: whole events, one behind the other. It is dropped as a whole.

use super::event::{Change, EventRecord, VOID};
use crate::command::Kind;
use crate::position::Position;

#[derive(Debug)]
pub(super) struct Segment {
    bytes: Vec<u8>,
    /// The position of the last event.
    last: Position,
}

impl Segment {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(capacity),
            last: Position::ZERO,
        }
    }

    pub(super) fn emptied(mut self) -> Self {
        self.bytes.clear();
        self
    }

    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn room(&self) -> usize {
        self.bytes.capacity() - self.bytes.len()
    }

    pub(super) fn last(&self) -> Position {
        self.last
    }

    /// Adds an event, for which there is room.
    #[inline]
    pub(super) fn push(&mut self, at: Position, command: Kind, change: &Change<'_>) {
        self.last = at;
        EventRecord::write(&mut self.bytes, at, command, change);
    }

    /// The record at an offset, and the offset of the one behind it. Nothing at the end.
    pub(super) fn record(&self, offset: usize) -> Option<(EventRecord<'_>, usize)> {
        let (record, rest) = EventRecord::read(self.bytes.get(offset..)?)?;
        Some((record, self.bytes.len() - rest))
    }

    /// Another event takes the place of the one at this offset.
    pub(super) fn void(&mut self, offset: usize) {
        self.bytes[offset] = VOID;
    }
}
