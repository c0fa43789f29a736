//! Why a replica has halted. Whatever it did next could differ from what the others do.

use std::net::SocketAddr;

use trine_protocol::message::{ClusterId, NodeId};

use crate::disk::DiskError;

/// The reason. The first one stays: its consequences are no reasons.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Halt {
    /// The group has removed it, or given its node id to another replica.
    #[error(
        "node {node_id} was removed from cluster {cluster}, or another replica has taken its id"
    )]
    Removed {
        /// Its node id.
        node_id: NodeId,
        /// The group.
        cluster: ClusterId,
    },
    /// The group that it was told of never began. It has promised nothing and lost nothing: its owner starts another
    /// replica instead, under a new incarnation.
    #[error("cluster {cluster} never began: nobody has ever led it")]
    NeverBegan {
        /// The group.
        cluster: ClusterId,
    },
    /// Its state differs from the majority's. In disk mode its files are in quarantine, so that the next start refuses them.
    #[error(
        "its state behind entry {index} differs from the majority's ({:016x}{:016x}, not {:016x}{:016x})",
        own[0], own[1], majority[0], majority[1]
    )]
    Diverged {
        /// The entry.
        index: u64,
        /// The hash of its own state, high half first.
        own: [u64; 2],
        /// The hash of the majority's.
        majority: [u64; 2],
    },
    /// Entries that it has acknowledged are not in its log, so its directory is an old copy or was damaged unseen. Disk
    /// mode only: in memory a restarted replica is a new incarnation.
    #[error(
        "it has lost entries that it had acknowledged: its log ends at {last}, and the leader counts on it up to {commit}"
    )]
    RolledBack {
        /// The last entry of its log.
        last: u64,
        /// The index up to which the leader has its acknowledgement for committed entries.
        commit: u64,
    },
    /// A member remembers more of this one than its files say, so its directory is an older copy of itself: the machine was set
    /// back, or the directory put back from a copy. Disk mode only.
    #[error(
        "its files are older than what it has promised: they end in term {} at entry {}, and node {node_id} at {address} has its word for term {} up to entry {}",
        own.0, own.1, remembered.0, remembered.1
    )]
    OlderCopy {
        /// The member that remembers.
        node_id: NodeId,
        /// Where that one is.
        address: SocketAddr,
        /// Term and entry that this replica has promised to it.
        remembered: (u64, u64),
        /// Term and last entry of this replica's files.
        own: (u64, u64),
    },
    /// A write has failed: the content of the disk is unknown.
    #[error(transparent)]
    Disk(DiskError),
    /// The group uses a newer state machine than this release understands.
    #[error("the group uses a newer state machine than this replica understands: upgrade it")]
    TooOld,
    /// An entry cannot be applied.
    #[error("{0}")]
    Entry(String),
    /// An invariant of this program does not hold.
    #[error("{0}")]
    Broken(&'static str),
}
