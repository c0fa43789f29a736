//! Each damage at each byte: either only unsynced content is cleared away, or the memory counts as lost.

use raft::eraftpb::{ConfState, Entry, HardState};
use trine_kvstore::checksum::crc32c;
use trine_protocol::message::{ClusterId, Incarnation, Member, MemberRole, Members, NodeId};

use super::cache::CachedDisk;
use super::frame::SECTOR;
use super::memory::MemoryDisk;
use super::segment::name as segment_name;
use super::*;
use crate::Replica;
use crate::bootstrap::Origin;
use crate::config::{ReplicaConfig, SEGMENT_BYTES_MIN};
use crate::state_machine::Genesis;
use trine_transport::backend::{Wake, Waker};
use trine_transport::buf::{Pool, PoolConfig};
use trine_transport::time::Instant;

pub(super) fn options() -> OpenOptions {
    OpenOptions {
        node_id: NodeId(1),
        fsync: Fsync::Batch,
        segment_bytes: SEGMENT_BYTES_MIN,
        incarnation: Incarnation(11),
        rejoin: false,
    }
}

pub(super) fn identity() -> Identity {
    let member = Member {
        node_id: NodeId(1),
        role: MemberRole::Voter,
        incarnation: Incarnation(11),
        address: "127.0.0.1:7471".parse().unwrap(),
    };
    let origin = Origin {
        cluster: ClusterId(7),
        members: Members(vec![member]),
        genesis: Genesis::new(&ReplicaConfig::default(), [1, 2]),
    };
    Identity {
        node_id: NodeId(1),
        incarnation: Incarnation(11),
        cluster: ClusterId(7),
        origin: Some(origin),
    }
}

pub(super) fn record(indexes: std::ops::Range<u64>, term: u64, bytes: usize) -> Write {
    let mut record = Record::default();
    let entries: Vec<Entry> = indexes
        .map(|index| Entry {
            index,
            term,
            data: vec![index as u8 + 1; bytes],
            ..Entry::default()
        })
        .collect();
    record.entries(&entries);
    record.hard_state(&HardState {
        term,
        vote: 11,
        commit: 1,
    });
    Write::Log(record)
}

/// A member with entries 2 to 7, in frames of one, two and several sectors.
pub(super) fn small() -> MemoryDisk {
    let mut opened = open(MemoryDisk::default(), options()).unwrap();
    let writer = &mut opened.writer;
    writer
        .perform([Write::Identity(identity().encode())])
        .unwrap();
    writer.perform([record(2..3, 2, 10)]).unwrap();
    writer
        .perform([record(3..4, 2, 600), record(4..6, 2, 100)])
        .unwrap();
    writer.perform([record(6..8, 3, 900)]).unwrap();
    writer.disk_mut().clone()
}

pub(super) fn reopen(disk: &MemoryDisk) -> Result<Opened<MemoryDisk>, OpenError> {
    open(disk.clone(), options())
}

pub(super) fn indexes(opened: &Opened<MemoryDisk>) -> Vec<u64> {
    let restored = opened.restored.as_ref().unwrap();
    restored.entries.iter().map(|entry| entry.index).collect()
}

#[test]
fn what_was_written_is_there_after_a_restart() {
    let opened = reopen(&small()).unwrap();
    assert_eq!(indexes(&opened), [2, 3, 4, 5, 6, 7]);
    let restored = opened.restored.unwrap();
    assert_eq!(
        (restored.hard_state.term, restored.hard_state.vote),
        (3, 11)
    );
    assert_eq!(restored.entries[2].data, vec![5; 100]);
    assert_eq!(restored.identity, identity());
    assert!(reopen(&MemoryDisk::default()).unwrap().restored.is_none());
}

/// Seed 4437 of the simulator: a bit of the format in a segment's header was flipped, and the replica took it for the file of a
/// newer release. It never came back, not with `--rejoin` either, and its owner was told to look for that release.
#[test]
fn a_flipped_bit_anywhere_in_a_file_is_lost_memory() {
    let disk = small();
    for (name, bytes) in &disk.files {
        for at in 0..bytes.len() {
            let mut damaged = disk.clone();
            damaged.files.get_mut(name).unwrap()[at] ^= 1 << (at % 8);
            let error = reopen(&damaged).map(|_| ()).unwrap_err();
            assert!(
                matches!(error, OpenError::Lost(_)),
                "byte {at} of {name}: {error}"
            );
            assert!(error.to_string().contains(name.as_str()), "{error}");
        }
    }
}

#[test]
fn a_file_that_is_cut_anywhere_is_lost_memory() {
    let disk = small();
    for (name, bytes) in &disk.files {
        for len in 0..bytes.len() {
            let mut cut = disk.clone();
            cut.files.get_mut(name).unwrap().truncate(len);
            let error = reopen(&cut).map(|_| ()).unwrap_err();
            assert!(
                matches!(error, OpenError::Lost(_)),
                "{name} at {len}: {error}"
            );
        }
        // Without this one it is the directory of an earlier release.
        if name == writer::MARKED {
            continue;
        }
        let mut without = disk.clone();
        without.files.remove(name);
        assert!(
            matches!(reopen(&without), Err(OpenError::Lost(_))),
            "without {name}"
        );
    }
}

/// The possible remains of a write of one more frame, sector by sector, when the machine dies in the middle of it.
#[test]
fn an_unfinished_write_is_cleared_away_whatever_of_it_is_there() {
    let before = small();
    let mut opened = reopen(&before).unwrap();
    opened.writer.perform([record(8..10, 3, 900)]).unwrap();
    let after = opened.writer.disk_mut().clone();
    let name = segment_name(1);
    let (old, new) = (&before.files[&name], &after.files[&name]);
    let changed: Vec<usize> = (0..old.len() / SECTOR)
        .filter(|at| old[at * SECTOR..][..SECTOR] != new[at * SECTOR..][..SECTOR])
        .collect();
    assert_eq!(changed.len(), 4);
    for landed in 0..1_u32 << changed.len() {
        let mut torn = before.clone();
        let file = torn.files.get_mut(&name).unwrap();
        for (bit, at) in changed.iter().enumerate() {
            if landed >> bit & 1 == 1 {
                file[at * SECTOR..][..SECTOR].copy_from_slice(&new[at * SECTOR..][..SECTOR]);
            }
        }
        let mut opened = reopen(&torn).unwrap();
        let whole = landed + 1 == 1 << changed.len();
        let last = if whole { 9 } else { 7 };
        assert_eq!(indexes(&opened).last(), Some(&last), "{landed:b}");
        // It goes on from there, and the cleared content does not come back.
        opened
            .writer
            .perform([record(last + 1..last + 2, 4, 10)])
            .unwrap();
        let again = reopen(opened.writer.disk_mut()).unwrap();
        assert_eq!(indexes(&again).last(), Some(&(last + 1)), "{landed:b}");
    }
}

/// The frame was acknowledged and its sectors are zeros now, as if it had never been written: only the mark tells.
#[test]
fn a_synced_frame_that_vanishes_is_lost_memory() {
    let mut disk = small();
    let file = disk.files.get_mut(&segment_name(1)).unwrap();
    let last = file.iter().rposition(|&byte| byte != 0).unwrap() / SECTOR;
    file[last * SECTOR..][..SECTOR].fill(0);
    let error = reopen(&disk).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("synced"), "{error}");
}

/// A member with entries 2 to 59, in several segments.
fn long() -> MemoryDisk {
    let mut opened = open(MemoryDisk::default(), options()).unwrap();
    let writer = &mut opened.writer;
    writer
        .perform([Write::Identity(identity().encode())])
        .unwrap();
    for index in 2..60 {
        writer.perform([record(index..index + 1, 2, 1000)]).unwrap();
    }
    writer.disk_mut().clone()
}

/// Frames that had become zeros at the end of a segment were reported as damage of the segment behind it.
#[test]
fn sectors_that_vanish_are_reported_of_their_own_segment() {
    let disk = long();
    let segments = disk.files.iter();
    for (name, bytes) in segments.filter(|(name, _)| name.starts_with("segment")) {
        let written = |at: &usize| bytes[at * SECTOR..][..SECTOR].iter().any(|&byte| byte != 0);
        for at in (1..bytes.len() / SECTOR).filter(written) {
            for vanished in [1, 2, 3] {
                let mut damaged = disk.clone();
                let end = bytes.len().min((at + vanished) * SECTOR);
                damaged.files.get_mut(name).unwrap()[at * SECTOR..end].fill(0);
                let error = reopen(&damaged).map(|_| ()).unwrap_err();
                let named = error.to_string().starts_with(name.as_str());
                assert!(named, "{vanished} from {at} of {name}: {error}");
            }
        }
    }
}

#[test]
fn segments_follow_each_other_and_a_missing_one_is_noticed() {
    let disk = long();
    let segments: Vec<&String> = disk
        .files
        .keys()
        .filter(|name| name.starts_with("segment"))
        .collect();
    assert!(segments.len() > 3, "{segments:?}");
    assert_eq!(indexes(&reopen(&disk).unwrap()).len(), 58);
    for name in segments {
        let mut without = disk.clone();
        without.files.remove(name);
        assert!(
            matches!(reopen(&without), Err(OpenError::Lost(_))),
            "without {name}"
        );
    }
}

#[test]
fn what_does_not_fit_is_refused_in_words() {
    let disk = small();
    let other = OpenOptions {
        node_id: NodeId(2),
        ..options()
    };
    let error = open(disk.clone(), other).map(|_| ()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "identity belongs to node 1, this replica was started for node 2"
    );
    let mut newer = identity().encode();
    newer[8] = 9;
    let body = newer.len() - 4;
    let crc = crc32c([&newer[..body]]).to_le_bytes();
    newer[body..].copy_from_slice(&crc);
    let mut newer_disk = disk;
    newer_disk.files.insert("identity".to_owned(), newer);
    let error = reopen(&newer_disk).map(|_| ()).unwrap_err();
    assert!(
        matches!(error, OpenError::Newer { found: 9, .. }),
        "{error}"
    );
    let mut newer_segment = small();
    let segment = newer_segment.files.get_mut(&segment_name(1)).unwrap();
    segment[8] = 9;
    let crc = crc32c([&segment[..32]]).to_le_bytes();
    segment[32..36].copy_from_slice(&crc);
    let error = reopen(&newer_segment).map(|_| ()).unwrap_err();
    assert!(
        matches!(error, OpenError::Newer { found: 9, .. }),
        "{error}"
    );
    let mut foreign = MemoryDisk::default();
    foreign.files.insert("notes.txt".to_owned(), vec![1]);
    assert!(matches!(reopen(&foreign), Err(OpenError::Foreign { .. })));
}

#[test]
fn without_syncs_only_an_orderly_end_keeps_the_memory() {
    let options = OpenOptions {
        fsync: Fsync::None,
        ..options()
    };
    let mut opened = open(small(), options).unwrap();
    opened.writer.perform([record(8..9, 3, 10)]).unwrap();
    assert!(matches!(
        open(opened.writer.disk_mut().clone(), options),
        Err(OpenError::Lost(_))
    ));
    opened.writer.finish().unwrap();
    let again = open(opened.writer.disk_mut().clone(), options).unwrap();
    assert_eq!(indexes(&again).last(), Some(&8));
}

#[test]
fn lost_memory_is_set_aside_and_the_replica_starts_again() {
    let mut disk = small();
    disk.files.get_mut("identity").unwrap()[20] ^= 1;
    let options = OpenOptions {
        rejoin: true,
        incarnation: Incarnation(12),
        ..options()
    };
    let mut opened = open(disk, options).unwrap();
    assert_eq!(opened.incarnation, Incarnation(12));
    assert!(opened.restored.is_none());
    assert_eq!(opened.lost.unwrap().file, "identity");
    let files = &opened.writer.disk_mut().files;
    assert!(files.contains_key("lost-000000000000000c-identity"));
    assert!(files.contains_key("identity"));
}

/// A snapshot of the state after entry `index`, written piece by piece.
fn write_snapshot(writer: &mut Writer<MemoryDisk>, index: u64, term: u64) {
    write_snapshot_with(writer, index, term, <[u8]>::to_vec);
}

/// The same with other chunks.
fn write_snapshot_with(
    writer: &mut Writer<MemoryDisk>,
    index: u64,
    term: u64,
    change: impl Fn(&[u8]) -> Vec<u8>,
) {
    use crate::snapshot_transfer::{Image, Piece};
    use crate::state_machine::StateMachine;
    use trine_transport::time::Instant;
    let origin = identity().origin.unwrap();
    let members = &origin.members.0;
    let mut state = StateMachine::new(ClusterId(7), origin.genesis, members, index);
    let mut image = Image::begin(Instant::ZERO, &mut state, 1024).unwrap();
    let head = SnapshotHead {
        cluster: ClusterId(7),
        index,
        term,
        conf: ConfState {
            voters: vec![11],
            ..ConfState::default()
        },
    };
    let piece = |bytes| Write::SnapshotPiece { stream: 1, bytes };
    writer.perform([piece(begin_piece(&head))]).unwrap();
    for number in 0.. {
        match image.piece(number, state.store_mut()) {
            Piece::Chunk(chunk, last) => {
                writer
                    .perform([piece(middle_piece(number + 1, &change(chunk)))])
                    .unwrap();
                if last {
                    let end = Write::SnapshotEnd { stream: 1, index };
                    writer.perform([piece(end_piece(number + 2)), end]).unwrap();
                    return;
                }
            }
            Piece::Pending => {}
            Piece::Gone => panic!("piece {number} is gone"),
        }
    }
}

/// Gives a changed chunk of a snapshot the checksum that it has now.
fn sealed_again(chunk: &mut [u8]) {
    let front = [chunk[0], chunk[1], chunk[2], chunk[3]];
    let crc = crate::snapshot_transfer::checksum(front, &chunk[8..]);
    chunk[4..8].copy_from_slice(&crc.to_le_bytes());
}

/// After a step back to an earlier release these files were called lost, and with --rejoin they were set aside, at every
/// replica of the group.
#[test]
fn what_a_later_release_has_written_is_not_lost() {
    use trine_kvstore::command::STATE_VERSION;
    let mut newer = identity();
    let origin = newer.origin.as_mut().unwrap();
    let version_at = origin.genesis.encode();
    origin.genesis.state_version = STATE_VERSION + 1;
    let mut disk = small();
    disk.files.insert("identity".to_owned(), newer.encode());

    let newer_head = |chunk: &[u8]| {
        let mut chunk = chunk.to_vec();
        let at = chunk
            .windows(version_at.len())
            .position(|bytes| bytes == version_at);
        if let Some(at) = at {
            chunk[at + 1] = STATE_VERSION + 1;
            sealed_again(&mut chunk);
        }
        chunk
    };
    // Nothing of it looks as it does today but the version in front.
    let unlike = |chunk: &[u8]| {
        let mut chunk = chunk.to_vec();
        if chunk[1] > 0 {
            chunk.truncate(19);
            chunk[1] = STATE_VERSION + 1;
            sealed_again(&mut chunk);
        }
        chunk
    };
    let mut opened = reopen(&small()).unwrap();
    write_snapshot_with(&mut opened.writer, 7, 3, newer_head);
    let mut other = reopen(&small()).unwrap();
    write_snapshot_with(&mut other.writer, 7, 3, unlike);
    for disk in [&disk, opened.writer.disk_mut(), other.writer.disk_mut()] {
        for rejoin in [false, true] {
            let options = OpenOptions {
                rejoin,
                ..options()
            };
            let error = open(disk.clone(), options).map(|_| ()).unwrap_err();
            let found = u16::from(STATE_VERSION) + 1;
            assert!(
                matches!(error, OpenError::Newer { found: other, .. } if other == found),
                "{error}"
            );
        }
    }
}

/// A first start without syncs may end before it has an identity. The mark that it left made a later start call the memory
/// lost of a replica that had always synced.
#[test]
fn the_mark_of_an_unfinished_first_start_says_nothing_about_the_next_one() {
    let mut disk = MemoryDisk::default();
    disk.files.insert("unsynced".to_owned(), Vec::new());
    let mut opened = open(disk, options()).unwrap();
    let writer = &mut opened.writer;
    writer
        .perform([Write::Identity(identity().encode())])
        .unwrap();
    writer.perform([record(2..3, 2, 10)]).unwrap();
    assert_eq!(indexes(&reopen(writer.disk_mut()).unwrap()), [2]);
}

#[test]
fn a_snapshot_takes_the_place_of_the_log_that_it_holds() {
    let mut opened = open(MemoryDisk::default(), options()).unwrap();
    let writer = &mut opened.writer;
    writer
        .perform([Write::Identity(identity().encode())])
        .unwrap();
    for index in 2..60 {
        writer.perform([record(index..index + 1, 2, 1000)]).unwrap();
    }
    write_snapshot(writer, 50, 2);
    let disk = writer.disk_mut().clone();
    assert!(!disk.files.contains_key(&segment_name(1)));
    let opened = reopen(&disk).unwrap();
    assert_eq!(indexes(&opened), (51..60).collect::<Vec<u64>>());
    let name = "snapshot-0000000000000032.image";
    let len = disk.files[name].len();
    for at in 0..len {
        let mut damaged = disk.clone();
        damaged.files.get_mut(name).unwrap()[at] ^= 1 << (at % 8);
        let error = reopen(&damaged).map(|_| ()).unwrap_err();
        assert!(matches!(error, OpenError::Lost(_)), "byte {at}: {error}");
        let mut cut = disk.clone();
        cut.files.get_mut(name).unwrap().truncate(at);
        assert!(matches!(reopen(&cut), Err(OpenError::Lost(_))), "at {at}");
    }
}

/// The machine dies when an installed snapshot is durable and the record that says so is not. The log then holds
/// entries of a leader whose entries were replaced.
#[test]
fn a_log_that_the_snapshot_has_replaced_is_not_taken_for_its_continuation() {
    let mut opened = reopen(&small()).unwrap();
    write_snapshot(&mut opened.writer, 5, 4);
    let again = reopen(opened.writer.disk_mut()).unwrap();
    assert!(indexes(&again).is_empty());
    let state = again.restored.unwrap().hard_state;
    assert_eq!((state.term, state.vote, state.commit), (4, 0, 5));
}

/// The machine dies there, comes back, and goes on after the snapshot; entries that it acknowledges from then on are on
/// its disk. The next start used to read old and new entries as one log. Where the old ones ended before the snapshot,
/// there was a gap, and the memory counted as lost. Where they reached it, the entry at its place was of another term.
/// All entries acknowledged since were then thrown away with the old log, without a message.
#[test]
fn what_is_acknowledged_behind_such_a_snapshot_is_there_after_the_next_restart() {
    for (index, old) in [(5, "reaches the snapshot"), (50, "ends before it")] {
        let mut opened = reopen(&small()).unwrap();
        write_snapshot(&mut opened.writer, index, 4);
        let mut disk = opened.writer.disk_mut().clone();
        for next in 1..4 {
            let mut again = reopen(&disk).unwrap_or_else(|error| panic!("{old}: {error}"));
            let acknowledged: Vec<u64> = (index + 1..index + next).collect();
            assert_eq!(indexes(&again), acknowledged, "the old log {old}");
            let next = index + next;
            again
                .writer
                .perform([record(next..next + 1, 4, 10)])
                .unwrap();
            disk = again.writer.disk_mut().clone();
        }
    }
}

/// A member of cluster 7 whose log goes up to entry 7; they have no commands, as a leader's first one has none.
pub(super) fn recoverable() -> MemoryDisk {
    let mut begun = open(MemoryDisk::default(), options()).unwrap();
    let identity = Write::Identity(identity().encode());
    begun
        .writer
        .perform([identity, record(2..8, 2, 0)])
        .unwrap();
    begun.writer.disk_mut().clone()
}

#[test]
fn a_majority_is_gone_and_one_directory_becomes_a_group_of_its_own() {
    let mut disk = recoverable();
    let member = Member {
        node_id: NodeId(1),
        role: MemberRole::Voter,
        incarnation: Incarnation(12),
        address: "127.0.0.1:7471".parse().unwrap(),
    };
    let options = OpenOptions {
        incarnation: Incarnation(12),
        ..options()
    };
    let shared = SharedDisk(std::rc::Rc::new(std::cell::RefCell::new(disk.clone())));
    let recovered = recover(shared.clone(), options, ClusterId(8), member).unwrap();
    assert_eq!((recovered.old, recovered.last), (ClusterId(7), 7));
    disk = shared.0.borrow().clone();
    let opened = reopen(&disk).unwrap();
    let restored = opened.restored.unwrap();
    assert_eq!(restored.cluster(), ClusterId(8));
    assert_eq!(restored.incarnation(), Incarnation(12));
    let loaded = restored.snapshot.unwrap();
    assert_eq!(loaded.head.conf.voters, [12]);
    assert_eq!(loaded.state.applied_index(), 7);
    assert_eq!(loaded.state.members().all(), [member]);
    let empty = recover(MemoryDisk::default(), options, ClusterId(8), member);
    assert_eq!(empty, Err(RecoverError::Empty));
}

/// The process ends between a write and its sync, or because the sync fails: the next one sees the frame, counts on it,
/// and says so to others. The frame used to disappear with the power all the same, for it was never synced, and a
/// failed sync cannot be repaired by repeating it.
#[test]
fn a_frame_that_is_seen_after_a_restart_outlives_the_power() {
    let mut opened = open(CachedDisk::of(&small()), options()).unwrap();
    opened.writer.disk_mut().syncs_left = Some(0);
    let error = opened.writer.perform([record(8..10, 3, 900)]).unwrap_err();
    assert_eq!(error.operation, "sync");
    let mut disk = opened.writer.disk_mut().clone();
    assert_eq!(
        indexes(&reopen(&disk.after_power_loss()).unwrap()).last(),
        Some(&7)
    );
    disk.syncs_left = None;
    let mut again = open(disk, options()).unwrap();
    let restored = again.restored.as_ref().unwrap();
    assert_eq!(restored.last_index(), 9);
    let after = again.writer.disk_mut().after_power_loss();
    assert_eq!(indexes(&reopen(&after).unwrap()).last(), Some(&9));
}

/// Rings when the writer thread has something to say.
struct Bell(std::sync::mpsc::SyncSender<()>);

impl Wake for Bell {
    fn wake(&self) {
        self.0.send(()).unwrap();
    }
}

/// The device fails at the second of three writes: the replica hears of the first, then of the failure, and of nothing
/// any more. It halts, which ends its process. The failed write had not been promised to any replica or client.
#[test]
fn a_failed_sync_ends_the_replica() {
    let pool = Pool::new(PoolConfig::default());
    let (config, now) = (ReplicaConfig::default(), Instant::ZERO);
    let own = "127.0.0.1:7471".parse().unwrap();
    let (id, node_id) = (Incarnation(11), NodeId(1));
    let mut replica = Replica::new(config, id, node_id, own, vec![(node_id, own)], pool, 1, now)
        .unwrap()
        .on_disk(None, now);
    let mut opened = open(CachedDisk::of(&small()), options()).unwrap();
    opened.writer.disk_mut().syncs_left = Some(1);
    let (bell, rung) = std::sync::mpsc::sync_channel(8);
    let waker = Waker::new(std::sync::Arc::new(Bell(bell)));
    let (mut queue, end) = WriterThread::start(opened.writer, waker).unwrap();
    let mut hear = |number, write| {
        queue.submit(number, write);
        rung.recv().unwrap();
        queue.poll()
    };
    assert_eq!(hear(1, record(8..9, 3, 10)), Some(Ok(1)));
    let error = hear(2, record(9..10, 3, 10)).unwrap().unwrap_err();
    assert_eq!((error.operation, error.cause), ("sync", DiskCause::Device));
    replica.on_write_failed(&error);
    assert!(
        replica
            .halted()
            .unwrap()
            .to_string()
            .contains("cannot sync")
    );
    // Nothing more is written, and ending does not wait for it.
    queue.submit(3, record(10..11, 3, 10));
    drop(queue);
    assert!(end.wait(std::time::Duration::from_secs(60)));
}

/// The same with names: the process ends when its group's identity was renamed into place and the name not synced.
#[test]
fn a_name_that_is_seen_after_a_restart_outlives_the_power() {
    let mut begun = open(CachedDisk::default(), options()).unwrap();
    begun.writer.disk_mut().syncs_left = Some(1);
    let identity = Write::Identity(identity().encode());
    begun.writer.perform([identity]).unwrap_err();
    let mut disk = begun.writer.disk_mut().clone();
    assert!(reopen(&disk.after_power_loss()).unwrap().restored.is_none());
    disk.syncs_left = None;
    let mut again = open(disk, options()).unwrap();
    assert!(again.restored.is_some());
    again.writer.perform([record(2..3, 2, 10)]).unwrap();
    let after = again.writer.disk_mut().after_power_loss();
    assert_eq!(indexes(&reopen(&after).unwrap()), [2]);
}

/// A disk that can still be inspected after it was given away.
#[derive(Clone)]
pub(crate) struct SharedDisk<D>(pub(crate) std::rc::Rc<std::cell::RefCell<D>>);

impl<D: Disk> Disk for SharedDisk<D> {
    fn names(&mut self) -> Result<Vec<String>, DiskError> {
        self.0.borrow_mut().names()
    }
    fn size(&mut self, name: &str) -> Result<u64, DiskError> {
        self.0.borrow_mut().size(name)
    }
    fn read(&mut self, name: &str, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        self.0.borrow_mut().read(name, offset, into)
    }
    fn create(&mut self, name: &str, size: u64) -> Result<(), DiskError> {
        self.0.borrow_mut().create(name, size)
    }
    fn write(&mut self, name: &str, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.0.borrow_mut().write(name, offset, bytes)
    }
    fn sync(&mut self, name: &str) -> Result<(), DiskError> {
        self.0.borrow_mut().sync(name)
    }
    fn rename(&mut self, from: &str, to: &str) -> Result<(), DiskError> {
        self.0.borrow_mut().rename(from, to)
    }
    fn remove(&mut self, name: &str) -> Result<(), DiskError> {
        self.0.borrow_mut().remove(name)
    }
    fn sync_names(&mut self) -> Result<(), DiskError> {
        self.0.borrow_mut().sync_names()
    }
}

/// A foreign file beside ours must not be taken for one of them, and be asked for under another name.
#[test]
fn only_names_as_they_are_written_are_those_of_files() {
    for number in [0, 1, 0xabc, u64::MAX] {
        assert_eq!(segment::number(&segment::name(number)), Some(number));
        let snapshot = snapshot_file::name(number);
        assert_eq!(snapshot_file::index(&snapshot), Some(number));
    }
    for digits in [
        "+00000000000000f",
        "000000000000000F",
        "f",
        "00000000000000000f",
        "",
    ] {
        let with_digits = |name: String| name.replace("0000000000000000", digits);
        assert_eq!(segment::number(&with_digits(segment::name(0))), None);
        assert_eq!(
            snapshot_file::index(&with_digits(snapshot_file::name(0))),
            None
        );
    }
}
