//! After the loss of a majority: a group of one member, made of what one directory holds.

use raft::eraftpb::{ConfState, EntryType};

use super::error::OpenError;
use super::identity::Identity;
use super::open::{OpenOptions, begin, inspect};
use super::recovering;
use super::replay::{Restored, base_of};
use super::snapshot_file::{SnapshotHead, begin_piece, end_piece, middle_piece};
use super::writer::replace_identity;
use super::{Disk, Fsync, Write};
use crate::message::{ClusterId, Member, MemberRole};
use crate::snapshot_transfer::{Image, Piece};
use crate::state_machine::StateMachine;
use trine_transport::time::Instant;

/// Piece size of the snapshot that the new group begins with.
const PIECE_BYTES: usize = 64 << 10;

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

impl From<super::DiskError> for RecoverError {
    fn from(error: super::DiskError) -> Self {
        Self::Open(error.into())
    }
}

/// What the new group begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recovered {
    /// The group that the directory belonged to.
    pub old: ClusterId,
    /// The last entry that was known to be committed; behind it stands what may never have been.
    pub committed: u64,
    /// The last entry of the log, all of which is in the new state.
    pub last: u64,
}

/// Makes a group of `member` alone, with the cluster id `cluster`, out of what `disk` holds. The whole log goes into its
/// state, for each of its entries may have been acknowledged. The old files are set aside.
///
/// # Errors
/// The directory cannot be used for it. If files were changed by then, or the process has ended midway, the directory
/// opens for nobody until a recovery has come to its end: each begins with the old files.
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
    let mut state = state_of(restored)?.begin_anew(cluster, &member);
    recovering::begin(&mut disk, options.incarnation)?;
    let options = OpenOptions {
        fsync: Fsync::Batch,
        ..options
    };
    let mut writer = begin(disk, options, None)?.writer;
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
    writer.perform(snapshot(&head, &mut state))?;
    let identity = Identity {
        place: member.place,
        incarnation: member.incarnation,
        cluster,
        origin: None,
    };
    replace_identity(writer.disk_mut(), &identity.encode(), true)?;
    recovering::end(writer.disk_mut())?;
    Ok(Recovered {
        old,
        committed,
        last,
    })
}

/// The state behind the last entry of the log.
fn state_of(restored: Restored) -> Result<StateMachine, RecoverError> {
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
    for entry in restored.entries {
        if entry.get_entry_type() == EntryType::EntryNormal {
            let applied = state.apply(entry.index, &entry.data, |_, _| {});
            applied.map_err(|error| RecoverError::Entry {
                index: entry.index,
                reason: error.to_string(),
            })?;
        } else {
            // Whoever the members were: there is one from here on.
            state.apply_conf_change(entry.index, None, None);
        }
    }
    Ok(state)
}

fn snapshot(head: &SnapshotHead, state: &mut StateMachine) -> Vec<Write> {
    let stream = 1;
    let piece = |bytes| Write::SnapshotPiece { stream, bytes };
    let mut writes = vec![piece(begin_piece(head))];
    let image = Image::begin(Instant::ZERO, state, PIECE_BYTES);
    let mut image = image.expect("no other image of this state is being made");
    let mut number = 0;
    loop {
        match image.piece(number, state.store_mut()) {
            Piece::Chunk(chunk, last) => {
                number += 1;
                writes.push(piece(middle_piece(number, chunk)));
                if last {
                    break;
                }
            }
            Piece::Pending => {}
            Piece::Gone => unreachable!("nothing changes the state meanwhile"),
        }
    }
    writes.push(piece(end_piece(number + 1)));
    let index = head.index;
    writes.push(Write::SnapshotEnd { stream, index });
    writes
}
