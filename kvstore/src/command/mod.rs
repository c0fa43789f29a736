//! The state machine's whole input language.
//!
//! - `table` is the table of commands, and `row` is the macro that makes code of it.
//! - `range` says which keys a scan is about.
//! - `fields` has the types of the commands' fields with their encodings.
//! - This file has what holds for every command.

mod fields;
mod range;
mod row;
mod table;

use crate::codec::{BufferTooSmall, DecodeError, Field, LengthCounter, List, Reader, Sink, fill};
use fields::Keys;

pub use fields::{
    Condition, ExecuteMode, ExpireCondition, Pair, Prefix, SetCondition, SetExpiry, SetOptions,
    WalkContent,
};
pub use range::{KeyRange, ScanOptions, after_prefix};
pub use row::{Access, Placement, Row};
pub use table::{
    Command, Kind, ORDERED_VERSION, STATE_VERSION, STATE_VERSION_FIRST, STATE_VERSION_SECOND,
    SWEEP_VERSION,
};

impl Command<'_> {
    /// Whether the command changes nothing, so that it can be answered by [`crate::Store::read`].
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        match self {
            Self::Execute { operations, .. } => {
                operations.iter().all(|operation| operation.is_read_only())
            }
            _ => self.row().access == Access::Read,
        }
    }

    /// The state-machine version that introduced the command; an older group refuses it.
    #[must_use]
    pub fn version(&self) -> u8 {
        let own = self.row().version;
        match self {
            // A list's elements have to be understood, too.
            Self::Execute { operations, .. } => own.max(operations.version()),
            _ => own,
        }
    }

    /// The range of keys that the command is about, if it is about one.
    #[must_use]
    pub fn range(&self) -> Option<KeyRange<'_>> {
        match self {
            Self::Scan { range, .. }
            | Self::ScanAt { range, .. }
            | Self::CountAt { range, .. }
            | Self::CountRange { range }
            | Self::DeleteRange { range, .. } => Some(*range),
            _ => None,
        }
    }

    /// Whether the command is answered as a read alone. In the log every replica would make its answer, for nobody; that of a
    /// walk even depends on more than the replicated state.
    #[must_use]
    pub fn is_only_read(&self) -> bool {
        matches!(
            self,
            Self::Scan { .. }
                | Self::ScanAt { .. }
                | Self::CountRange { .. }
                | Self::CountAt { .. }
                | Self::Walk { .. }
                | Self::WalkAt { .. }
        )
    }

    /// Calls `visit` for every key that the command touches, with what it does to the key: those of lists, of conditions
    /// and of operations, too. A key can come several times.
    ///
    /// # Errors
    /// The first error of `visit`; it is not called again then.
    pub fn each_key<E>(
        &self,
        mut visit: impl FnMut(&[u8], Access) -> Result<(), E>,
    ) -> Result<(), E> {
        self.visit_keys(&mut visit)
    }

    /// Appends the encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.write_field(out);
    }

    /// How long the encoding is.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        let mut counter = LengthCounter(0);
        self.write_field(&mut counter);
        counter.0
    }

    /// Writes the encoding to the front of `out` and returns its length.
    ///
    /// # Errors
    /// When `out` is too small; nothing is written then.
    pub fn encode_into(&self, out: &mut [u8]) -> Result<usize, BufferTooSmall> {
        fill(out, self.encoded_len(), |filler| self.write_field(filler))
    }
}

impl<'a> Command<'a> {
    /// The command that `bytes` encode, borrowing from them. Whatever comes out needs no further check of its form.
    ///
    /// # Errors
    /// When the bytes are not exactly one command that this build understands.
    #[inline]
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        match read_put(bytes) {
            Some((key, value)) => Ok(Self::Put { key, value }),
            None => Self::decode_any(bytes),
        }
    }

    fn decode_any(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let command = Self::read(&mut reader, false)?;
        reader.finish()?;
        Ok(command)
    }

    fn read(reader: &mut Reader<'a>, is_operation: bool) -> Result<Self, DecodeError> {
        let version = reader.u8()?;
        if version > STATE_VERSION {
            return Err(DecodeError::NewerVersion { version });
        }
        let byte = reader.u8()?;
        let kind = Kind::of_byte(byte).ok_or(DecodeError::UnknownKind { kind: byte })?;
        if is_operation && kind.row().place == Placement::Alone {
            return Err(DecodeError::Nested);
        }
        let command = Self::read_fields(kind, reader)?;
        if version != command.version() {
            return Err(DecodeError::WrongVersion { version });
        }
        Ok(command)
    }
}

/// The encoding: version, kind, then the fields in the order of the table. As the element of a list a command is an
/// operation.
impl<'a> Field<'a> for Command<'a> {
    fn write_field(&self, sink: &mut impl Sink) {
        sink.put_u8(self.version());
        sink.put_u8(self.kind() as u8);
        self.write_fields(sink);
    }
    #[inline]
    fn read_field(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        match split_common(reader.rest()) {
            Some((command, rest)) => {
                *reader = Reader::new(rest);
                Ok(command)
            }
            None => Self::read(reader, true),
        }
    }
    #[inline]
    fn introduced_in(&self) -> u8 {
        self.version()
    }
}

/// Each operation says itself what it does to its keys.
impl<'a> Keys<'a> for List<'a, Command<'a>> {
    fn each<E>(
        &self,
        _access: Access,
        visit: &mut impl FnMut(&[u8], Access) -> Result<(), E>,
    ) -> Result<(), E> {
        self.iter()
            .try_for_each(|operation| operation.visit_keys(visit))
    }
}

/// Key and value, if the bytes are exactly a PUT. Each PUT is read three times on its way into the store, and the
/// general reader takes seven times as many instructions.
#[inline]
fn read_put(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (key, rest) = split_bytes(split_head(Kind::Put, bytes)?)?;
    let (value, rest) = split_bytes(rest)?;
    rest.is_empty().then_some((key, value))
}

/// A PUT or a GET at the front of the operations of an EXEC, and what stands behind it. A Redis client's pipeline is such
/// a list, and each look at the list reads its operations again.
#[inline]
fn split_common(bytes: &[u8]) -> Option<(Command<'_>, &[u8])> {
    if let Some(rest) = split_head(Kind::Put, bytes) {
        let (key, rest) = split_bytes(rest)?;
        let (value, rest) = split_bytes(rest)?;
        return Some((Command::Put { key, value }, rest));
    }
    let (key, rest) = split_bytes(split_head(Kind::Get, bytes)?)?;
    Some((Command::Get { key }, rest))
}

/// The bytes after version and kind, if both are those of `kind`.
#[inline]
fn split_head(kind: Kind, bytes: &[u8]) -> Option<&[u8]> {
    let (&head, rest) = bytes.split_first_chunk()?;
    (head == [kind.row().version, kind as u8]).then_some(rest)
}

/// A byte string with its length in front, and the bytes after it.
#[inline]
fn split_bytes(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(u32::from_le_bytes(length) as usize)
}

#[cfg(test)]
mod tests;
