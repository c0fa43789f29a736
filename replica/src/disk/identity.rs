//! The identity file: who this replica is, and of which group. It is the last file that a new directory gets.
//!
//! ```text
//! | "trineid\0" | format (u16) | protocol version (u16) | node id (u32) | incarnation | cluster |
//! | beginning (u32 length) | CRC32C |
//! ```
//! The beginning is the group's, for a replica that was there: members and settings.

use trine_kvstore::checksum::crc32c;
use trine_protocol::message::{ClusterId, Incarnation, Members, NodeId};

use super::error::{LostMemory, OpenError};
use super::segment::FORMAT;
use crate::bootstrap::Origin;
use crate::membership::MemberTable;
use crate::state_machine::Genesis;
use crate::state_machine::codec::{Cursor, StateError, put_bytes, put_u32, put_u64};

/// The name of the file.
pub(crate) const FILE: &str = "identity";
const MAGIC: &[u8; 8] = b"trineid\0";
/// Version of the replicas' messages and of the meaning of entries; a later one must not run on this log's replica.
const PROTOCOL: u16 = crate::config::STATE_MACHINE_VERSION;

/// Who a replica is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    pub(crate) node_id: NodeId,
    pub(crate) incarnation: Incarnation,
    /// Nothing before it belongs to a group.
    pub(crate) cluster: ClusterId,
    /// How the group began, if this replica was there.
    pub(crate) origin: Option<Origin>,
}

impl Identity {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&FORMAT.to_le_bytes());
        out.extend_from_slice(&PROTOCOL.to_le_bytes());
        put_u32(&mut out, self.node_id.0);
        put_u64(&mut out, self.incarnation.0);
        put_u64(&mut out, self.cluster.0);
        let mut beginning = Vec::new();
        if let Some(origin) = &self.origin {
            put_bytes(&mut beginning, &origin.genesis.encode());
            MemberTable::new(&origin.members.0).write(&mut beginning);
        }
        put_bytes(&mut out, &beginning);
        let crc = crc32c([&out]);
        put_u32(&mut out, crc);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, OpenError> {
        let damaged = || LostMemory::new(FILE, "it is damaged");
        let Some((covered, crc)) = bytes.split_last_chunk::<4>() else {
            return Err(damaged().into());
        };
        let intact = crc32c([covered]) == u32::from_le_bytes(*crc);
        if !covered.starts_with(MAGIC) || !intact {
            return Err(damaged().into());
        }
        let versions = covered.get(8..12).ok_or_else(damaged)?;
        for (version, known) in [(&versions[..2], FORMAT), (&versions[2..], PROTOCOL)] {
            let found = u16::from_le_bytes([version[0], version[1]]);
            if found > known {
                return Err(OpenError::Newer {
                    file: FILE.to_owned(),
                    found,
                    known,
                });
            }
        }
        Self::read(&covered[12..]).map_err(|error| OpenError::of_state(error, FILE, damaged()))
    }

    fn read(bytes: &[u8]) -> Result<Self, StateError> {
        let mut cursor = Cursor::new(bytes, "the identity");
        let node_id = NodeId(cursor.u32()?);
        let incarnation = Incarnation(cursor.u64()?);
        let cluster = ClusterId(cursor.u64()?);
        let beginning = cursor.bytes()?;
        cursor.finish()?;
        let origin = (!beginning.is_empty())
            .then(|| read_origin(beginning, cluster))
            .transpose()?;
        Ok(Self {
            node_id,
            incarnation,
            cluster,
            origin,
        })
    }
}

fn read_origin(bytes: &[u8], cluster: ClusterId) -> Result<Origin, StateError> {
    let mut cursor = Cursor::new(bytes, "the group's beginning");
    let genesis = Genesis::decode(cursor.bytes()?)?;
    let members = MemberTable::read(&mut cursor)?;
    cursor.finish()?;
    Ok(Origin {
        cluster,
        members: Members(members.all().to_vec()),
        genesis,
    })
}
