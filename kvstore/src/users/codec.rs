//! Users, and what commands about them carry, as fields.

use std::borrow::Cow;

use trine_keys::config::{FINGERPRINT_BYTES, GROUP_ID_BYTES};
use trine_keys::{Fingerprint, GroupId, Issuer, Role, UserName};

use super::{Rights, User, Users};
use crate::codec::{DecodeError, Field, List, Reader, Sink};

impl Users {
    /// All of them, as an answer carries them.
    pub(crate) fn to_list(&self) -> List<'_, User<'_>> {
        let mut bytes = Vec::new();
        self.iter().for_each(|user| user.write_field(&mut bytes));
        // `USERS_MAX` bounds it.
        List::from_encoded(self.len() as u32, Cow::Owned(bytes))
    }
}

impl Field<'_> for UserName {
    fn write_field(&self, sink: &mut impl Sink) {
        sink.put_bytes(self.as_bytes());
    }
    fn read_field(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let bad = |_| DecodeError::BadField { field: "user name" };
        Self::new(reader.bytes()?).map_err(bad)
    }
}

impl Field<'_> for Issuer {
    fn write_field(&self, sink: &mut impl Sink) {
        sink.put(&self.group.0);
        sink.put(&self.root.0);
    }
    fn read_field(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (mut group, mut root) = ([0; GROUP_ID_BYTES], [0; FINGERPRINT_BYTES]);
        group.copy_from_slice(reader.take(GROUP_ID_BYTES)?);
        root.copy_from_slice(reader.take(FINGERPRINT_BYTES)?);
        Ok(Self {
            group: GroupId(group),
            root: Fingerprint(root),
        })
    }
}

impl<'a> Field<'a> for Rights<'a> {
    fn write_field(&self, sink: &mut impl Sink) {
        sink.put_u8(self.role.number());
        sink.put_u8(u8::from(self.front));
        sink.put_bytes(self.prefix);
    }
    fn read_field(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let role = Role::from_number(reader.u8()?);
        Ok(Self {
            role: role.ok_or(DecodeError::BadField { field: "role" })?,
            front: reader.flag("front")?,
            prefix: reader.bytes()?,
        })
    }
}

impl<'a> Field<'a> for User<'a> {
    fn write_field(&self, sink: &mut impl Sink) {
        sink.put_u32(self.number);
        sink.put_u32(self.generation);
        self.name.write_field(sink);
        let rights = Rights {
            role: self.role,
            front: self.front,
            prefix: self.prefix,
        };
        rights.write_field(sink);
    }
    fn read_field(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let (number, generation) = (reader.u32()?, reader.u32()?);
        let name = UserName::read_field(reader)?;
        let rights = Rights::read_field(reader)?;
        Ok(Self {
            number,
            name,
            generation,
            role: rights.role,
            front: rights.front,
            prefix: rights.prefix,
        })
    }
}
