//! After the loss of a majority: a group of one member, made from one directory.

use raft::eraftpb::{ConfState, EntryType};
use trine_protocol::message::{ClusterId, Member, MemberRole};

use super::error::OpenError;
use super::identity::Identity;
use super::open::{OpenOptions, begin, inspect};
use super::recovering;
use super::replay::{Restored, base_of};
use super::snapshot_file::{SnapshotHead, begin_piece, end_piece, middle_piece};
use super::writer::replace_identity;
use super::{Disk, DiskError, DiskStage, Fsync, Write, Writer};
use crate::config::WRITE_BATCH_BYTES_MAX;
use crate::snapshot_transfer::{Image, Piece};
use crate::state_machine::StateMachine;
use trine_transport::time::Instant;

/// Piece size of the snapshot that the new group begins with.
const PIECE_BYTES: usize = 64 << 10;
/// Entries applied between two checks whether to go on.
const APPLIED_PER_LOOK: u64 = 256;

/// Why a directory cannot be made a group of its own.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecoverError {
    /// It cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The replica had received nothing yet.
    #[error("the directory holds no group's state")]
    Empty,
    /// An entry is of a later release.
    #[error("entry {index} of the log cannot be applied: {reason}")]
    Entry {
        /// Its index.
        index: u64,
        /// Why.
        reason: String,
    },
}

impl From<DiskError> for RecoverError {
    fn from(error: DiskError) -> Self {
        Self::Open(error.into())
    }
}

/// The initial state of the new group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recovered {
    /// The group that the directory belonged to.
    pub old: ClusterId,
    /// The last entry that was known to be committed; entries after it may never have been.
    pub committed: u64,
    /// The last entry of the log, all of which is in the new state.
    pub last: u64,
}

/// Makes a group of `member` alone, with the cluster id `cluster`, out of what `disk` holds. The whole log goes into its
/// state, for each of its entries may have been acknowledged. The old files are set aside.
///
/// # Errors The directory cannot be used for it. If files were changed by then, or the process has ended midway, no
/// process can open the directory until a recovery has come to its end. Each recovery begins with the old files.
pub fn recover<D: Disk>(
    mut disk: D,
    options: OpenOptions,
    cluster: ClusterId,
    member: Member,
) -> Result<Recovered, RecoverError> {
    recovering::take_back(&mut disk)?;
    let found = inspect(&mut disk, options)?.and_then(|found| found.restored);
    let restored = found.ok_or(RecoverError::Empty)?;
    let (old, committed, last) = (
        restored.cluster(),
        restored.committed(),
        restored.last_index(),
    );
    let term = restored.hard_state.term + 1;
    let member = Member {
        role: MemberRole::Voter,
        ..member
    };
    let mut state = state_of(&mut disk, restored)?.begin_again(cluster, &member);
    let options = OpenOptions {
        fsync: Fsync::Batch,
        ..options
    };
    let conf = ConfState {
        voters: vec![member.incarnation.0],
        ..ConfState::default()
    };
    let head = SnapshotHead {
        cluster,
        index: last,
        term,
        conf,
    };
    begin_group(disk, options, &head, &mut state, &member)?;
    Ok(Recovered {
        old,
        committed,
        last,
    })
}

/// Sets the files of the directory aside, and makes it that of the one member of a new group. No process opens it until
/// that has come to its end.
pub(crate) fn begin_group<D: Disk>(
    mut disk: D,
    options: OpenOptions,
    head: &SnapshotHead,
    state: &mut StateMachine,
    member: &Member,
) -> Result<(), DiskError> {
    recovering::begin(&mut disk, options.incarnation)?;
    let mut writer = start_writer(disk, options)?;
    write_state(&mut writer, head, state)?;
    let identity = Identity {
        node_id: member.node_id,
        incarnation: member.incarnation,
        cluster: head.cluster,
        origin: None,
    };
    replace_identity(writer.disk_mut(), &identity.encode(), true)?;
    recovering::end(writer.disk_mut())
}

fn start_writer<D: Disk>(disk: D, options: OpenOptions) -> Result<Writer<D>, DiskError> {
    begin(disk, options, None).map(|opened| opened.writer)
}

/// The state after the last entry of the log.
pub(super) fn state_of(
    disk: &mut impl Disk,
    restored: Restored,
) -> Result<StateMachine, RecoverError> {
    let base = base_of(&restored.identity, restored.snapshot.as_ref());
    let state = match (restored.snapshot, &restored.identity.origin, base) {
        (Some(loaded), _, _) => Some(loaded.state),
        (None, Some(origin), Some((index, _))) => {
            let members = &origin.members.0;
            Some(StateMachine::new(
                origin.cluster,
                origin.genesis,
                members,
                index,
            ))
        }
        _ => None,
    };
    let mut state = state.ok_or(RecoverError::Empty)?;
    let total = restored.entries.len() as u64;
    for (done, entry) in (0..).zip(restored.entries) {
        if done % APPLIED_PER_LOOK == 0 {
            disk.at(DiskStage::Applying, done, total)?;
        }
        if entry.get_entry_type() == EntryType::EntryNormal {
            let applied = state.apply(entry.index, &entry.data, |_, _| {});
            applied.map_err(|error| RecoverError::Entry {
                index: entry.index,
                reason: error.to_string(),
            })?;
        } else {
            // There is one member from here on, whatever the members were before.
            state.apply_conf_change(entry.index, None, None);
        }
    }
    Ok(state)
}

/// Writes the snapshot that the new group begins with, so much at a time that the state is not in memory twice.
fn write_state<D: Disk>(
    writer: &mut Writer<D>,
    head: &SnapshotHead,
    state: &mut StateMachine,
) -> Result<(), DiskError> {
    let stream = 1;
    let piece = |bytes| Write::SnapshotPiece { stream, bytes };
    let total = state.store().stats().logical_bytes;
    let mut batch = vec![piece(begin_piece(head))];
    let (mut done, mut in_batch) = (0, 0);
    let image = Image::begin(Instant::ZERO, state, PIECE_BYTES);
    let mut image = image.expect("no other image of this state is being made");
    let mut number = 0;
    loop {
        match image.piece(number, state.store_mut()) {
            Piece::Chunk(chunk, last) => {
                number += 1;
                in_batch += chunk.len();
                batch.push(piece(middle_piece(number, chunk)));
                if last {
                    break;
                }
            }
            Piece::Pending => {}
            Piece::Gone => unreachable!("nothing changes the state meanwhile"),
        }
        image.forget_below(number);
        if in_batch >= WRITE_BATCH_BYTES_MAX {
            done += std::mem::take(&mut in_batch) as u64;
            writer.perform(batch.drain(..))?;
            writer.disk_mut().at(DiskStage::Writing, done, total)?;
        }
    }
    batch.push(piece(end_piece(number + 1)));
    let index = head.index;
    batch.push(Write::SnapshotEnd { stream, index });
    writer.disk_mut().at(DiskStage::Writing, done, total)?;
    writer.perform(batch)
}
