//! From a backup file to the first member of a new group.

use raft::eraftpb::{ConfState, HardState};
use trine_canary as canary;
use trine_kvstore::command::STATE_VERSION;
use trine_kvstore::{Position, Store};
use trine_protocol::message::{ClusterId, Member, MemberRole};

use super::damage::Damage;
use super::decoder::{Decoder, Part};
use super::header::Header;
use crate::config::{
    RESTORE_INDEX_GAP, RESTORE_INDEX_SPREAD, RESTORE_NUMBER_GAP, RESTORE_NUMBER_SPREAD,
};
use crate::disk::{
    Disk, DiskError, Fsync, Identity, Loaded, OpenOptions, Restored, SnapshotHead, begin_group,
    first_file,
};
use crate::raft_group::TERM_MAX;
use crate::snapshot_transfer::ImageReader;
use crate::state_machine::StateMachine;

/// Why no group can be made of a backup.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RestoreError {
    /// The file is damaged or cut.
    #[error(transparent)]
    Damage(#[from] Damage),
    /// The group that the backup is of ran a later release.
    #[error(
        "its group ran state version {version}, this release understands versions up to {known}"
    )]
    Newer {
        /// The group's version.
        version: u8,
        /// The newest one that this release understands.
        known: u8,
    },
    /// The file is whole, and what it holds is no state that this release understands.
    #[error("frame {frame} makes no sense to this release: {reason}")]
    State {
        /// The number of the frame.
        frame: u64,
        /// The damage in words.
        reason: String,
    },
    /// The header does not say what the frames do.
    #[error("the header is not that of the frames behind it")]
    OtherHeader,
    /// There is no index left that the new group could begin at.
    #[error("the backup's index {index} is too large for a restored group to begin behind it")]
    Index {
        /// The index.
        index: u64,
    },
    /// The clock is not later than the backup.
    #[error("the clock of this machine is {behind_ms} ms before the time of the backup")]
    Clock {
        /// By how much.
        behind_ms: u64,
    },
    /// The directory is not empty.
    #[error("the directory holds {file}")]
    NotEmpty {
        /// The first of its files.
        file: String,
    },
    /// The directory cannot be written.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// The effect of the time between backup and restore on times to live.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeToLive {
    /// Nothing: an item has as much left as it had.
    Stands,
    /// It counts, by the clock of this machine.
    Wall {
        /// Milliseconds since 1970.
        now_ms: u64,
    },
}

/// Puts the state together while a file is read.
#[derive(Default)]
pub struct Restorer {
    decoder: Decoder,
    header: Option<Header>,
    image: ImageReader,
    frames: u64,
}

impl Restorer {
    /// Takes the next bytes of the file.
    ///
    /// # Errors
    /// The file is damaged, or is of a later release.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), RestoreError> {
        self.decoder.feed(bytes);
        while let Some(part) = self.decoder.part()? {
            match part {
                Part::Header(header) => self.begin(header)?,
                Part::Frame(content) => {
                    let frame = self.frames;
                    self.frames += 1;
                    let taken = self.image.push(&content);
                    taken.map_err(|error| RestoreError::State {
                        frame,
                        reason: error.to_string(),
                    })?;
                }
                Part::End => {}
            }
        }
        Ok(())
    }

    fn begin(&mut self, header: Header) -> Result<(), RestoreError> {
        let (version, known) = (header.head.state_version, STATE_VERSION);
        if version > known {
            return Err(RestoreError::Newer { version, known });
        }
        self.header = Some(header);
        Ok(())
    }

    /// The file's header, once it was read.
    #[must_use]
    pub fn header(&self) -> Option<&Header> {
        self.header.as_ref()
    }

    /// The file has ended.
    ///
    /// # Errors
    /// It is cut off, or its frames are not those of its header.
    pub fn finish(self) -> Result<Content, RestoreError> {
        let content = self.finish_image()?;
        match content.has_time_and_sizes_of_header() {
            true => Ok(content),
            false => Err(RestoreError::OtherHeader),
        }
    }

    /// The same, whatever the header says of time and sizes.
    fn finish_image(self) -> Result<Content, RestoreError> {
        self.decoder.finish()?;
        let header = self.header.ok_or(RestoreError::OtherHeader)?;
        let frame = self.frames;
        let state = self.image.finish().map_err(|error| RestoreError::State {
            frame,
            reason: error.to_string(),
        })?;
        let head = &header.head;
        let is_its = state.cluster() == head.cluster
            && state.applied_index() == head.index
            && state.store().applied().index() <= head.index
            && head.term <= TERM_MAX / 2
            && state.store().stats().items == head.items;
        match is_its {
            true => Ok(Content { header, state }),
            false => Err(RestoreError::OtherHeader),
        }
    }
}

/// The whole content of a backup.
pub struct Content {
    header: Header,
    state: StateMachine,
}

/// The beginning of a new group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Begun {
    /// The group that the backup is of.
    pub old: ClusterId,
    /// The last entry of that group that is in the state.
    pub old_index: u64,
    /// The new group's log goes on behind this entry.
    pub index: u64,
    /// Items in the state.
    pub items: u64,
    /// By how much the times to live were shortened, in nanoseconds.
    pub passed_ns: u64,
}

impl Content {
    /// The subject of the backup.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    #[cfg(test)]
    pub(super) fn with_header(self, header: Header) -> Self {
        Self { header, ..self }
    }

    /// The header comes from the replica that was read, and so does the state. Times to live count from the one's time, and
    /// people are told the other one's sizes.
    fn has_time_and_sizes_of_header(&self) -> bool {
        let (head, store) = (&self.header.head, self.state.store());
        self.state.group_time_ns() == head.group_time_ns
            && store.stats().logical_bytes == head.logical_bytes
            && store.users().len() as u64 == u64::from(head.users)
    }

    /// The store in it, which has what users have stored.
    #[must_use]
    pub fn store(&self) -> &Store {
        self.state.store()
    }

    /// The new group's snapshot, state and identity.
    fn begin_again(
        self,
        cluster: ClusterId,
        member: &Member,
        ttl: TimeToLive,
    ) -> Result<(Begun, SnapshotHead, StateMachine), RestoreError> {
        let old = self.header.head;
        let cluster = match canary::planted("a restore goes on in the old cluster") {
            true => old.cluster,
            false => cluster,
        };
        // The cluster id is drawn at random.
        let gap = match canary::planted("a restore gives old positions again") {
            true => 1,
            false => RESTORE_INDEX_GAP + cluster.0 % RESTORE_INDEX_SPREAD,
        };
        let index = old
            .index
            .checked_add(gap)
            .filter(|&index| index <= Position::INDEX_MAX / 2)
            .ok_or(RestoreError::Index { index: old.index })?;
        let passed_ns = match ttl {
            TimeToLive::Stands => 0,
            TimeToLive::Wall { now_ms } => {
                let made_at = self.header.made_at_ms;
                let passed = now_ms.checked_sub(made_at).ok_or(RestoreError::Clock {
                    behind_ms: made_at.saturating_sub(now_ms),
                })?;
                passed.saturating_mul(1_000_000)
            }
        };
        let begun = Begun {
            old: old.cluster,
            old_index: old.index,
            index,
            items: old.items,
            passed_ns,
        };
        let draw = cluster.0 / RESTORE_INDEX_SPREAD;
        let numbers = RESTORE_NUMBER_GAP + (draw % u64::from(RESTORE_NUMBER_SPREAD)) as u32;
        let head = SnapshotHead {
            cluster,
            index,
            term: old.term.saturating_add(1),
            conf: ConfState {
                voters: vec![member.incarnation.0],
                ..ConfState::default()
            },
        };
        let state = self
            .state
            .restored_at(index, passed_ns, numbers)
            .begin_again(cluster, member);
        Ok((begun, head, state))
    }
}

fn voter(member: Member) -> Member {
    Member {
        role: MemberRole::Voter,
        ..member
    }
}

/// Makes `disk`, which is empty, the directory of the first and only member of a new group with the cluster id
/// `cluster` and the state of a backup.
///
/// # Errors
/// The directory is not empty or cannot be written, or the backup cannot be the beginning of a group. Without an
/// identity, which comes last, no process opens what was written by then.
pub fn restore<D: Disk>(
    mut disk: D,
    options: OpenOptions,
    content: Content,
    cluster: ClusterId,
    member: Member,
    ttl: TimeToLive,
) -> Result<Begun, RestoreError> {
    if let Some(file) = first_file(&mut disk)? {
        return Err(RestoreError::NotEmpty { file });
    }
    let member = voter(member);
    let (begun, head, mut state) = content.begin_again(cluster, &member, ttl)?;
    let options = OpenOptions {
        fsync: Fsync::Batch,
        ..options
    };
    begin_group(disk, options, &head, &mut state, &member)?;
    Ok(begun)
}

/// The same in memory: what the first member of the new group begins with.
///
/// # Errors
/// The backup cannot be the beginning of a group.
pub fn restore_in_memory(
    content: Content,
    cluster: ClusterId,
    member: Member,
    ttl: TimeToLive,
) -> Result<(Begun, Restored), RestoreError> {
    let member = voter(member);
    let (begun, head, state) = content.begin_again(cluster, &member, ttl)?;
    let identity = Identity {
        node_id: member.node_id,
        incarnation: member.incarnation,
        cluster: head.cluster,
        origin: None,
    };
    let hard_state = HardState {
        term: head.term,
        commit: head.index,
        ..HardState::default()
    };
    let restored = Restored {
        is_lifted: false,
        identity,
        snapshot: Some(Loaded { head, state }),
        hard_state,
        entries: Vec::new(),
    };
    Ok((begun, restored))
}

/// A file whose checksums are right: a header that the bytes begin with, and frames whose lengths they give.
fn fuzz_framed(bytes: &[u8]) -> Vec<u8> {
    let number = |at: usize| u64::from(bytes.get(at).copied().unwrap_or_default());
    let head = trine_protocol::message::BackupHead {
        image: 1,
        cluster: ClusterId(number(0)),
        index: number(1),
        term: number(2),
        group_time_ns: number(3),
        items: number(4),
        logical_bytes: number(5),
        state_version: 5,
        users: 0,
    };
    let header = Header {
        head,
        made_at_ms: 0,
        replica: trine_protocol::message::Incarnation(1),
    };
    let (mut encoder, mut file) = super::Encoder::begin(&header);
    let mut rest = bytes.get(6..).unwrap_or_default();
    while let Some((&[low, high], content)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_le_bytes([low, high])).min(content.len());
        let (content, behind) = content.split_at(length);
        if !content.is_empty() {
            file.extend_from_slice(&encoder.frame(content));
            file.extend_from_slice(content);
        }
        rest = behind;
    }
    file.extend_from_slice(&encoder.end());
    file
}

/// For the fuzzer: reads a file in portions. No content may cause a panic, and one that is a backup can be restored.
#[doc(hidden)]
pub fn fuzz_restore(bytes: &[u8]) {
    let Some((&portion, rest)) = bytes.split_first() else {
        return;
    };
    let framed;
    let file = match portion & 0x80 {
        0 => rest,
        _ => {
            framed = fuzz_framed(rest);
            &framed
        }
    };
    let mut restorer = Restorer::default();
    for portion in file.chunks(usize::from(portion & 0x7f) * 64 + 1) {
        if restorer.feed(portion).is_err() {
            return;
        }
    }
    // Hardly any input has the right time and sizes.
    let Ok(content) = restorer.finish_image() else {
        return;
    };
    let member = Member {
        node_id: trine_protocol::message::NodeId(1),
        role: MemberRole::Voter,
        incarnation: trine_protocol::message::Incarnation(1),
        address: ([127, 0, 0, 1], 7471).into(),
    };
    let (hash, version) = (content.state.store().state_hash(), content.state.version());
    let items = content.state.store().stats().items;
    // A group that had users leaves numbers out, which the hash shows.
    let had_users = content.state.store().users().has_given_numbers();
    let Ok((begun, restored)) =
        restore_in_memory(content, ClusterId(9), member, TimeToLive::Stands)
    else {
        return;
    };
    let loaded = restored.snapshot.expect("a restored group begins with one");
    assert_eq!(loaded.state.applied_index(), begun.index);
    assert_eq!(loaded.state.version(), version);
    assert_eq!(loaded.state.store().stats().items, items);
    assert_eq!(loaded.state.store().users().has_given_numbers(), had_users);
    assert!(had_users || loaded.state.store().state_hash() == hash);
}
