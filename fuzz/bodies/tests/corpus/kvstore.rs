//! The corpora of the store.
//!
//! `TRINE_WRITE_CORPUS=1 cargo test -p trine-fuzz-bodies kvstore` writes the seeds again, which is
//! needed after a change of an encoding; the commit that does so says why the encoding changed.

use std::borrow::Cow;
use std::fs;
use trine_fuzz_bodies::kvstore as bodies;
use trine_keys::{Fingerprint, GroupId, Issuer, Role};
use trine_kvstore::{
    AbortCause, Command, Condition, Cursor, Entry, ExecuteMode, ExpireCondition, Found, KeyRange,
    Limits, List, Page, Pair, Position, Prefix, RangeItem, Response, Rights, ScanOptions,
    SetCondition, SetExpiry, SetOptions, SnapshotStep, Store, StoreError, User, Versioned,
    WalkContent,
};

/// Mutations of every file; the fuzzers make the rest.
const MUTATIONS: u32 = 300;

/// Of a file of operations, each of which builds several stores.
const LIST_MUTATIONS: u32 = 40;

#[test]
fn commands() {
    seed("kvstore-command", &command_seeds());
    trine_corpus::replay("kvstore-command", MUTATIONS, bodies::command);
}

#[test]
fn responses() {
    seed("kvstore-response", &response_seeds());
    trine_corpus::replay("kvstore-response", MUTATIONS, bodies::response);
}

#[test]
fn snapshots() {
    seed("kvstore-snapshot", &snapshot_seeds());
    trine_corpus::replay("kvstore-snapshot", MUTATIONS, bodies::snapshot);
}

#[test]
fn operation_lists() {
    seed("kvstore-operations", &operation_seeds());
    trine_corpus::replay("kvstore-operations", LIST_MUTATIONS, bodies::operations);
}

/// The checked-in seeds equal the output of today's encoders: the encodings have not changed.
fn seed(target: &str, seeds: &[Vec<u8>]) {
    let write = std::env::var_os("TRINE_WRITE_CORPUS").is_some();
    let directory = trine_corpus::directory(target);
    for (number, bytes) in seeds.iter().enumerate() {
        let path = directory.join(format!("seed-{number:02}"));
        if write {
            fs::write(&path, bytes).expect("the corpus is writable");
        }
        let stored = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(&stored, bytes, "{} has changed", path.display());
    }
}

// Long because each kind of command has a seed.
fn command_seeds() -> Vec<Vec<u8>> {
    let (key, value) = (b"key".as_slice(), b"value".as_slice());
    let options = SetOptions {
        condition: SetCondition::Absent,
        expiry: SetExpiry::After(9),
        return_previous: true,
    };
    let keys = [key, b"", b"other"];
    let pairs = [
        Pair { key, value },
        Pair {
            key: b"",
            value: b"",
        },
    ];
    let version = Position::new(5, 1);
    let conditions = [
        Condition::Absent { key },
        Condition::Present { key },
        Condition::VersionIs { key, version },
    ];
    let simple = [
        Command::Count,
        Command::MultiPut {
            pairs: List::from(&pairs),
        },
        Command::Get { key },
        Command::Put { key, value },
        Command::Delete { key },
        Command::Set {
            key,
            value,
            options,
        },
        Command::GetDelete { key },
        Command::CompareAndSwap {
            key,
            expected: version,
            value,
        },
        Command::Increment { key, delta: -2 },
        Command::Append { key, value },
        Command::Expire {
            key,
            after_ns: 1_000,
        },
        Command::Persist { key },
        Command::TimeToLive { key },
    ];
    let lists = [
        Command::MultiGet {
            keys: List::from(&keys),
        },
        Command::MultiPut {
            pairs: List::from(&pairs),
        },
        Command::Execute {
            mode: ExecuteMode::AllOrNothing,
            conditions: List::from(&conditions[..1]),
            operations: List::from(&simple),
        },
        Command::Execute {
            mode: ExecuteMode::Independent,
            conditions: List::from(&conditions),
            operations: List::default(),
        },
        Command::SetLimits {
            limits: Limits::default(),
        },
        Command::RaiseVersion { version: 2 },
    ];
    // Behind the others, whose files keep their numbers.
    let conditional = [Command::ExpireIf {
        key,
        after_ns: 1_000,
        condition: ExpireCondition::PresentAndEarlier,
    }];
    let last = [Command::Execute {
        mode: ExecuteMode::Independent,
        conditions: List::default(),
        operations: List::from(&conditional),
    }];
    simple
        .iter()
        .chain(&lists)
        .chain(&conditional)
        .chain(&last)
        .chain(&[Command::SetMemory {
            memory_bytes: 1 << 20,
        }])
        .chain(&[Command::ExpireIfBeyond {
            key,
            after_ns: 1_000,
            condition: ExpireCondition::Later,
            margin_ns: 10,
        }])
        .chain(&user_commands())
        .chain(&range_commands())
        .chain(&[
            Command::Walk {
                from: Cursor::anywhere(77),
                count: 10,
                content: WalkContent::Items,
                prefix: Prefix(b"k"),
            },
            Command::Flush,
        ])
        .chain(&pin_commands())
        .map(|command| encoded(|bytes| command.encode(bytes)))
        .collect()
}

fn pin_commands() -> [Command<'static>; 6] {
    let position = Position::new(5, 1);
    [
        Command::Pin,
        Command::RenewPin { position },
        Command::Unpin { position },
        Command::ScanAt {
            position,
            range: KeyRange::Prefix(b"key"),
            options: ScanOptions::default(),
        },
        Command::CountAt {
            position,
            range: KeyRange::Prefix(b"key"),
        },
        Command::WalkAt {
            position,
            from: Cursor::anywhere(77),
            count: 3,
            content: WalkContent::Items,
            prefix: Prefix(b"key"),
        },
    ]
}

fn range_commands() -> [Command<'static>; 5] {
    let range = KeyRange::Between {
        start: b"a",
        end: Some(b"b"),
    };
    let options = ScanOptions {
        limit: 10,
        reverse: true,
        keys_only: true,
    };
    [
        Command::SetOrdered { on: true },
        Command::Scan {
            range: KeyRange::Prefix(b"key"),
            options: ScanOptions::default(),
        },
        Command::Scan { range, options },
        Command::CountRange { range },
        Command::DeleteRange { range, count: 2 },
    ]
}

fn user_commands() -> [Command<'static>; 4] {
    let issuer = Issuer {
        group: GroupId(*b"a group!"),
        root: Fingerprint(*b"root"),
    };
    let name = "alice".parse().expect("a name");
    let rights = Rights {
        role: Role::Write,
        front: false,
        prefix: b"a/",
    };
    [
        Command::AddUser {
            issuer,
            name,
            rights,
        },
        Command::RotateUser { issuer, name },
        Command::RemoveUser { name },
        Command::ListUsers,
    ]
}

fn response_seeds() -> Vec<Vec<u8>> {
    let (value, version) = (b"value".as_slice(), Position::new(5, 1));
    let simple = [
        Response::Value { value, version },
        Response::NotFound,
        Response::Written { version },
        Response::Deleted { existed: true },
        Response::Number { value: -3, version },
        Response::Length { bytes: 7, version },
        Response::Conflict {
            current: Some(version),
        },
        Response::Exchanged {
            previous: Some(Versioned { value, version }),
            written: None,
        },
        Response::TimeToLive {
            remaining_ns: Some(8),
        },
        Response::Aborted {
            cause: AbortCause::Refused {
                index: 2,
                error: StoreError::Overflow,
            },
        },
        Response::Done,
        Response::Count { items: 9 },
        Response::Error(StoreError::VersionNotActive {
            required: 2,
            active: 1,
        }),
        Response::Error(StoreError::Full { limit: 1 << 40 }),
    ];
    let list = [Response::List(List::from(&simple))];
    let alice = [User {
        number: 1,
        name: "alice".parse().expect("a name"),
        generation: 2,
        role: Role::Read,
        front: true,
        prefix: b"a/",
    }];
    let users = [
        Response::User(alice[0]),
        Response::Users(List::from(&alice)),
        Response::Error(StoreError::OtherClusterKey {
            root: Fingerprint(*b"root"),
        }),
    ];
    let page = [
        RangeItem {
            key: b"a",
            item: Some(Versioned { value, version }),
        },
        RangeItem {
            key: b"b",
            item: None,
        },
    ];
    let ranges = [
        Response::Items {
            items: List::from(&page),
            next: Some(Cow::Borrowed(b"c")),
        },
        Response::Counted {
            items: 3,
            next: Some(Cow::Borrowed(b"d")),
        },
        Response::RangeDeleted {
            removed: 3,
            next: None,
        },
        Response::Error(StoreError::NotOrdered { building: true }),
    ];
    let keys = [b"key".as_slice(), b""];
    let items = [Entry {
        key: b"key",
        value,
        version,
        remaining_ns: Some(8),
    }];
    let page = |found| {
        Response::Page(Page {
            position: version,
            next: Cursor::anywhere(77),
            found,
        })
    };
    let pages = [
        page(Found::Keys(List::from(&keys))),
        page(Found::Items(List::from(&items))),
        Response::Error(StoreError::OnlyRead),
        Response::Pinned { position: version },
        Response::Error(StoreError::TooManyPins { limit: 8 }),
        Response::Error(StoreError::TooManyPinsOfUser { limit: 16 }),
        Response::Error(StoreError::PinEnded),
        Response::Error(StoreError::PinNotHere),
    ];
    simple
        .iter()
        .chain(&list)
        .chain(&users)
        .chain(&ranges)
        .chain(&pages)
        .map(|response| encoded(|bytes| response.encode(bytes)))
        .collect()
}

fn snapshot_seeds() -> Vec<Vec<u8>> {
    let of = |items: u64, users: usize| {
        let mut store = Store::new(Limits::default(), [1, 2]);
        for (index, command) in user_commands().iter().take(users).enumerate() {
            store.apply(Position::new(0, index as u16 + 1), command);
        }
        for item in 1..=items {
            let (key, value) = (item.to_le_bytes(), vec![item as u8; item as usize]);
            store.apply(
                Position::new(item, 0),
                &Command::Put {
                    key: &key,
                    value: &value,
                },
            );
            store.apply(
                Position::new(item, 1),
                &Command::Expire {
                    key: &key,
                    after_ns: item,
                },
            );
        }
        store.begin_snapshot().expect("none is running");
        let (mut bytes, mut chunk) = (Vec::new(), Vec::new());
        loop {
            let step = store.snapshot_chunk(&mut chunk).expect("it was begun");
            assert_ne!(
                step,
                SnapshotStep::Pending,
                "so small a table is walked in one go"
            );
            bytes.extend_from_slice(&(chunk.len() as u16).to_le_bytes());
            bytes.extend_from_slice(&chunk);
            if step == SnapshotStep::Last {
                return bytes;
            }
        }
    };
    vec![of(0, 0), of(1, 0), of(20, 0), of(1, 2), of(0, 3)]
}

fn operation_seeds() -> Vec<Vec<u8>> {
    let line = |factor: u32| {
        (0..1_600_u32)
            .map(|n| (n.wrapping_mul(factor) >> 7) as u8)
            .collect()
    };
    vec![
        line(40_503),
        line(2_654_435_769),
        vec![12, 0, 0, 0, 1, 1, 1, 1, 13, 0, 0, 0, 15, 0, 0, 0],
    ]
}

fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut bytes);
    bytes
}
