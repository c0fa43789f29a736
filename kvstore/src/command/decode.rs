//! Bytes to commands. Whatever comes out needs no further check of its form.

use super::encode::kind;
use super::{
    Command, Condition, ExecuteMode, ExpireCondition, Pair, SetCondition, SetExpiry, SetOptions,
};
use crate::codec::{DecodeError, Element, List, Reader, Sink};
use crate::config::{STATE_VERSION, STATE_VERSION_FIRST};
use crate::limits::Limits;
use crate::position::Position;

impl<'a> Command<'a> {
    /// The command that `bytes` encode, borrowing from them.
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

    fn read(reader: &mut Reader<'a>, nested: bool) -> Result<Self, DecodeError> {
        let version = reader.u8()?;
        if version > STATE_VERSION {
            return Err(DecodeError::NewerVersion { version });
        }
        let kind = reader.u8()?;
        let command = match kind {
            kind::MULTI_PUT | kind::COUNT => Self::read_without_key(kind, reader)?,
            kind::MULTI_GET | kind::EXECUTE | kind::SET_LIMITS | kind::RAISE_VERSION => {
                if nested {
                    return Err(DecodeError::Nested);
                }
                Self::read_without_key(kind, reader)?
            }
            _ => Self::read_with_key(kind, reader)?,
        };
        if version != command.version() {
            return Err(DecodeError::WrongVersion { version });
        }
        Ok(command)
    }

    fn read_with_key(kind: u8, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        if kind == 0 || kind > kind::EXPIRE_IF {
            return Err(DecodeError::UnknownKind { kind });
        }
        let key = reader.bytes()?;
        Ok(match kind {
            kind::GET => Self::Get { key },
            kind::PUT => Self::Put {
                key,
                value: reader.bytes()?,
            },
            kind::DELETE => Self::Delete { key },
            kind::SET => {
                let options = SetOptions::read(reader)?;
                Self::Set {
                    key,
                    value: reader.bytes()?,
                    options,
                }
            }
            kind::GET_DELETE => Self::GetDelete { key },
            kind::COMPARE_AND_SWAP => {
                let expected = Position::from_u64(reader.u64()?);
                Self::CompareAndSwap {
                    key,
                    expected,
                    value: reader.bytes()?,
                }
            }
            kind::INCREMENT => Self::Increment {
                key,
                delta: reader.u64()?.cast_signed(),
            },
            kind::APPEND => Self::Append {
                key,
                value: reader.bytes()?,
            },
            kind::EXPIRE => Self::Expire {
                key,
                after_ns: reader.u64()?,
            },
            kind::EXPIRE_IF => Self::ExpireIf {
                key,
                after_ns: reader.u64()?,
                condition: ExpireCondition::read(reader)?,
            },
            kind::PERSIST => Self::Persist { key },
            kind::TIME_TO_LIVE => Self::TimeToLive { key },
            kind => return Err(DecodeError::UnknownKind { kind }),
        })
    }

    fn read_without_key(kind: u8, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(match kind {
            kind::MULTI_GET => Self::MultiGet {
                keys: List::read(reader)?,
            },
            kind::MULTI_PUT => Self::MultiPut {
                pairs: List::read(reader)?,
            },
            kind::COUNT => Self::Count,
            kind::EXECUTE => Self::Execute {
                mode: if reader.flag("mode")? {
                    ExecuteMode::Independent
                } else {
                    ExecuteMode::AllOrNothing
                },
                conditions: List::read(reader)?,
                operations: List::read(reader)?,
            },
            kind::SET_LIMITS => Self::SetLimits {
                limits: Limits::read(reader)?,
            },
            kind::RAISE_VERSION => Self::RaiseVersion {
                version: reader.u8()?,
            },
            kind => return Err(DecodeError::UnknownKind { kind }),
        })
    }
}

/// Key and value, if the bytes are exactly a PUT. Each PUT is read three times on its way into the store, and the
/// general reader takes seven times as many instructions.
#[inline]
fn read_put(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&[version, kind::PUT, a, b, c, d], rest) = bytes.split_first_chunk()? else {
        return None;
    };
    if version != STATE_VERSION_FIRST {
        return None;
    }
    let (key, rest) = rest.split_at_checked(u32::from_le_bytes([a, b, c, d]) as usize)?;
    let (&length, value) = rest.split_first_chunk()?;
    (value.len() == u32::from_le_bytes(length) as usize).then_some((key, value))
}

impl SetOptions {
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let condition = match reader.u8()? {
            0 => SetCondition::Always,
            1 => SetCondition::Absent,
            2 => SetCondition::Present,
            _ => return Err(DecodeError::BadField { field: "condition" }),
        };
        let expiry = match (reader.u8()?, reader.u64()?) {
            (0, 0) => SetExpiry::Never,
            (1, 0) => SetExpiry::Keep,
            (2, after_ns) => SetExpiry::After(after_ns),
            _ => return Err(DecodeError::BadField { field: "expiry" }),
        };
        Ok(Self {
            condition,
            expiry,
            return_previous: reader.flag("return_previous")?,
        })
    }
}

impl ExpireCondition {
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match reader.u8()? {
            0 => Self::Absent,
            1 => Self::Present,
            2 => Self::Later,
            3 => Self::Earlier,
            4 => Self::PresentAndEarlier,
            _ => return Err(DecodeError::BadField { field: "condition" }),
        })
    }
}

impl<'a> Element<'a> for Command<'a> {
    fn write_element(&self, sink: &mut impl Sink) {
        self.write(sink);
    }
    fn read_element(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Self::read(reader, true)
    }
}

impl<'a> Element<'a> for Pair<'a> {
    fn write_element(&self, sink: &mut impl Sink) {
        self.write(sink);
    }
    fn read_element(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            key: reader.bytes()?,
            value: reader.bytes()?,
        })
    }
}

impl<'a> Element<'a> for Condition<'a> {
    fn write_element(&self, sink: &mut impl Sink) {
        self.write(sink);
    }
    fn read_element(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let kind = reader.u8()?;
        let key = reader.bytes()?;
        Ok(match kind {
            0 => Self::Absent { key },
            1 => Self::Present { key },
            2 => Self::VersionIs {
                key,
                version: Position::from_u64(reader.u64()?),
            },
            _ => return Err(DecodeError::BadField { field: "condition" }),
        })
    }
}
