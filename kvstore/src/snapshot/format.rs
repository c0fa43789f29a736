//! The bytes of a chunk.
//!
//! ```text
//! 0   magic "TRSN"            4 bytes
//! 4   format version          u16
//! 6   kind (1 head, 2 items, 3 end, 4 users, 5 pins)   u8
//! 7   zero                    u8
//! 8   position                u64
//! 16  sequence, from 0        u32
//! 20  items, users or pins in this chunk   u32
//! 24  body length             u32
//! 28  CRC-32C of all of the above and the body   u32
//! 32  body
//! ```
//!
//! The head's body is a [`SnapshotSummary`]; an item is key length u32, value length u32, version
//! u64, expiry u64 (0: none), key, value; the end's body is the number of items u64.
//! Chunks of users (`users/stored.rs`) follow the head, and are absent if there never was a user. Then comes a chunk of
//! pins (`pins.rs`), if there are any: position u64, client u64, user u32, group time at the position u64, end in group time u64.

use crate::checksum::crc32c;

use crate::codec::{DecodeError, Reader, Sink, length_u32};
use crate::limits::Limits;
use crate::ordered::Ordered;
use crate::position::Position;
use std::fmt;

pub(super) const MAGIC: [u8; 4] = *b"TRSN";
pub(super) const FORMAT_VERSION: u16 = 1;
pub(super) const HEADER_BYTES: usize = 32;
pub(super) const ITEM_HEADER_BYTES: usize = 24;

const CRC_AT: usize = 28;

/// The contents of a chunk.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(super) enum ChunkKind {
    Head,
    Items,
    End,
    Users,
    Pins,
}

impl ChunkKind {
    /// The state-machine version that brought users.
    pub(super) const USERS_VERSION: u8 = 5;

    fn as_u8(self) -> u8 {
        match self {
            Self::Head => 1,
            Self::Items => 2,
            Self::End => 3,
            Self::Users => 4,
            Self::Pins => 5,
        }
    }

    fn from_u8(kind: u8) -> Option<Self> {
        Some(match kind {
            1 => Self::Head,
            2 => Self::Items,
            3 => Self::End,
            4 => Self::Users,
            5 => Self::Pins,
            _ => return None,
        })
    }
}

/// The subject of a snapshot: all replicated state but the items, and the totals of those.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct SnapshotSummary {
    /// The last command that the snapshot includes.
    pub position: Position,
    /// Replicated limits.
    pub limits: Limits,
    /// Replicated hash seed.
    pub hash_seed: [u64; 2],
    /// Group time in nanoseconds.
    pub group_time_ns: u64,
    /// The state-machine version that the group runs.
    pub state_version: u8,
    /// Live items.
    pub items: u64,
    /// Bytes that the memory limit counts.
    pub logical_bytes: u64,
    /// [`crate::Store::state_hash`] at this position.
    pub state_hash: u128,
    /// Whether the group keeps an ordered index. Its keys are those of the items.
    pub ordered: Ordered,
}

impl SnapshotSummary {
    pub(super) fn write(&self, sink: &mut impl Sink) {
        self.limits.write(sink);
        sink.put_u64(self.hash_seed[0]);
        sink.put_u64(self.hash_seed[1]);
        sink.put_u64(self.group_time_ns);
        sink.put_u8(self.state_version);
        sink.put_u64(self.items);
        sink.put_u64(self.logical_bytes);
        sink.put(&self.state_hash.to_le_bytes());
        self.ordered.write(sink);
    }

    pub(super) fn read(position: Position, body: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let summary = Self {
            position,
            limits: Limits::read(&mut reader)?,
            hash_seed: [reader.u64()?, reader.u64()?],
            group_time_ns: reader.u64()?,
            state_version: reader.u8()?,
            items: reader.u64()?,
            logical_bytes: reader.u64()?,
            state_hash: u128::from(reader.u64()?) | u128::from(reader.u64()?) << 64,
            ordered: Ordered::read(&mut reader)?,
        };
        reader.finish()?;
        Ok(summary)
    }
}

/// The header of a chunk, after its checksum was found right.
#[derive(Copy, Clone, Debug)]
pub(super) struct ChunkHeader {
    pub(super) kind: ChunkKind,
    pub(super) position: Position,
    pub(super) sequence: u32,
    pub(super) items: u32,
}

impl ChunkHeader {
    /// Completes a chunk whose first bytes were left free for the header.
    pub(super) fn seal(self, chunk: &mut [u8]) {
        let body_length = length_u32(chunk.len() - HEADER_BYTES);
        chunk[..4].copy_from_slice(&MAGIC);
        chunk[4..6].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        chunk[6] = self.kind.as_u8();
        chunk[7] = 0;
        chunk[8..16].copy_from_slice(&self.position.as_u64().to_le_bytes());
        chunk[16..20].copy_from_slice(&self.sequence.to_le_bytes());
        chunk[20..24].copy_from_slice(&self.items.to_le_bytes());
        chunk[24..28].copy_from_slice(&body_length.to_le_bytes());
        let crc = checksum(chunk);
        chunk[CRC_AT..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    }

    /// Checks a chunk and takes it apart.
    pub(super) fn open(chunk: &[u8]) -> Result<(Self, &[u8]), RestoreError> {
        if chunk.len() < HEADER_BYTES {
            return Err(RestoreError::Truncated);
        }
        if chunk[..4] != MAGIC {
            return Err(RestoreError::NotAChunk);
        }
        let version = u16::from_le_bytes([chunk[4], chunk[5]]);
        if version != FORMAT_VERSION {
            return Err(RestoreError::UnknownFormat { version });
        }
        let mut reader = Reader::new(&chunk[6..]);
        let (kind, zero) = (reader.u8()?, reader.u8()?);
        let position = Position::from_u64(reader.u64()?);
        let (sequence, items, body_length) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let crc = reader.u32()?;
        if chunk.len() - HEADER_BYTES != body_length as usize {
            return Err(RestoreError::Truncated);
        }
        if crc != checksum(chunk) {
            return Err(RestoreError::ChecksumDiffers { sequence });
        }
        let kind = ChunkKind::from_u8(kind)
            .filter(|_| zero == 0)
            .ok_or(RestoreError::Malformed { sequence })?;
        Ok((
            Self {
                kind,
                position,
                sequence,
                items,
            },
            &chunk[HEADER_BYTES..],
        ))
    }
}

/// Over everything but the checksum itself.
fn checksum(chunk: &[u8]) -> u32 {
    crc32c([&chunk[..CRC_AT], &chunk[HEADER_BYTES..]])
}

/// Why chunks are not a snapshot.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum RestoreError {
    /// The chunk is not as long as it says.
    Truncated,
    /// The bytes do not begin like a chunk.
    NotAChunk,
    /// A format that this build does not read.
    UnknownFormat {
        /// The version that the chunk names.
        version: u16,
    },
    /// The chunk was damaged.
    ChecksumDiffers {
        /// The chunk, if this number is not what was damaged.
        sequence: u32,
    },
    /// The checksum is right but the contents are not what a writer makes.
    Malformed {
        /// The chunk.
        sequence: u32,
    },
    /// Chunks must come in order; the expected one can still be pushed.
    WrongSequence {
        /// The chunk that is due.
        expected: u32,
        /// The chunk that came.
        found: u32,
    },
    /// A chunk of a snapshot at another position.
    OtherSnapshot {
        /// The position of this snapshot.
        expected: Position,
        /// The position that the chunk names.
        found: Position,
    },
    /// An item is not behind the one before it.
    OutOfOrder {
        /// The chunk.
        sequence: u32,
    },
    /// The group runs a state-machine version that this build does not understand.
    NewerStateVersion {
        /// That version.
        version: u8,
    },
    /// The restored items are not those that were written.
    StateDiffers {
        /// Items that the head announced.
        items_expected: u64,
        /// Items that came.
        items_found: u64,
    },
    /// The last chunk has not come.
    Incomplete {
        /// The chunk that is due.
        expected: u32,
    },
    /// A chunk after the last one.
    AfterEnd,
}

impl From<DecodeError> for RestoreError {
    fn from(_: DecodeError) -> Self {
        Self::Truncated
    }
}

impl fmt::Display for RestoreError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => write!(
                formatter,
                "a snapshot chunk is shorter or longer than it says"
            ),
            Self::NotAChunk => write!(formatter, "the bytes are not a snapshot chunk"),
            Self::UnknownFormat { version } => {
                write!(formatter, "snapshot format {version} is unknown")
            }
            Self::ChecksumDiffers { sequence } => {
                write!(formatter, "snapshot chunk {sequence} is damaged")
            }
            Self::Malformed { sequence } => {
                write!(formatter, "snapshot chunk {sequence} is malformed")
            }
            Self::WrongSequence { expected, found } => {
                write!(
                    formatter,
                    "snapshot chunk {found} came where {expected} was due"
                )
            }
            Self::OtherSnapshot { expected, found } => {
                write!(
                    formatter,
                    "a chunk of the snapshot at {found} came into the one at {expected}"
                )
            }
            Self::OutOfOrder { sequence } => write!(
                formatter,
                "items of snapshot chunk {sequence} are out of order"
            ),
            Self::NewerStateVersion { version } => {
                write!(
                    formatter,
                    "the snapshot needs state-machine version {version}: upgrade this node"
                )
            }
            Self::StateDiffers {
                items_expected,
                items_found,
            } => write!(
                formatter,
                "the restored state differs: {items_found} items of {items_expected}, or their hash"
            ),
            Self::Incomplete { expected } => {
                write!(formatter, "the snapshot ends before chunk {expected}")
            }
            Self::AfterEnd => write!(formatter, "a chunk came after the end of the snapshot"),
        }
    }
}

impl std::error::Error for RestoreError {}
