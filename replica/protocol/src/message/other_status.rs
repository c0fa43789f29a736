//! What a client does with a status that is younger than its release, and what a replica says of a message that is.

use std::fmt;

use super::MESSAGE_VERSION;
use super::codec::{DecodeError, Reader, Writer};
use crate::release::{RELEASE_SIZE, Release};

/// Bytes of [`OtherVersion`].
pub(super) const OTHER_VERSION_SIZE: usize = RELEASE_SIZE + 4;

/// What a status says of the attempt that it answers. The ranges are fixed by the first release.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StatusClass {
    /// 0x40 to 0x7f: put into no log. Another replica, or this one later, may do it.
    NotProposed,
    /// 0x80 to 0xbf: put into no log, and repeating it as it is would not help.
    Refused,
    /// 0xc0 to 0xff: in a log, or not. The same sequence finds out.
    OutcomeUnknown,
}

/// A status of one of the three classes that this release does not know by name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OtherStatus(u8);

impl OtherStatus {
    /// The status with this byte. `None` below the classes.
    #[must_use]
    pub const fn of_byte(byte: u8) -> Option<Self> {
        match byte {
            ..0x40 => None,
            _ => Some(Self(byte)),
        }
    }

    /// The byte on the wire.
    #[must_use]
    pub const fn byte(self) -> u8 {
        self.0
    }

    /// What it says of the attempt.
    #[must_use]
    pub const fn class(self) -> StatusClass {
        match self.0 {
            ..0x80 => StatusClass::NotProposed,
            0x80..0xc0 => StatusClass::Refused,
            0xc0.. => StatusClass::OutcomeUnknown,
        }
    }
}

/// A replica's word that a message has a kind or a version that it does not know. Nothing in it was read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OtherVersion {
    /// The replica's release.
    pub release: Release,
    /// The newest message version that it reads.
    pub understood: u8,
    /// The message's version, its first byte.
    pub met: u8,
    /// The message's kind.
    pub kind: u8,
}

impl OtherVersion {
    /// What this release says of a message.
    #[must_use]
    pub fn of_message(kind: u8, message: &[u8]) -> Self {
        Self {
            release: Release::THIS,
            understood: MESSAGE_VERSION,
            met: message.first().copied().unwrap_or_default(),
            kind,
        }
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let release = Release::from_bytes(reader.array()?);
        let (understood, met, kind) = (reader.u8()?, reader.u8()?, reader.u8()?);
        reader.skip::<1>()?;
        Ok(Self {
            release,
            understood,
            met,
            kind,
        })
    }

    pub(super) fn encode(&self, out: &mut Writer<'_>) {
        out.bytes(&self.release.to_bytes());
        out.bytes(&[self.understood, self.met, self.kind, 0]);
    }
}

impl fmt::Display for OtherVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            release,
            understood,
            met,
            kind,
        } = self;
        write!(f, "a replica of release {release} does not know ")?;
        match met == understood {
            true => write!(f, "messages of kind {kind}")?,
            false => write!(f, "version {met} of the messages, only {understood}")?,
        }
        write!(
            f,
            "; this is release {}: upgrade the older of the two",
            Release::THIS
        )
    }
}
