//! Raft's needs of a log, beyond reading it: the one interface that the memory log and a log on disk share.

mod bytes;
mod memory;

pub(crate) use memory::MemoryLog;

use std::collections::VecDeque;
use std::net::SocketAddr;

use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use trine_protocol::message::Incarnation;

/// An entry that says where a member is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MoveEntry {
    pub(crate) index: u64,
    pub(crate) member: Incarnation,
    pub(crate) to: SocketAddr,
}

/// A replica's log. Reading goes through [`raft::Storage`]; every write goes through here.
///
/// Invariant: `first_index - 1 <= applied <= commit <= last_index`, and the term of `first_index - 1` can be asked.
pub(crate) trait Log: raft::Storage {
    /// Appends `entries`, which are contiguous; whatever the log holds from the first of them on is replaced.
    fn append(&mut self, entries: &[Entry]);

    /// The entries that say where members are, in their order.
    fn moves(&self) -> &VecDeque<MoveEntry>;

    /// Remembers term, vote and commit index.
    fn set_hard_state(&mut self, state: HardState);

    /// Remembers the commit index alone.
    fn set_commit(&mut self, commit: u64);

    /// Remembers the configuration that is in force at the applied index.
    fn set_conf_state(&mut self, state: ConfState);

    /// Drops everything and starts again after the snapshot, whose state has been installed.
    fn restore(&mut self, snapshot: &Snapshot);

    /// Drops the entries up to and including `through`, which have been applied.
    fn compact(&mut self, through: u64);

    /// Hands raft the snapshot that it may send to a follower that the log can no longer help, or takes it back.
    fn offer_snapshot(&mut self, snapshot: Option<Snapshot>);

    /// What [`Log::take_snapshot_wanted`] is going to answer.
    fn wants_snapshot(&self) -> bool;

    /// Whether raft has asked for a snapshot that was not on offer since the last call.
    fn take_snapshot_wanted(&mut self) -> bool;

    /// Entries held.
    fn entry_count(&self) -> usize;

    /// Bytes held, an allowance for each entry's own record included.
    fn bytes(&self) -> usize;

    /// The greatest index that can be dropped so that at most `entries` entries and `bytes` bytes are left.
    fn compaction_point(&self, entries: usize, bytes: usize) -> u64;
}
