//! The types of the commands' fields: what they mean and how they are encoded.

use super::row::Access;
use crate::codec::{DecodeError, Field, List, Reader, Sink};
use crate::limits::Limits;
use crate::position::Position;

/// A key with its value.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Pair<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
}

/// What the keys begin with that a command is about. The right to it is the right to all of them.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Prefix<'a>(
    /// The first bytes of the keys; of all keys if there are none.
    pub &'a [u8],
);

/// What a walk tells of each item.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum WalkContent {
    /// The key.
    Keys,
    /// The key, the value, the version and the time to live.
    Items,
}

/// The effects of SET beside writing.
#[derive(Copy, Clone, Eq, PartialEq, Default, Debug)]
pub struct SetOptions {
    /// When the value is written.
    pub condition: SetCondition,
    /// The effect on the expiry.
    pub expiry: SetExpiry,
    /// Whether the answer carries the value that was there.
    pub return_previous: bool,
}

/// When SET writes.
#[derive(Copy, Clone, Eq, PartialEq, Default, Debug)]
pub enum SetCondition {
    /// In any case.
    #[default]
    Always,
    /// Only if the key is absent (Redis: NX).
    Absent,
    /// Only if the key is present (Redis: XX).
    Present,
}

/// The effect of SET on the expiry.
#[derive(Copy, Clone, Eq, PartialEq, Default, Debug)]
pub enum SetExpiry {
    /// The key does not expire.
    #[default]
    Never,
    /// An expiry that the key had stays (Redis: KEEPTTL).
    Keep,
    /// The key expires after this many nanoseconds of group time.
    After(u64),
}

/// When EXPIRE changes the expiry of a key that is there.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum ExpireCondition {
    /// Only if the key has no expiry (Redis: NX).
    Absent,
    /// Only if the key has an expiry (Redis: XX).
    Present,
    /// Only if the key then expires later; without an expiry it stays forever (Redis: GT).
    Later,
    /// Only if the key then expires earlier; without an expiry it does (Redis: LT).
    Earlier,
    /// Only if the key has an expiry and then expires earlier (Redis: XX LT).
    PresentAndEarlier,
}

impl ExpireCondition {
    /// Whether `expiry_ns` may replace `current_ns`, which is 0 for none. Moments count as different if they are further
    /// apart than `margin_ns`.
    pub(crate) fn holds(self, current_ns: u64, expiry_ns: u64, margin_ns: u64) -> bool {
        let has_one = current_ns != 0;
        let is_before = |first: u64, second: u64| first.saturating_add(margin_ns) < second;
        let earlier = is_before(expiry_ns, current_ns);
        match self {
            Self::Absent => !has_one,
            Self::Present => has_one,
            Self::Later => has_one && is_before(current_ns, expiry_ns),
            Self::Earlier => !has_one || earlier,
            Self::PresentAndEarlier => has_one && earlier,
        }
    }
}

/// A condition of EXEC.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Condition<'a> {
    /// The key is absent.
    Absent {
        /// The key.
        key: &'a [u8],
    },
    /// The key is present.
    Present {
        /// The key.
        key: &'a [u8],
    },
    /// The key is present with this version.
    VersionIs {
        /// The key.
        key: &'a [u8],
        /// The version.
        version: Position,
    },
}

impl<'a> Condition<'a> {
    /// The key that the condition checks.
    #[must_use]
    pub fn key(&self) -> &'a [u8] {
        match self {
            Self::Absent { key } | Self::Present { key } | Self::VersionIs { key, .. } => key,
        }
    }
}

/// The effect of a failing operation on the others of its EXEC.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum ExecuteMode {
    /// It undoes them all.
    AllOrNothing,
    /// It leaves them alone (Redis's way).
    Independent,
}

/// A field that holds keys.
pub(super) trait Keys<'a> {
    /// The key, if the field is one and no list.
    #[inline]
    fn one(&self) -> Option<&'a [u8]> {
        None
    }

    /// Calls `visit` for each key with what the command does to it, until that fails.
    fn each<E>(
        &self,
        access: Access,
        visit: &mut impl FnMut(&[u8], Access) -> Result<(), E>,
    ) -> Result<(), E>;
}

impl<'a> Keys<'a> for &'a [u8] {
    #[inline]
    fn one(&self) -> Option<&'a [u8]> {
        Some(self)
    }
    fn each<E>(
        &self,
        access: Access,
        visit: &mut impl FnMut(&[u8], Access) -> Result<(), E>,
    ) -> Result<(), E> {
        visit(self, access)
    }
}

impl<'a> Keys<'a> for Prefix<'a> {
    fn each<E>(
        &self,
        access: Access,
        visit: &mut impl FnMut(&[u8], Access) -> Result<(), E>,
    ) -> Result<(), E> {
        visit(self.0, access)
    }
}

impl<'a> Keys<'a> for List<'a, &'a [u8]> {
    fn each<E>(
        &self,
        access: Access,
        visit: &mut impl FnMut(&[u8], Access) -> Result<(), E>,
    ) -> Result<(), E> {
        self.iter().try_for_each(|key| visit(key, access))
    }
}

impl<'a> Keys<'a> for List<'a, Pair<'a>> {
    fn each<E>(
        &self,
        access: Access,
        visit: &mut impl FnMut(&[u8], Access) -> Result<(), E>,
    ) -> Result<(), E> {
        self.iter().try_for_each(|pair| visit(pair.key, access))
    }
}

/// A condition reads its key, whatever its EXEC does.
impl<'a> Keys<'a> for List<'a, Condition<'a>> {
    fn each<E>(
        &self,
        _access: Access,
        visit: &mut impl FnMut(&[u8], Access) -> Result<(), E>,
    ) -> Result<(), E> {
        self.iter()
            .try_for_each(|condition| visit(condition.key(), Access::Read))
    }
}

impl Field<'_> for Position {
    fn write_field(&self, sink: &mut impl Sink) {
        sink.put_u64(self.as_u64());
    }
    fn read_field(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self::from_u64(reader.u64()?))
    }
}

impl Field<'_> for Limits {
    fn write_field(&self, sink: &mut impl Sink) {
        self.write(sink);
    }
    fn read_field(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Self::read(reader)
    }
}

impl Field<'_> for SetOptions {
    fn write_field(&self, sink: &mut impl Sink) {
        sink.put_u8(match self.condition {
            SetCondition::Always => 0,
            SetCondition::Absent => 1,
            SetCondition::Present => 2,
        });
        let (kind, after_ns) = match self.expiry {
            SetExpiry::Never => (0, 0),
            SetExpiry::Keep => (1, 0),
            SetExpiry::After(after_ns) => (2, after_ns),
        };
        sink.put_u8(kind);
        sink.put_u64(after_ns);
        sink.put_u8(u8::from(self.return_previous));
    }
    fn read_field(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
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

impl Field<'_> for ExpireCondition {
    fn write_field(&self, sink: &mut impl Sink) {
        sink.put_u8(match self {
            Self::Absent => 0,
            Self::Present => 1,
            Self::Later => 2,
            Self::Earlier => 3,
            Self::PresentAndEarlier => 4,
        });
    }
    fn read_field(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
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

impl<'a> Field<'a> for Prefix<'a> {
    fn write_field(&self, sink: &mut impl Sink) {
        sink.put_bytes(self.0);
    }
    fn read_field(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self(reader.bytes()?))
    }
}

impl Field<'_> for WalkContent {
    fn write_field(&self, sink: &mut impl Sink) {
        sink.put_u8(u8::from(*self == Self::Items));
    }
    fn read_field(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match reader.flag("content")? {
            true => Self::Items,
            false => Self::Keys,
        })
    }
}

impl Field<'_> for ExecuteMode {
    fn write_field(&self, sink: &mut impl Sink) {
        sink.put_u8(u8::from(*self == Self::Independent));
    }
    fn read_field(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match reader.flag("mode")? {
            true => Self::Independent,
            false => Self::AllOrNothing,
        })
    }
}

impl<'a> Field<'a> for Pair<'a> {
    fn write_field(&self, sink: &mut impl Sink) {
        sink.put_bytes(self.key);
        sink.put_bytes(self.value);
    }
    fn read_field(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            key: reader.bytes()?,
            value: reader.bytes()?,
        })
    }
}

impl<'a> Field<'a> for Condition<'a> {
    fn write_field(&self, sink: &mut impl Sink) {
        let (kind, version) = match self {
            Self::Absent { .. } => (0, None),
            Self::Present { .. } => (1, None),
            Self::VersionIs { version, .. } => (2, Some(version)),
        };
        sink.put_u8(kind);
        sink.put_bytes(self.key());
        if let Some(version) = version {
            sink.put_u64(version.as_u64());
        }
    }
    fn read_field(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
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
