//! The writes that a replica asks for, and the queue that carries them to the disk.

use super::error::DiskError;
use super::record::Record;

/// One thing to write. Writes become durable in the order in which they were asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Write {
    /// A record for the end of the log.
    Log(Record),
    /// The replica's identity and its group, in place of the earlier ones.
    Identity(Vec<u8>),
    /// Why the state on this disk must not be used again: the next start finds lost memory.
    Quarantined(String),
    /// The mark of a lifted quarantine is needed no more.
    LiftEnded,
    /// The next piece of a snapshot; the first one begins it.
    SnapshotPiece {
        /// Names the snapshot until it is complete.
        stream: u64,
        /// The piece.
        bytes: Vec<u8>,
    },
    /// The snapshot is complete: it takes the place of earlier ones, and of log segments that end before it.
    SnapshotEnd {
        /// The snapshot's name.
        stream: u64,
        /// The last entry that it holds.
        index: u64,
    },
    /// The snapshot will never be complete.
    SnapshotGivenUp {
        /// The snapshot's name.
        stream: u64,
    },
}

impl Write {
    /// The bytes that it carries.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Log(record) => record.bytes.len(),
            Self::Identity(bytes) | Self::SnapshotPiece { bytes, .. } => bytes.len(),
            Self::Quarantined(why) => why.len(),
            Self::LiftEnded | Self::SnapshotEnd { .. } | Self::SnapshotGivenUp { .. } => 0,
        }
    }

    /// Whether it carries no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The way from a node to its disk.
pub trait WriteQueue: Send {
    /// Takes a write; numbers grow by one.
    fn submit(&mut self, number: u64, write: Write);

    /// The number up to which everything is durable, if that has grown; or the end of the disk.
    fn poll(&mut self) -> Option<Result<u64, DiskError>>;
}
