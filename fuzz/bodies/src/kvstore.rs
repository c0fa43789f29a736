//! The store: encoded commands, responses and snapshots, and lists of operations.

use trine_keys::{Fingerprint, GroupId, Issuer, Role, UserName};
use trine_kvstore::{
    Command, Cursor, ExpireCondition, KeyRange, Limits, Position, Prefix, Response, Rights,
    ScanOptions, SetCondition, SetExpiry, SetOptions, SnapshotReader, SnapshotStep, Store,
    StoreError, WalkContent,
};

const LIMITS: Limits = Limits {
    memory_bytes: 100_000,
    key_bytes: 1_000,
    value_bytes: 20_000,
};

/// The longest input that is worth running.
const INPUT_BYTES_MAX: usize = 64 * 1024;

/// A command that decodes has that one encoding, and every store survives it.
pub fn command(bytes: &[u8]) {
    let Ok(command) = Command::decode(bytes) else {
        return;
    };
    let mut again = Vec::new();
    command.encode(&mut again);
    assert_eq!(again, bytes, "an encoding is canonical");
    let mut store = Store::new(LIMITS, [1, 2]);
    for index in 1..4 {
        let response = store.apply(Position::new(index, 0), &command);
        let mut encoded = Vec::new();
        response.encode(&mut encoded);
        assert_eq!(Response::decode(&encoded), Ok(response));
    }
    let mut encoded = Vec::new();
    let response = store.read(&command);
    response.encode(&mut encoded);
    assert_eq!(Response::decode(&encoded), Ok(response));
}

/// A response that decodes has that one encoding, and what is behind it is skipped.
pub fn response(bytes: &[u8]) {
    let Ok(response) = Response::decode(bytes) else {
        return;
    };
    let mut again = Vec::new();
    response.encode(&mut again);
    assert!(bytes.starts_with(&again), "an encoding is canonical");
    again.extend_from_slice(b"of a later release");
    assert_eq!(Response::decode(&again), Ok(response));
}

/// Chunks with a length of two bytes in front of each. Their checksums and lengths are corrected,
/// so that damage gets past the first check. If a store is restored nevertheless, it must be a
/// valid state.
pub fn snapshot(bytes: &[u8]) {
    let mut reader = SnapshotReader::new();
    let mut rest = bytes;
    while let Some((length, behind)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_le_bytes(*length)).min(behind.len());
        let mut chunk = behind[..length].to_vec();
        rest = &behind[length..];
        mend(&mut chunk);
        if reader.push(&chunk).is_err() {
            break;
        }
    }
    let summary = reader.summary();
    if let Ok(mut store) = reader.finish() {
        assert_eq!(
            Some(store.state_hash()),
            summary.map(|summary| summary.state_hash)
        );
        assert_eq!(rebuilt(&mut store).state_hash(), store.state_hash());
    }
}

fn mend(chunk: &mut [u8]) {
    if chunk.len() < 32 {
        return;
    }
    let body_length = (chunk.len() - 32) as u32;
    chunk[24..28].copy_from_slice(&body_length.to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&chunk[..28]), &chunk[32..]);
    chunk[28..32].copy_from_slice(&crc.to_le_bytes());
}

/// Four bytes an operation. Two stores get the same ones; one of them is rebuilt now and then, and
/// the other writes snapshots in between.
pub fn operations(bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(INPUT_BYTES_MAX)];
    let (mut steady, mut moving) = (Store::new(LIMITS, [1, 2]), Store::new(LIMITS, [1, 2]));
    let mut time_ns = 0;
    let mut chunk = Vec::new();
    let mut pins = Vec::new();
    for (index, operation) in bytes.chunks_exact(4).enumerate() {
        let [kind, key, first, second] = *operation else {
            continue;
        };
        let at = Position::new(index as u64 + 1, 0);
        let value = vec![first; usize::from(second) * 40];
        let key_bytes = vec![key; usize::from(key % 50)];
        let key = key_bytes.as_slice();
        match kind % 16 {
            11 => {
                time_ns += u64::from(first);
                for store in [&mut steady, &mut moving] {
                    store.set_group_time(time_ns);
                    store.build_index();
                }
            }
            12 => drop(steady.begin_snapshot()),
            13 => drop(steady.snapshot_chunk(&mut chunk)),
            14 => steady.abandon_snapshot(),
            15 => moving = rebuilt(&mut moving),
            // So has DELETE: a flush ends the snapshot that is being written.
            3 if key.len() > 40 => {
                assert_eq!(
                    steady.apply(at, &Command::Flush),
                    moving.apply(at, &Command::Flush)
                );
                steady.free_flushed();
            }
            // PUT has two kinds, one of which is for users where the key is a long one.
            2 if key.len() > 40 => {
                let command = user_command(first, second);
                assert_eq!(steady.apply(at, &command), moving.apply(at, &command));
                assert_eq!(steady.users(), moving.users());
            }
            // GETDEL of a long key is about pins.
            4 if key.len() > 40 => change_pins(&mut pins, at, second, &mut steady, &mut moving),
            // And so has GET.
            0 if key.len() > 20 => {
                let command = range_command(&key[..3], first, second);
                assert_eq!(steady.apply(at, &command), moving.apply(at, &command));
            }
            kind => {
                let command = command_of(kind, key, &value, first, second);
                assert_eq!(steady.apply(at, &command), moving.apply(at, &command));
            }
        }
        assert_eq!(steady.state_hash(), moving.state_hash());
        check_pins(&mut pins, &steady);
    }
}

/// A pin, and the encoded page that the whole range was right before it.
type Pinned = (Position, Vec<u8>);

const ALL: KeyRange<'static> = KeyRange::Prefix(b"");

fn change_pins(
    pins: &mut Vec<Pinned>,
    at: Position,
    which: u8,
    steady: &mut Store,
    moving: &mut Store,
) {
    let number = usize::from(which / 4) % pins.len().max(1);
    let command = match (which % 4, pins.get(number)) {
        (2, Some((position, _))) => Command::RenewPin {
            position: *position,
        },
        (3, Some(_)) => Command::Unpin {
            position: pins.remove(number).0,
        },
        _ => Command::Pin,
    };
    let mut page = Vec::new();
    let options = ScanOptions::default();
    let scan = Command::Scan {
        range: ALL,
        options,
    };
    steady.read(&scan).encode(&mut page);
    let answer = steady.apply(at, &command);
    assert_eq!(answer, moving.apply(at, &command));
    if let (Command::Pin, Response::Pinned { position }) = (&command, answer) {
        pins.push((position, page));
    }
}

/// Every pin reads what was there, or has ended.
fn check_pins(pins: &mut Vec<Pinned>, store: &Store) {
    pins.retain(|(position, page)| {
        let command = Command::ScanAt {
            position: *position,
            range: ALL,
            options: ScanOptions::default(),
        };
        let mut found = Vec::new();
        match store.read(&command) {
            Response::Error(StoreError::PinEnded) => return false,
            other => other.encode(&mut found),
        }
        // Without an index, or with one that was not whole, there was no page then.
        if let Ok(Response::Items { items, .. }) = Response::decode(page) {
            assert_eq!(found, *page, "pin {position}");
            check_walk(*position, items.len() as u64, store);
        }
        true
    });
}

/// A walk and a count at a pin find as many keys as the page has.
fn check_walk(position: Position, keys: u64, store: &Store) {
    let counted = store.read(&Command::CountAt {
        position,
        range: ALL,
    });
    let next = None;
    assert_eq!(counted, Response::Counted { items: keys, next });
    let walked = store.read(&Command::WalkAt {
        position,
        from: Cursor::START,
        count: 0,
        content: WalkContent::Keys,
        prefix: Prefix(b""),
    });
    match walked {
        Response::Page(page) => assert_eq!(page.found.len() as u64, keys),
        other => panic!("{other:?}"),
    }
}

/// About keys that begin with one byte or another, most of which are short.
fn range_command(key: &[u8], first: u8, second: u8) -> Command<'_> {
    let range = match second % 4 {
        0 => KeyRange::Prefix(&[]),
        1 => KeyRange::Prefix(&key[..1]),
        2 => KeyRange::Between {
            start: &[],
            end: Some(key),
        },
        _ => KeyRange::Between {
            start: key,
            end: None,
        },
    };
    match first % 8 {
        0..=2 => Command::SetOrdered {
            on: !first.is_multiple_of(32),
        },
        3 | 4 => Command::Scan {
            range,
            options: ScanOptions {
                limit: u32::from(first / 8),
                reverse: second & 8 != 0,
                keys_only: second & 16 != 0,
            },
        },
        5 => Command::CountRange { range },
        _ => Command::DeleteRange {
            range,
            count: u32::from(second / 16),
        },
    }
}

fn user_command(first: u8, second: u8) -> Command<'static> {
    const PREFIX: [u8; 140] = [b'p'; 140];
    let name = UserName::new(&[b'a' + first % 8]).expect("a name");
    let issuer = Issuer {
        group: GroupId([first >> 7; 8]),
        root: Fingerprint([7; 4]),
    };
    match second % 4 {
        0 | 1 => Command::AddUser {
            issuer,
            name,
            rights: Rights {
                role: Role::ALL[usize::from(second >> 6)],
                front: second & 8 != 0,
                prefix: &PREFIX[..usize::from(second).min(PREFIX.len())],
            },
        },
        2 => Command::RotateUser { issuer, name },
        _ => Command::RemoveUser { name },
    }
}

fn command_of<'a>(kind: u8, key: &'a [u8], value: &'a [u8], first: u8, second: u8) -> Command<'a> {
    match kind {
        0 => Command::Get { key },
        1 | 2 => Command::Put { key, value },
        3 => Command::Delete { key },
        4 => Command::GetDelete { key },
        5 => Command::Increment {
            key,
            delta: i64::from(first) - i64::from(second),
        },
        6 => Command::Append { key, value },
        7 => match second % 8 {
            0 => Command::Expire {
                key,
                after_ns: u64::from(first),
            },
            which => Command::ExpireIf {
                key,
                after_ns: u64::from(first),
                condition: [
                    ExpireCondition::Absent,
                    ExpireCondition::Present,
                    ExpireCondition::Later,
                    ExpireCondition::Earlier,
                    ExpireCondition::PresentAndEarlier,
                ][usize::from(which) % 5],
            },
        },
        8 => Command::Persist { key },
        9 => Command::CompareAndSwap {
            key,
            expected: Position::new(u64::from(first), 0),
            value,
        },
        _ => {
            let condition = [
                SetCondition::Always,
                SetCondition::Absent,
                SetCondition::Present,
            ];
            let expiry = [
                SetExpiry::Never,
                SetExpiry::Keep,
                SetExpiry::After(u64::from(second)),
            ];
            let options = SetOptions {
                condition: condition[usize::from(first) % 3],
                expiry: expiry[usize::from(second) % 3],
                return_previous: first.is_multiple_of(2),
            };
            Command::Set {
                key,
                value,
                options,
            }
        }
    }
}

/// The store that a snapshot of this one gives.
fn rebuilt(store: &mut Store) -> Store {
    let mut reader = SnapshotReader::new();
    let mut chunk = Vec::new();
    store
        .begin_snapshot()
        .expect("no other snapshot is written of this store");
    loop {
        let step = store.snapshot_chunk(&mut chunk).expect("it was begun");
        if step != SnapshotStep::Pending {
            reader
                .push(&chunk)
                .expect("a chunk that was written can be read");
        }
        if step == SnapshotStep::Last {
            return reader.finish().expect("the last chunk has come");
        }
    }
}
