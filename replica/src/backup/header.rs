//! The header of a backup file: its group and position.

use trine_kvstore::checksum::crc32c;
use trine_protocol::message::{BackupHead, ClusterId, Incarnation};

use super::damage::{FORMAT, WhatIsWrong};
use crate::state_machine::codec::{Cursor, StateError, put_u32, put_u64};

const MAGIC: &[u8; 8] = b"TRINEBAK";
/// Bytes of a header.
pub(super) const SIZE: usize = 100;
/// The state has users.
const HAS_USERS: u32 = 1;

/// Whether a header can begin with these bytes.
pub(super) fn may_begin(bytes: &[u8]) -> bool {
    let known = bytes.len().min(MAGIC.len());
    bytes[..known] == MAGIC[..known]
}

/// The subject of a backup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The state's head, as the replica has named it.
    pub head: BackupHead,
    /// When the backup was begun, by the clock of the machine that asked for it: milliseconds since 1970.
    pub made_at_ms: u64,
    /// The replica that had the image.
    pub replica: Incarnation,
}

impl Header {
    /// The file's first bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let head = &self.head;
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&FORMAT.to_le_bytes());
        out.extend_from_slice(&(SIZE as u16).to_le_bytes());
        put_u32(&mut out, if head.users > 0 { HAS_USERS } else { 0 });
        put_u64(&mut out, head.cluster.0);
        put_u64(&mut out, head.index);
        put_u64(&mut out, head.term);
        put_u64(&mut out, head.group_time_ns);
        put_u64(&mut out, self.made_at_ms);
        put_u64(&mut out, head.items);
        put_u64(&mut out, head.logical_bytes);
        put_u32(&mut out, head.users);
        out.extend_from_slice(&[head.state_version, 0, 0, 0]);
        put_u64(&mut out, head.image);
        put_u64(&mut out, self.replica.0);
        let crc = crc32c([&out]);
        put_u32(&mut out, crc);
        assert_eq!(out.len(), SIZE, "the length in it is its own");
        out
    }

    /// Reads the file's first bytes, exactly as many as a header has.
    pub(super) fn decode(bytes: &[u8; SIZE]) -> Result<Self, WhatIsWrong> {
        if !bytes.starts_with(MAGIC) {
            return Err(WhatIsWrong::NoBackup);
        }
        let format = u16::from_le_bytes([bytes[8], bytes[9]]);
        if format > FORMAT {
            return Err(WhatIsWrong::Newer { format });
        }
        let (covered, crc) = bytes.split_at(SIZE - 4);
        if crc32c([covered]).to_le_bytes() != crc {
            return Err(WhatIsWrong::Header);
        }
        Self::read(&covered[10..]).map_err(|_| WhatIsWrong::Header)
    }

    fn read(bytes: &[u8]) -> Result<Self, StateError> {
        let mut cursor = Cursor::new(bytes, "the header");
        cursor.take(6)?;
        let (cluster, index, term) = (ClusterId(cursor.u64()?), cursor.u64()?, cursor.u64()?);
        let (group_time_ns, made_at_ms) = (cursor.u64()?, cursor.u64()?);
        let (items, logical_bytes, users) = (cursor.u64()?, cursor.u64()?, cursor.u32()?);
        let state_version = cursor.u8()?;
        cursor.take(3)?;
        let (image, replica) = (cursor.u64()?, Incarnation(cursor.u64()?));
        cursor.finish()?;
        let head = BackupHead {
            image,
            cluster,
            index,
            term,
            group_time_ns,
            items,
            logical_bytes,
            state_version,
            users,
        };
        Ok(Self {
            head,
            made_at_ms,
            replica,
        })
    }
}
