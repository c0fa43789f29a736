//! An event, and its bytes in the ring.
//!
//! ```text
//! 0      1         2           10             18              22             26
//! | kind | command | position  | remaining ns | value length  | key length   | key ... | kept length | kept value ...
//! ```
//! The value length is that of the whole value; the kept one is as long, or empty where the value was too large.

use crate::codec::{Reader, Sink, length_u32};
use crate::command::Kind;
use crate::position::Position;

/// What a position has done to a key.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Event<'a> {
    /// The position.
    pub position: Position,
    /// The kind of command that did it; of an EXEC that of its last operation on the key, and of a sweep EXPIRE.
    pub command: Kind,
    /// What has changed.
    pub change: Change<'a>,
}

/// The net effect of a position on a key.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Change<'a> {
    /// It has this value now.
    Written {
        /// The key.
        key: &'a [u8],
        /// The value; nothing if it is longer than [`crate::config::HISTORY_VALUE_BYTES_MAX`].
        value: Option<&'a [u8]>,
        /// The length of the value.
        value_bytes: u32,
        /// The time to live at that position, in nanoseconds of group time.
        remaining_ns: Option<u64>,
    },
    /// A command has removed it.
    Removed {
        /// The key.
        key: &'a [u8],
    },
    /// It has expired, and was removed for that.
    Expired {
        /// The key.
        key: &'a [u8],
    },
    /// All keys are gone.
    Flushed,
}

impl<'a> Event<'a> {
    /// The key; none if it is about all keys.
    #[must_use]
    pub fn key(&self) -> Option<&'a [u8]> {
        match self.change {
            Change::Written { key, .. } | Change::Removed { key } | Change::Expired { key } => {
                Some(key)
            }
            Change::Flushed => None,
        }
    }
}

/// Another event has taken its place.
pub(super) const VOID: u8 = 0;
const WRITTEN: u8 = 1;
const WRITTEN_LARGE: u8 = 2;
const REMOVED: u8 = 3;
const EXPIRED: u8 = 4;
const FLUSHED: u8 = 5;
/// Bytes of a record beside its key and value.
const RECORD_BYTES: usize = 30;

/// An event as it lies in the ring.
#[derive(Copy, Clone, Debug)]
pub(super) struct EventRecord<'a> {
    kind: u8,
    command: u8,
    position: u64,
    remaining_ns: u64,
    value_bytes: u32,
    key: &'a [u8],
    value: &'a [u8],
}

impl<'a> EventRecord<'a> {
    pub(super) fn size_of(change: &Change<'_>) -> usize {
        RECORD_BYTES
            + match change {
                Change::Written { key, value, .. } => key.len() + value.map_or(0, <[u8]>::len),
                Change::Removed { key } | Change::Expired { key } => key.len(),
                Change::Flushed => 0,
            }
    }

    #[inline]
    pub(super) fn write(out: &mut Vec<u8>, at: Position, command: Kind, change: &Change<'_>) {
        let (kind, key, value, value_bytes, remaining_ns): (u8, &[u8], &[u8], u32, u64) =
            match *change {
                Change::Written {
                    key,
                    value,
                    value_bytes,
                    remaining_ns,
                } => (
                    if value.is_some() {
                        WRITTEN
                    } else {
                        WRITTEN_LARGE
                    },
                    key,
                    value.unwrap_or_default(),
                    value_bytes,
                    // A key that is there has time left.
                    remaining_ns.unwrap_or(0),
                ),
                Change::Removed { key } => (REMOVED, key, &[], 0, 0),
                Change::Expired { key } => (EXPIRED, key, &[], 0, 0),
                Change::Flushed => (FLUSHED, &[], &[], 0, 0),
            };
        let mut head = [0; RECORD_BYTES - 4];
        head[0] = kind;
        head[1] = command as u8;
        head[2..10].copy_from_slice(&at.as_u64().to_le_bytes());
        head[10..18].copy_from_slice(&remaining_ns.to_le_bytes());
        head[18..22].copy_from_slice(&value_bytes.to_le_bytes());
        head[22..26].copy_from_slice(&length_u32(key.len()).to_le_bytes());
        out.put(&head);
        out.put(key);
        out.put_bytes(value);
    }

    /// Reads the record at the front, and says how many bytes follow it.
    pub(super) fn read(bytes: &'a [u8]) -> Option<(Self, usize)> {
        let mut reader = Reader::new(bytes);
        let record = Self {
            kind: reader.u8().ok()?,
            command: reader.u8().ok()?,
            position: reader.u64().ok()?,
            remaining_ns: reader.u64().ok()?,
            value_bytes: reader.u32().ok()?,
            key: reader.bytes().ok()?,
            value: reader.bytes().ok()?,
        };
        Some((record, reader.rest().len()))
    }

    /// The event, unless another one has taken its place.
    pub(super) fn event(self) -> Option<Event<'a>> {
        let key = self.key;
        let change = match self.kind {
            WRITTEN | WRITTEN_LARGE => Change::Written {
                key,
                value: (self.kind == WRITTEN).then_some(self.value),
                value_bytes: self.value_bytes,
                remaining_ns: (self.remaining_ns > 0).then_some(self.remaining_ns),
            },
            REMOVED => Change::Removed { key },
            EXPIRED => Change::Expired { key },
            FLUSHED => Change::Flushed,
            _ => return None,
        };
        Some(Event {
            position: Position::from_u64(self.position),
            command: Kind::of_byte(self.command)?,
            change,
        })
    }
}
