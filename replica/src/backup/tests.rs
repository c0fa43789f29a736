//! Files as bytes: whole, cut anywhere, damaged anywhere; and what a directory made of one opens as.

use trine_keys::{Fingerprint, Issuer, Role, UserName};
use trine_kvstore::{Command, Position, Response, Rights};
use trine_protocol::message::{
    BackupHead, ClientRequest, ClusterId, GroupId, Incarnation, Member, MemberRole, NodeId,
    Operation,
};
use trine_transport::time::Instant;

use super::*;
use crate::config::{RESTORE_INDEX_GAP, RESTORE_NUMBER_GAP, ReplicaConfig};
use crate::disk::{MemoryDisk, OpenOptions, open};
use crate::snapshot_transfer::{Image, Piece};
use crate::state_machine::entry::EntryBuilder;
use crate::state_machine::{Genesis, StateMachine};

const SECOND: u64 = 1_000_000_000;

fn member(id: u32, incarnation: u64) -> Member {
    Member {
        node_id: NodeId(id),
        role: MemberRole::Voter,
        incarnation: Incarnation(incarnation),
        address: ([127, 0, 0, 1], 7470 + id as u16).into(),
    }
}

/// Applies commands of one client, all in an entry at this group time.
fn apply(machine: &mut StateMachine, time_ns: u64, commands: &[Command<'_>]) -> Vec<u64> {
    let mut builder = EntryBuilder::default();
    let index = machine.applied_index() + 1;
    for (place, command) in commands.iter().enumerate() {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        let sequence = index << 16 | place as u64;
        builder.push(&ClientRequest {
            timed: false,
            operation: Operation::Apply,
            group: GroupId(0),
            cluster: ClusterId(7),
            client: Position::new(2, 0).as_u64(),
            sequence,
            lowest_awaited: sequence,
            session_number: 0,
            check: trine_protocol::message::NO_CHECK,
            for_user: None,
            command: &bytes,
        });
    }
    let entry = builder.finish(time_ns);
    let mut positions = Vec::new();
    machine
        .apply(index, &entry, |_, answer| {
            positions.push(answer.position.as_u64())
        })
        .unwrap();
    positions
}

fn state() -> StateMachine {
    let genesis = Genesis::new(&ReplicaConfig::default(), [1, 2]);
    let mut machine = StateMachine::new(ClusterId(7), genesis, &[member(1, 11), member(2, 12)], 1);
    let mut builder = EntryBuilder::default();
    builder.push(&ClientRequest {
        client: 99,
        ..ClientRequest::bare(Operation::Register)
    });
    machine.apply(2, &builder.finish(1), |_, _| {}).unwrap();
    for number in 0..40_u32 {
        let key = number.to_le_bytes();
        let value = vec![number as u8; 9_000];
        let put = Command::Put {
            key: &key,
            value: &value,
        };
        apply(&mut machine, SECOND, &[put]);
    }
    let keys = [0_u32.to_le_bytes(), 1_u32.to_le_bytes()];
    let expire = |after_s: u64, key| Command::Expire {
        key,
        after_ns: after_s * SECOND,
    };
    let last = [expire(10, &keys[0]), expire(100, &keys[1])];
    apply(&mut machine, 2 * SECOND, &last);
    machine
}

fn header(machine: &StateMachine) -> Header {
    let stats = machine.store().stats();
    Header {
        head: BackupHead {
            image: 5,
            cluster: machine.cluster(),
            index: machine.applied_index(),
            term: 3,
            group_time_ns: machine.group_time_ns(),
            items: stats.items,
            logical_bytes: stats.logical_bytes,
            state_version: machine.version(),
            users: machine.store().users().len() as u32,
        },
        made_at_ms: 1_700_000_000_000,
        replica: Incarnation(12),
    }
}

fn file_of(machine: &mut StateMachine) -> Vec<u8> {
    let header = header(machine);
    file_with(machine, &header)
}

fn file_with(machine: &mut StateMachine, header: &Header) -> Vec<u8> {
    let (mut encoder, mut file) = Encoder::begin(header);
    let mut image = Image::begin_without_sessions(Instant::ZERO, machine).unwrap();
    let mut number = 0;
    loop {
        match image.piece(number, machine.store_mut()) {
            Piece::Chunk(chunk, last) => {
                file.extend_from_slice(&encoder.frame(chunk));
                file.extend_from_slice(chunk);
                number += 1;
                if last {
                    break;
                }
            }
            Piece::Pending => {}
            Piece::Gone => panic!("nothing was overwritten"),
        }
    }
    assert_eq!(encoder.bytes(), file.len() as u64);
    file.extend_from_slice(&encoder.end());
    file
}

fn read(file: &[u8]) -> Result<Content, RestoreError> {
    let mut restorer = Restorer::default();
    for portion in file.chunks(10_000) {
        restorer.feed(portion)?;
    }
    restorer.finish()
}

fn decode(file: &[u8]) -> Result<(), Damage> {
    let mut decoder = Decoder::default();
    decoder.feed(file);
    while decoder.part()?.is_some() {}
    decoder.finish()
}

fn options() -> OpenOptions {
    OpenOptions {
        node_id: NodeId(1),
        fsync: crate::disk::Fsync::Batch,
        segment_bytes: crate::config::SEGMENT_BYTES_MIN,
        incarnation: Incarnation(21),
        rejoin: false,
    }
}

fn restored(file: &[u8], ttl: TimeToLive) -> StateMachine {
    let content = read(file).unwrap();
    let (begun, restored) = restore_in_memory(content, ClusterId(8), member(1, 21), ttl).unwrap();
    let loaded = restored.snapshot.unwrap();
    assert_eq!(loaded.state.applied_index(), begun.index);
    loaded.state
}

#[test]
fn a_group_begins_with_the_state_of_a_file_and_with_no_sessions() {
    let mut old = state();
    let file = file_of(&mut old);
    let new = restored(&file, TimeToLive::Stands);
    assert_eq!(new.store().state_hash(), old.store().state_hash());
    // The cluster id is the random part.
    let gap = RESTORE_INDEX_GAP + 8;
    assert_eq!(new.applied_index(), old.applied_index() + gap);
    assert_eq!(
        (new.cluster(), new.group_time_ns()),
        (ClusterId(8), old.group_time_ns())
    );
    assert_eq!(new.members().all(), [member(1, 21)]);
    assert_eq!(
        (old.sessions().open_count(), new.sessions().open_count()),
        (1, 0)
    );
}

#[test]
fn a_directory_opens_as_the_first_member_of_the_new_group() {
    let mut old = state();
    let file = file_of(&mut old);
    let disk = std::rc::Rc::new(std::cell::RefCell::new(MemoryDisk::default()));
    let shared = crate::disk::tests::SharedDisk(std::rc::Rc::clone(&disk));
    let content = read(&file).unwrap();
    let ttl = TimeToLive::Stands;
    let begun = restore(shared, options(), content, ClusterId(8), member(1, 21), ttl).unwrap();
    let written = disk.borrow().clone();
    let opened = open(written.clone(), options()).unwrap().restored.unwrap();
    assert_eq!(
        (opened.cluster(), opened.last_index()),
        (ClusterId(8), begun.index)
    );
    let loaded = opened.snapshot.unwrap();
    assert_eq!(
        (loaded.head.term, &loaded.head.conf.voters[..]),
        (4, &[21][..])
    );
    assert_eq!(loaded.state.store().state_hash(), old.store().state_hash());
    let again = restore(
        written,
        options(),
        read(&file).unwrap(),
        ClusterId(9),
        member(1, 22),
        ttl,
    );
    assert!(
        matches!(again, Err(RestoreError::NotEmpty { .. })),
        "{again:?}"
    );
}

/// The items say when they end by the group's clock, which stood still unless the time is to count.
#[test]
fn times_to_live_stand_still_or_count() {
    let mut old = state();
    let file = file_of(&mut old);
    let left = |machine: &StateMachine, number: u32| {
        let command = Command::TimeToLive {
            key: &number.to_le_bytes(),
        };
        match machine.store().read(&command) {
            Response::TimeToLive { remaining_ns } => remaining_ns,
            _ => None,
        }
    };
    let of_old = left(&old, 0);
    assert_eq!(of_old, Some(10 * SECOND));
    assert_eq!(left(&restored(&file, TimeToLive::Stands), 0), of_old);
    let now_ms = 1_700_000_000_000 + 20_000;
    let counted = restored(&file, TimeToLive::Wall { now_ms });
    assert_eq!(counted.group_time_ns(), old.group_time_ns() + 20 * SECOND);
    assert_eq!(left(&counted, 1), Some(80 * SECOND));
    assert_eq!(counted.store().stats().items, 39);
    let before = restore_in_memory(
        read(&file).unwrap(),
        ClusterId(8),
        member(1, 21),
        TimeToLive::Wall { now_ms: 5 },
    );
    let behind_ms = 1_700_000_000_000 - 5;
    assert_eq!(before.map(|_| ()), Err(RestoreError::Clock { behind_ms }));
}

/// A write of the lost future may have told its client a version. No later item has it, so nothing swaps by it.
#[test]
fn a_version_of_the_lost_future_never_comes_again() {
    let mut old = state();
    let file = file_of(&mut old);
    let key = 7_u32.to_le_bytes();
    let put = Command::Put {
        key: &key,
        value: b"lost",
    };
    let lost: Vec<u64> = (0..50)
        .flat_map(|_| apply(&mut old, 2 * SECOND, &[put.clone(), put.clone()]))
        .collect();
    let mut new = restored(&file, TimeToLive::Stands);
    for round in 0..100_u64 {
        let index = new.applied_index() + 1 + round;
        for (place, &version) in (0..).zip(&lost) {
            let swap = Command::CompareAndSwap {
                key: &key,
                expected: Position::from_u64(version),
                value: b"swapped",
            };
            let at = Position::new(index, place);
            let answer = new.store_mut().apply(at, &swap);
            assert!(matches!(answer, Response::Conflict { .. }), "{answer:?}");
        }
        let at = Position::new(index, u16::MAX);
        new.store_mut().apply(at, &put);
    }
    let found = new.store().read(&Command::Get { key: &key });
    let Response::Value { value, version } = found else {
        panic!("{found:?}");
    };
    assert_eq!(value, b"lost");
    assert!(version.as_u64() > *lost.last().unwrap());
}

#[test]
fn a_file_that_is_cut_says_where() {
    let file = file_of(&mut state());
    assert_eq!(decode(&file), Ok(()));
    let step = 977;
    for length in (0..file.len())
        .step_by(step)
        .chain(file.len() - 40..file.len())
    {
        let damage = decode(&file[..length]).unwrap_err();
        assert_eq!(
            (damage.offset, damage.what),
            (length as u64, WhatIsWrong::Cut)
        );
        assert!(read(&file[..length]).is_err());
    }
    let mut longer = file.clone();
    longer.push(0);
    let damage = decode(&longer).unwrap_err();
    assert_eq!(
        (damage.offset, damage.what),
        (file.len() as u64, WhatIsWrong::Trailing)
    );
}

#[test]
fn a_damaged_byte_is_found_in_the_frame_that_has_it() {
    let file = file_of(&mut state());
    // Where frames begin.
    let mut begins = vec![0, header::SIZE];
    loop {
        let at = *begins.last().unwrap();
        let length = u32::from_le_bytes(file[at..at + 4].try_into().unwrap()) as usize;
        if length == 0 {
            break;
        }
        begins.push(at + FRAME_HEADER + length);
    }
    assert!(begins.len() > 5, "{begins:?}");
    for at in (0..file.len())
        .step_by(331)
        .chain(0..150)
        .chain(file.len() - 33..file.len())
    {
        let mut copy = file.clone();
        copy[at] ^= 0x20;
        let damage = decode(&copy).unwrap_err();
        let begin = *begins.iter().rfind(|&&begin| begin <= at).unwrap() as u64;
        // A length that is too large for the rest looks like an end that is missing.
        let plausible = damage.offset == begin || damage.what == WhatIsWrong::Cut;
        assert!(plausible, "byte {at}: {damage}");
        assert!(read(&copy).is_err(), "byte {at}");
    }
}

#[test]
fn frames_that_are_missing_repeated_or_swapped_are_noticed() {
    let machine = &mut state();
    let file = file_of(machine);
    let mut frames = Vec::new();
    let mut decoder = Decoder::default();
    decoder.feed(&file);
    while let Some(part) = decoder.part().unwrap() {
        if let Part::Frame(content) = part {
            frames.push(content);
        }
    }
    let written = |order: &[usize]| {
        let (mut encoder, mut file) = Encoder::begin(&header(machine));
        for &number in order {
            file.extend_from_slice(&encoder.frame(&frames[number]));
            file.extend_from_slice(&frames[number]);
        }
        file.extend_from_slice(&encoder.end());
        file
    };
    let all: Vec<usize> = (0..frames.len()).collect();
    assert_eq!(written(&all), file);
    let mut swapped = all.clone();
    swapped.swap(2, 3);
    let mut repeated = all.clone();
    repeated.insert(2, 2);
    // The checksums are right, and the content is no state.
    for wrong in [&all[1..], &all[..all.len() - 1], &swapped, &repeated] {
        let wrong = written(wrong);
        assert_eq!(decode(&wrong), Ok(()));
        assert!(read(&wrong).is_err());
    }
    // The bytes of two frames changed their places.
    let second = header::SIZE + FRAME_HEADER + frames[0].len();
    let third = second + FRAME_HEADER + frames[1].len();
    let end = third + FRAME_HEADER + frames[2].len();
    let moved = [
        &file[..second],
        &file[third..end],
        &file[second..third],
        &file[end..],
    ]
    .concat();
    assert_eq!(decode(&moved).unwrap_err().offset, second as u64);
}

#[test]
fn other_files_and_later_formats_are_told_apart() {
    let what = |file: &[u8]| decode(file).unwrap_err().what;
    assert_eq!(what(b"hello"), WhatIsWrong::NoBackup);
    assert_eq!(what(&[0; 200]), WhatIsWrong::NoBackup);
    assert_eq!(what(b""), WhatIsWrong::Cut);
    let mut newer = file_of(&mut state());
    newer[8] = 2;
    assert_eq!(what(&newer), WhatIsWrong::Newer { format: 2 });
}

#[test]
fn the_backup_of_a_later_release_is_told_apart_before_its_state_is_read() {
    let machine = state();
    let mut header = header(&machine);
    header.head.state_version = u8::MAX;
    let (_, file) = Encoder::begin(&header);
    let known = trine_kvstore::command::STATE_VERSION;
    let newer = RestoreError::Newer {
        version: u8::MAX,
        known,
    };
    assert_eq!(Restorer::default().feed(&file), Err(newer));
}

/// Two groups that begin with one file give out other positions, and other generations of keys: a key that was drawn after the
/// backup, and has become void, must not come back to life.
#[test]
fn two_groups_from_one_file_give_out_other_positions_and_generations() {
    let mut old = state();
    let add = |name: &'static [u8]| Command::AddUser {
        issuer: Issuer {
            group: trine_keys::GroupId([1; 8]),
            root: Fingerprint([2; 4]),
        },
        name: UserName::new(name).unwrap(),
        rights: Rights {
            role: Role::Read,
            front: false,
            prefix: b"",
        },
    };
    apply(&mut old, 2 * SECOND, &[add(b"alice")]);
    let file = file_of(&mut old);
    let begin = |cluster| {
        let content = read(&file).unwrap();
        let ttl = TimeToLive::Stands;
        let (_, restored) = restore_in_memory(content, cluster, member(1, 21), ttl).unwrap();
        let mut machine = restored.snapshot.unwrap().state;
        let index = machine.applied_index();
        let at = Position::new(index + 1, 0);
        machine.store_mut().apply(at, &add(b"bob"));
        let bob = UserName::new(b"bob").unwrap();
        let generation = machine.store().users().named(bob).unwrap().generation;
        (index, generation)
    };
    let first = begin(ClusterId(0x1234_5678_9abc_def0));
    let second = begin(ClusterId(0xfedc_ba98_7654_3210));
    assert!(first.0 != second.0 && first.1 != second.1);
    for (index, generation) in [first, second] {
        assert!(index >= old.applied_index() + RESTORE_INDEX_GAP);
        assert!(generation > RESTORE_NUMBER_GAP);
    }
}

/// A file that names a term that no election can follow begins no group.
#[test]
fn a_term_that_nobody_can_follow_is_refused() {
    let mut machine = state();
    let mut header = header(&machine);
    header.head.term = u64::MAX;
    let file = file_with(&mut machine, &header);
    assert_eq!(read(&file).map(|_| ()), Err(RestoreError::OtherHeader));
}

/// Only the number of keys was compared. A header with another time or other sizes was taken.
#[test]
fn a_header_with_another_time_or_other_sizes_is_refused() {
    let mut machine = state();
    let changes: [fn(&mut BackupHead); 4] = [
        |head| head.group_time_ns += 1,
        |head| head.logical_bytes -= 1,
        |head| head.users += 1,
        |head| head.items += 1,
    ];
    for change in changes {
        let mut header = header(&machine);
        change(&mut header.head);
        let file = file_with(&mut machine, &header);
        let refused = read(&file).map(|_| ());
        assert_eq!(refused, Err(RestoreError::OtherHeader), "{header:?}");
    }
    assert!(read(&file_of(&mut machine)).is_ok());
}

/// A restored group's log has to have room behind its beginning.
#[test]
fn an_index_that_leaves_no_room_is_refused() {
    let mut machine = state();
    let content = read(&file_of(&mut machine)).unwrap();
    let index = Position::INDEX_MAX / 2;
    let mut header = header(&machine);
    header.head.index = index;
    let content = Content::with_header(content, header);
    let begun = restore_in_memory(content, ClusterId(8), member(1, 21), TimeToLive::Stands);
    assert_eq!(begun.map(|_| ()), Err(RestoreError::Index { index }));
}
