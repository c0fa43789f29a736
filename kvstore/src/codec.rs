//! The primitives of the command, response and snapshot encodings.
//!
//! All integers are little-endian and of fixed size; byte strings carry a 32-bit length. An
//! encoding is canonical: one value has one encoding, and a decoder refuses every other.

use crate::config::LIST_ITEMS_MAX;
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

/// Where an encoder writes to.
pub(crate) trait Sink {
    fn put(&mut self, bytes: &[u8]);

    fn put_u8(&mut self, value: u8) {
        self.put(&[value]);
    }
    fn put_u32(&mut self, value: u32) {
        self.put(&value.to_le_bytes());
    }
    fn put_u64(&mut self, value: u64) {
        self.put(&value.to_le_bytes());
    }
    fn put_bytes(&mut self, bytes: &[u8]) {
        self.put_u32(length_u32(bytes.len()));
        self.put(bytes);
    }
}

impl Sink for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Counts what an encoding would take.
pub(crate) struct LengthCounter(pub(crate) usize);

impl Sink for LengthCounter {
    fn put(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }
}

/// Fills a buffer that was checked to be large enough.
pub(crate) struct Filler<'b> {
    pub(crate) buffer: &'b mut [u8],
    pub(crate) filled: usize,
}

impl Sink for Filler<'_> {
    fn put(&mut self, bytes: &[u8]) {
        let end = self.filled + bytes.len();
        self.buffer[self.filled..end].copy_from_slice(bytes);
        self.filled = end;
    }
}

/// Takes an encoding apart; each step consumes what it returns.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(count)
            .ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (taken, rest) = self
            .rest
            .split_first_chunk()
            .ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(self.array::<1>()?[0])
    }
    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array()?))
    }
    pub(crate) fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.array()?))
    }
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = self.u32()?;
        self.take(length as usize)
    }
    pub(crate) fn flag(&mut self, field: &'static str) -> Result<bool, DecodeError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::BadField { field }),
        }
    }
    pub(crate) fn finish(self) -> Result<(), DecodeError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(DecodeError::TrailingBytes)
        }
    }
}

/// The 32-bit form of a length that the limits have bounded.
pub(crate) fn length_u32(length: usize) -> u32 {
    u32::try_from(length).expect("lengths are bounded far below 4 GiB before they are encoded")
}

/// Encodes with `write` into `buffer` if it fits.
pub(crate) fn fill(
    buffer: &mut [u8],
    needed: usize,
    write: impl FnOnce(&mut Filler<'_>),
) -> Result<usize, BufferTooSmall> {
    if buffer.len() < needed {
        return Err(BufferTooSmall { needed });
    }
    let mut filler = Filler { buffer, filled: 0 };
    write(&mut filler);
    debug_assert_eq!(filler.filled, needed);
    Ok(needed)
}

/// Writes whether there is a value, and the value or 0.
pub(crate) fn put_optional(sink: &mut impl Sink, value: Option<u64>) {
    sink.put_u8(u8::from(value.is_some()));
    sink.put_u64(value.unwrap_or(0));
}

/// Reads what [`put_optional`] writes.
pub(crate) fn read_optional(reader: &mut Reader<'_>) -> Result<Option<u64>, DecodeError> {
    match (reader.flag("presence")?, reader.u64()?) {
        (true, value) => Ok(Some(value)),
        (false, 0) => Ok(None),
        (false, _) => Err(DecodeError::BadField { field: "presence" }),
    }
}

/// A value with an encoding of its own: a field of a command, an element of a list.
pub(crate) trait Field<'a>: Clone {
    fn write_field(&self, sink: &mut impl Sink);
    fn read_field(reader: &mut Reader<'a>) -> Result<Self, DecodeError>;

    /// The state-machine version that introduced it, if it is a command.
    #[inline]
    fn introduced_in(&self) -> u8 {
        0
    }
}

impl Field<'_> for u8 {
    fn write_field(&self, sink: &mut impl Sink) {
        sink.put_u8(*self);
    }
    fn read_field(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.u8()
    }
}

impl Field<'_> for u32 {
    fn write_field(&self, sink: &mut impl Sink) {
        sink.put_u32(*self);
    }
    fn read_field(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.u32()
    }
}

impl Field<'_> for bool {
    fn write_field(&self, sink: &mut impl Sink) {
        sink.put_u8(u8::from(*self));
    }
    fn read_field(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.flag("flag")
    }
}

impl Field<'_> for u64 {
    fn write_field(&self, sink: &mut impl Sink) {
        sink.put_u64(*self);
    }
    fn read_field(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.u64()
    }
}

impl Field<'_> for i64 {
    fn write_field(&self, sink: &mut impl Sink) {
        sink.put_u64(self.cast_unsigned());
    }
    fn read_field(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(reader.u64()?.cast_signed())
    }
}

impl<'a, T: Field<'a>> Field<'a> for List<'a, T> {
    fn write_field(&self, sink: &mut impl Sink) {
        self.write(sink);
    }
    fn read_field(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Self::read(reader)
    }
}

impl<'a> Field<'a> for &'a [u8] {
    fn write_field(&self, sink: &mut impl Sink) {
        sink.put_bytes(self);
    }
    fn read_field(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        reader.bytes()
    }
}

/// A list inside a command or a response. It is either a slice that a caller built, or decoded
/// bytes (checked element by element) that are read in place.
#[derive(Clone)]
pub struct List<'a, T>(Form<'a, T>);

#[derive(Clone)]
enum Form<'a, T> {
    Slice(&'a [T]),
    Encoded {
        count: u32,
        bytes: Cow<'a, [u8]>,
        /// The newest version among the elements.
        version: u8,
        elements: PhantomData<T>,
    },
}

impl<T> Default for List<'_, T> {
    fn default() -> Self {
        Self(Form::Slice(&[]))
    }
}

impl<'a, T> From<&'a [T]> for List<'a, T> {
    fn from(elements: &'a [T]) -> Self {
        Self(Form::Slice(elements))
    }
}

impl<'a, T, const N: usize> From<&'a [T; N]> for List<'a, T> {
    fn from(elements: &'a [T; N]) -> Self {
        Self(Form::Slice(elements))
    }
}

impl<T> List<'_, T> {
    /// How many elements there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Form::Slice(elements) => elements.len(),
            Form::Encoded { count, .. } => *count as usize,
        }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[allow(
    private_bounds,
    reason = "only this crate's element types can be in a list"
)]
impl<'a, T: Field<'a>> List<'a, T> {
    /// The elements in order.
    #[must_use]
    pub fn iter(&'a self) -> ListIter<'a, T> {
        match &self.0 {
            Form::Slice(elements) => ListIter(IterForm::Slice(elements.iter())),
            Form::Encoded { count, bytes, .. } => ListIter(IterForm::Encoded {
                left: *count,
                reader: Reader::new(bytes),
            }),
        }
    }

    /// Wraps elements that this crate has just encoded, and that are no commands.
    pub(crate) fn from_encoded(count: u32, bytes: Cow<'a, [u8]>) -> Self {
        Self::from_checked(count, bytes, 0)
    }

    fn from_checked(count: u32, bytes: Cow<'a, [u8]>, version: u8) -> Self {
        Self(Form::Encoded {
            count,
            bytes,
            version,
            elements: PhantomData,
        })
    }

    /// The newest state-machine version that introduced one of the elements; 0 if there is none. A decoded list has it
    /// since its elements were checked.
    pub(crate) fn version(&self) -> u8 {
        match &self.0 {
            Form::Slice(elements) => {
                let versions = elements.iter().map(Field::introduced_in);
                versions.fold(0, u8::max)
            }
            Form::Encoded { version, .. } => *version,
        }
    }

    pub(crate) fn write(&self, sink: &mut impl Sink) {
        sink.put_u32(length_u32(self.len()));
        match &self.0 {
            Form::Slice(elements) => elements
                .iter()
                .for_each(|element| element.write_field(sink)),
            Form::Encoded { bytes, .. } => sink.put(bytes),
        }
    }

    /// Checks every element, so that iteration later cannot fail.
    pub(crate) fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let count = reader.u32()?;
        if count > LIST_ITEMS_MAX {
            return Err(DecodeError::ListTooLong { count });
        }
        let start = reader.rest();
        let mut version = 0;
        for _ in 0..count {
            version = version.max(T::read_field(reader)?.introduced_in());
        }
        let bytes = &start[..start.len() - reader.rest().len()];
        Ok(Self::from_checked(count, Cow::Borrowed(bytes), version))
    }
}

impl<'a, T: Field<'a> + PartialEq> PartialEq for List<'a, T> {
    fn eq(&self, other: &Self) -> bool {
        // The borrow is shorter than 'a; comparing the encodings needs no lifetime at all.
        let encode = |list: &Self| {
            let mut bytes = Vec::new();
            list.write(&mut bytes);
            bytes
        };
        encode(self) == encode(other)
    }
}

impl<'a, T: Field<'a> + PartialEq> Eq for List<'a, T> {}

impl<T> fmt::Debug for List<'_, T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "List of {}", self.len())
    }
}

/// The elements of a [`List`] in order.
pub struct ListIter<'a, T>(IterForm<'a, T>);

enum IterForm<'a, T> {
    Slice(std::slice::Iter<'a, T>),
    Encoded { left: u32, reader: Reader<'a> },
}

#[allow(
    private_bounds,
    reason = "only this crate's element types can be in a list"
)]
impl<'a, T: Field<'a>> Iterator for ListIter<'a, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        match &mut self.0 {
            IterForm::Slice(elements) => elements.next().cloned(),
            IterForm::Encoded { left, reader } => {
                *left = left.checked_sub(1)?;
                Some(
                    T::read_field(reader)
                        .expect("every element was checked when the list was decoded"),
                )
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = match &self.0 {
            IterForm::Slice(elements) => elements.len(),
            IterForm::Encoded { left, .. } => *left as usize,
        };
        (left, Some(left))
    }
}

#[allow(
    private_bounds,
    reason = "only this crate's element types can be in a list"
)]
impl<'a, T: Field<'a>> ExactSizeIterator for ListIter<'a, T> {}

impl<T> fmt::Debug for ListIter<'_, T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ListIter")
    }
}

/// Why bytes are not a command, a response or a part of a snapshot.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum DecodeError {
    /// The bytes end before the encoding does.
    Truncated,
    /// Bytes follow the encoding.
    TrailingBytes,
    /// A state-machine version that this build does not know.
    NewerVersion {
        /// The version that the bytes name.
        version: u8,
    },
    /// The version byte is not the one that the kind was introduced with.
    WrongVersion {
        /// The version that the bytes name.
        version: u8,
    },
    /// No command or response of this kind.
    UnknownKind {
        /// The kind byte.
        kind: u8,
    },
    /// A field has a value that no encoder writes.
    BadField {
        /// The field.
        field: &'static str,
    },
    /// A list has more elements than a list may have.
    ListTooLong {
        /// The number that the bytes name.
        count: u32,
    },
    /// A list inside a list.
    Nested,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => write!(formatter, "the bytes end too early"),
            Self::TrailingBytes => write!(formatter, "bytes follow the end of the encoding"),
            Self::NewerVersion { version } => {
                write!(
                    formatter,
                    "state-machine version {version} is newer than this build"
                )
            }
            Self::WrongVersion { version } => {
                write!(
                    formatter,
                    "version {version} is not the version of this kind"
                )
            }
            Self::UnknownKind { kind } => write!(formatter, "unknown kind {kind}"),
            Self::BadField { field } => {
                write!(formatter, "the field `{field}` has an impossible value")
            }
            Self::ListTooLong { count } => {
                write!(
                    formatter,
                    "a list of {count} elements is longer than {LIST_ITEMS_MAX}"
                )
            }
            Self::Nested => write!(formatter, "a list inside a list"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// The buffer given to an encoder does not hold the encoding.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct BufferTooSmall {
    /// Bytes that the encoding takes.
    pub needed: usize,
}

impl fmt::Display for BufferTooSmall {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "the encoding takes {} bytes", self.needed)
    }
}

impl std::error::Error for BufferTooSmall {}
