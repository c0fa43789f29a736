//! Responses to bytes and back: version, kind, then the fields in the order of the enum.

use super::{AbortCause, Page, RangeItem, Response, Versioned};
use crate::codec::{
    BufferTooSmall, DecodeError, Field, LengthCounter, List, Reader, Sink, fill, put_optional,
    read_optional,
};
use crate::error::{OtherError, ReadError};
use crate::position::Position;
use crate::users::User;
use std::borrow::Cow;

const RESPONSE_VERSION: u8 = 1;

mod kind {
    pub(crate) const VALUE: u8 = 1;
    pub(crate) const NOT_FOUND: u8 = 2;
    pub(crate) const WRITTEN: u8 = 3;
    pub(crate) const DELETED: u8 = 4;
    pub(crate) const NUMBER: u8 = 5;
    pub(crate) const LENGTH: u8 = 6;
    pub(crate) const CONFLICT: u8 = 7;
    pub(crate) const EXCHANGED: u8 = 8;
    pub(crate) const TIME_TO_LIVE: u8 = 9;
    pub(crate) const LIST: u8 = 10;
    pub(crate) const ABORTED: u8 = 11;
    pub(crate) const DONE: u8 = 12;
    pub(crate) const ERROR: u8 = 13;
    pub(crate) const COUNT: u8 = 14;
    pub(crate) const USER: u8 = 15;
    pub(crate) const USERS: u8 = 16;
    pub(crate) const DENIED: u8 = 17;
    pub(crate) const ITEMS: u8 = 18;
    pub(crate) const RANGE_DELETED: u8 = 19;
    pub(crate) const PAGE: u8 = 20;
    pub(crate) const PINNED: u8 = 21;
    pub(crate) const COUNTED: u8 = 22;
}

impl<'a> Response<'a> {
    /// Appends the encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.write(out);
    }

    /// How long the encoding is.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        let mut counter = LengthCounter(0);
        self.write(&mut counter);
        counter.0
    }

    /// Writes the encoding to the front of `out` and returns its length.
    ///
    /// # Errors
    /// When `out` is too small; nothing is written then.
    pub fn encode_into(&self, out: &mut [u8]) -> Result<usize, BufferTooSmall> {
        fill(out, self.encoded_len(), |filler| self.write(filler))
    }

    /// The response at the front of `bytes`, borrowing from them. A later release may have put more behind it, which is
    /// skipped.
    ///
    /// # Errors
    /// When the bytes do not begin with a response that this build understands.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let version = reader.u8()?;
        if version != RESPONSE_VERSION {
            return Err(DecodeError::NewerVersion { version });
        }
        Self::read(&mut reader, false)
    }

    fn write(&self, sink: &mut impl Sink) {
        sink.put_u8(RESPONSE_VERSION);
        self.write_body(sink);
    }

    // Long because each response has an arm.
    fn write_body(&self, sink: &mut impl Sink) {
        match self {
            Self::Value { value, version } => {
                sink.put_u8(kind::VALUE);
                sink.put_u64(version.as_u64());
                sink.put_bytes(value);
            }
            Self::NotFound => sink.put_u8(kind::NOT_FOUND),
            Self::Written { version } => put_kind_and_version(sink, kind::WRITTEN, *version),
            Self::Deleted { existed } => {
                sink.put_u8(kind::DELETED);
                sink.put_u8(u8::from(*existed));
            }
            Self::Number { value, version } => {
                put_kind_and_version(sink, kind::NUMBER, *version);
                sink.put(&value.to_le_bytes());
            }
            Self::Length { bytes, version } => {
                put_kind_and_version(sink, kind::LENGTH, *version);
                sink.put_u32(*bytes);
            }
            Self::Conflict { current } => {
                sink.put_u8(kind::CONFLICT);
                put_optional(sink, current.map(Position::as_u64));
            }
            Self::Exchanged { previous, written } => {
                sink.put_u8(kind::EXCHANGED);
                put_optional(sink, written.map(Position::as_u64));
                put_optional(sink, previous.map(|previous| previous.version.as_u64()));
                sink.put_bytes(previous.map_or(&[], |previous| previous.value));
            }
            Self::TimeToLive { remaining_ns } => {
                sink.put_u8(kind::TIME_TO_LIVE);
                put_optional(sink, *remaining_ns);
            }
            Self::List(responses) => {
                sink.put_u8(kind::LIST);
                responses.write(sink);
            }
            Self::Aborted { cause } => {
                sink.put_u8(kind::ABORTED);
                cause.write(sink);
            }
            Self::Count { items } => {
                sink.put_u8(kind::COUNT);
                sink.put_u64(*items);
            }
            Self::Done => sink.put_u8(kind::DONE),
            Self::User(user) => {
                sink.put_u8(kind::USER);
                user.write_field(sink);
            }
            Self::Users(users) => {
                sink.put_u8(kind::USERS);
                users.write(sink);
            }
            Self::Items { items, next } => {
                sink.put_u8(kind::ITEMS);
                put_next(sink, next.as_deref());
                items.write(sink);
            }
            Self::RangeDeleted { removed, next } => {
                sink.put_u8(kind::RANGE_DELETED);
                put_next(sink, next.as_deref());
                sink.put_u32(*removed);
            }
            Self::Counted { items, next } => {
                sink.put_u8(kind::COUNTED);
                put_next(sink, next.as_deref());
                sink.put_u64(*items);
            }
            Self::Page(page) => {
                sink.put_u8(kind::PAGE);
                page.write_field(sink);
            }
            Self::Pinned { position } => put_kind_and_version(sink, kind::PINNED, *position),
            Self::Denied { reason } => {
                sink.put_u8(kind::DENIED);
                sink.put_bytes(reason.as_bytes());
            }
            Self::Error(error) => {
                sink.put_u8(kind::ERROR);
                error.write(sink);
            }
            Self::OtherError(error) => {
                match error.index {
                    None => sink.put_u8(kind::ERROR),
                    Some(index) => {
                        sink.put_u8(kind::ABORTED);
                        put_cause(sink, CAUSE_REFUSED, index);
                    }
                }
                error.write(sink);
            }
        }
    }

    // Long because each kind of answer has an arm.
    fn read(reader: &mut Reader<'a>, nested: bool) -> Result<Self, DecodeError> {
        Ok(match reader.u8()? {
            kind::VALUE => {
                let version = read_version(reader)?;
                Self::Value {
                    value: reader.bytes()?,
                    version,
                }
            }
            kind::NOT_FOUND => Self::NotFound,
            kind::WRITTEN => Self::Written {
                version: read_version(reader)?,
            },
            kind::DELETED => Self::Deleted {
                existed: reader.flag("existed")?,
            },
            kind::NUMBER => {
                let version = read_version(reader)?;
                Self::Number {
                    value: reader.u64()?.cast_signed(),
                    version,
                }
            }
            kind::LENGTH => {
                let version = read_version(reader)?;
                Self::Length {
                    bytes: reader.u32()?,
                    version,
                }
            }
            kind::CONFLICT => Self::Conflict {
                current: read_optional(reader)?.map(Position::from_u64),
            },
            kind::EXCHANGED => Self::read_exchanged(reader)?,
            kind::TIME_TO_LIVE => Self::TimeToLive {
                remaining_ns: read_optional(reader)?,
            },
            kind::LIST if nested => return Err(DecodeError::Nested),
            kind::LIST => Self::List(List::read(reader)?),
            kind::ABORTED => Self::read_aborted(reader)?,
            kind::COUNT => Self::Count {
                items: reader.u64()?,
            },
            kind::DONE => Self::Done,
            // Neither commands about users, ranges or pins nor walks nor a denial are about an operation.
            kind::USER..=kind::COUNTED if nested => return Err(DecodeError::Nested),
            kind::ITEMS => {
                let next = read_next(reader)?;
                let items = List::read(reader)?;
                Self::Items { items, next }
            }
            kind::RANGE_DELETED => {
                let next = read_next(reader)?;
                let removed = reader.u32()?;
                Self::RangeDeleted { removed, next }
            }
            kind::COUNTED => {
                let next = read_next(reader)?;
                let items = reader.u64()?;
                Self::Counted { items, next }
            }
            kind::USER => Self::User(User::read_field(reader)?),
            kind::USERS => Self::Users(List::read(reader)?),
            kind::PAGE => Self::Page(Page::read_field(reader)?),
            kind::PINNED => Self::Pinned {
                position: read_version(reader)?,
            },
            kind::DENIED => {
                let reason = std::str::from_utf8(reader.bytes()?);
                Self::Denied {
                    reason: reason.map_err(|_| DecodeError::BadField { field: "reason" })?,
                }
            }
            kind::ERROR => match ReadError::read(reader)? {
                ReadError::Known(error) => Self::Error(error),
                ReadError::Other(error) => Self::OtherError(error),
            },
            kind => return Err(DecodeError::UnknownKind { kind }),
        })
    }

    fn read_aborted(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let (cause, index) = (reader.u8()?, reader.u32()?);
        let cause = match cause {
            CAUSE_CONDITION => AbortCause::Condition { index },
            CAUSE_REFUSED => match ReadError::read(reader)? {
                ReadError::Known(error) => AbortCause::Refused { index, error },
                ReadError::Other(error) => {
                    let index = Some(index);
                    return Ok(Self::OtherError(OtherError { index, ..error }));
                }
            },
            CAUSE_CONFLICT => AbortCause::Conflict { index },
            _ => return Err(DecodeError::BadField { field: "cause" }),
        };
        Ok(Self::Aborted { cause })
    }

    fn read_exchanged(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let written = read_optional(reader)?.map(Position::from_u64);
        let version = read_optional(reader)?.map(Position::from_u64);
        let value = reader.bytes()?;
        if version.is_none() && !value.is_empty() {
            return Err(DecodeError::BadField { field: "previous" });
        }
        Ok(Self::Exchanged {
            previous: version.map(|version| Versioned { value, version }),
            written,
        })
    }
}

impl<'a> Field<'a> for Response<'a> {
    fn write_field(&self, sink: &mut impl Sink) {
        self.write_body(sink);
    }
    fn read_field(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Self::read(reader, true)
    }
}

impl<'a> Field<'a> for RangeItem<'a> {
    fn write_field(&self, sink: &mut impl Sink) {
        sink.put_bytes(self.key);
        sink.put_u8(u8::from(self.item.is_some()));
        if let Some(Versioned { value, version }) = self.item {
            sink.put_u64(version.as_u64());
            sink.put_bytes(value);
        }
    }
    fn read_field(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let key = reader.bytes()?;
        let item = match reader.flag("presence")? {
            false => None,
            true => {
                let version = read_version(reader)?;
                let value = reader.bytes()?;
                Some(Versioned { value, version })
            }
        };
        Ok(Self { key, item })
    }
}

const CAUSE_CONDITION: u8 = 0;
const CAUSE_REFUSED: u8 = 1;
const CAUSE_CONFLICT: u8 = 2;

impl AbortCause {
    fn write(self, sink: &mut impl Sink) {
        match self {
            Self::Condition { index } => put_cause(sink, CAUSE_CONDITION, index),
            Self::Refused { index, error } => {
                put_cause(sink, CAUSE_REFUSED, index);
                error.write(sink);
            }
            Self::Conflict { index } => put_cause(sink, CAUSE_CONFLICT, index),
        }
    }
}

fn put_cause(sink: &mut impl Sink, cause: u8, index: u32) {
    sink.put_u8(cause);
    sink.put_u32(index);
}

fn put_kind_and_version(sink: &mut impl Sink, kind: u8, version: Position) {
    sink.put_u8(kind);
    sink.put_u64(version.as_u64());
}

fn read_version(reader: &mut Reader<'_>) -> Result<Position, DecodeError> {
    Ok(Position::from_u64(reader.u64()?))
}

fn put_next(sink: &mut impl Sink, next: Option<&[u8]>) {
    sink.put_u8(u8::from(next.is_some()));
    if let Some(next) = next {
        sink.put_bytes(next);
    }
}

fn read_next<'a>(reader: &mut Reader<'a>) -> Result<Option<Cow<'a, [u8]>>, DecodeError> {
    Ok(match reader.flag("presence")? {
        false => None,
        true => Some(Cow::Borrowed(reader.bytes()?)),
    })
}
