//! FLUSH: everything ends at one position, and its memory comes back slice by slice.

use trine_keys::{Fingerprint, GroupId, Issuer, Role};
use trine_kvstore::config::{FLUSH_BEHIND_SLICES, FLUSH_SLICE_BYTES, FLUSH_SLICE_EXPIRIES};
use trine_kvstore::{
    Command, Limits, Position, Response, Rights, SetExpiry, SetOptions, SnapshotError,
    SnapshotReader, SnapshotStep, Store,
};

const ITEMS: u64 = 300_000;

fn add_user() -> Command<'static> {
    Command::AddUser {
        issuer: Issuer {
            group: GroupId(*b"a group!"),
            root: Fingerprint(*b"root"),
        },
        name: "alice".parse().expect("a name"),
        rights: Rights {
            role: Role::Write,
            front: false,
            prefix: b"a/",
        },
    }
}

/// A store with a user and many items, of which every third expires at a moment of its own.
fn filled() -> Store {
    let mut store = Store::new(Limits::default(), [5, 6]);
    store.apply(Position::new(1, 0), &add_user());
    let value = [7; 100];
    for number in 0..ITEMS {
        let key = number.to_le_bytes();
        let expiry = match number % 3 {
            0 => SetExpiry::After(1_000_000 + number),
            _ => SetExpiry::Never,
        };
        let options = SetOptions {
            expiry,
            ..SetOptions::default()
        };
        let set = Command::Set {
            key: &key,
            value: &value,
            options,
        };
        store.apply(Position::new(number + 2, 0), &set);
    }
    store
}

#[test]
fn all_is_gone_at_once_and_the_memory_slice_by_slice() {
    let mut store = filled();
    store.set_group_time(500);
    let before = store.stats();
    assert_eq!(before.expiring, ITEMS / 3);
    let at = Position::new(ITEMS + 10, 0);
    let flushed = store.apply(at, &Command::Flush);
    assert_eq!(flushed, Response::Count { items: ITEMS });

    let mut other = Store::new(Limits::default(), [5, 6]);
    other.apply(Position::new(1, 0), &add_user());
    other.set_group_time(500);
    assert_eq!(
        store.state_hash(),
        other.state_hash(),
        "users and time stay"
    );
    assert_eq!(store.users(), other.users());
    assert_eq!(store.next_expiry(), None);
    let after = store.stats();
    assert_eq!(
        (after.items, after.expiring, after.logical_bytes),
        (0, 0, 0)
    );
    assert!(
        after.arena_bytes >= before.arena_bytes,
        "nothing was freed yet"
    );

    // The store is used meanwhile; what is new stays.
    let (key, value) = (b"new".as_slice(), b"v".as_slice());
    store.apply(at_next(at), &Command::Put { key, value });
    let memory = |store: &Store| store.stats().arena_bytes + store.stats().index_bytes;
    let (mut slices, mut last) = (1, memory(&store));
    while !store.free_flushed() {
        let now = memory(&store);
        assert!(last - now <= FLUSH_SLICE_BYTES as u64, "a slice is bounded");
        (slices, last) = (slices + 1, now);
    }
    let expected = before.arena_bytes / FLUSH_SLICE_BYTES as u64
        + before.index_bytes / FLUSH_SLICE_BYTES as u64
        + before.expiring / u64::from(FLUSH_SLICE_EXPIRIES);
    assert!(
        (expected..expected + 6).contains(&slices),
        "{slices} {expected}"
    );
    assert!(memory(&store) <= (16 + 2) << 20, "{} bytes", memory(&store));
    assert_eq!(store.get(key).map(|found| found.value), Some(value));
}

fn at_next(at: Position) -> Position {
    Position::new(at.index() + 1, 0)
}

#[test]
fn a_snapshot_that_is_being_written_is_given_up_and_the_next_one_is_whole() {
    let mut store = filled();
    store.begin_snapshot().expect("none is running");
    let mut chunk = Vec::new();
    for _ in 0..3 {
        store.snapshot_chunk(&mut chunk).expect("it is running");
    }
    // Overwritten and removed items are kept for the snapshot; they go, too.
    for number in 0..1_000_u64 {
        let at = Position::new(ITEMS + 10 + number, 0);
        store.apply(
            at,
            &Command::Delete {
                key: &number.to_le_bytes(),
            },
        );
    }
    let at = Position::new(ITEMS + 2_000, 0);
    let flushed = store.apply(at, &Command::Flush);
    assert_eq!(
        flushed,
        Response::Count {
            items: ITEMS - 1_000
        }
    );
    assert_eq!(
        store.snapshot_chunk(&mut chunk),
        Err(SnapshotError::GivenUp)
    );
    assert_eq!(store.begin_snapshot(), Err(SnapshotError::Busy));
    assert!(store.clear_snapshot());

    let (key, value) = (b"new".as_slice(), b"v".as_slice());
    store.apply(at_next(at), &Command::Put { key, value });
    let hash = store.begin_snapshot().expect("it was cleared").state_hash;
    let mut reader = SnapshotReader::new();
    loop {
        let step = store.snapshot_chunk(&mut chunk).expect("it is running");
        if step != SnapshotStep::Pending {
            reader.push(&chunk).expect("the chunk is whole");
        }
        if step == SnapshotStep::Last {
            break;
        }
    }
    let restored = reader.finish().expect("it is complete");
    assert_eq!((restored.state_hash(), restored.stats().items), (hash, 1));
    assert_eq!(restored.users().len(), 1);
}

/// Flushes of little stores, one behind the other, take no memory for each of them.
#[test]
fn many_flushes_do_not_pile_up() {
    let mut store = Store::new(Limits::default(), [5, 6]);
    for number in 1..200_u64 {
        let (key, value) = (b"k".as_slice(), b"v".as_slice());
        store.apply(Position::new(number, 0), &Command::Put { key, value });
        let flushed = store.apply(Position::new(number, 1), &Command::Flush);
        assert_eq!(flushed, Response::Count { items: 1 });
        let again = store.apply(Position::new(number, 2), &Command::Flush);
        assert_eq!(again, Response::Count { items: 0 });
    }
    let stats = store.stats();
    assert!(
        stats.arena_bytes + stats.index_bytes < 120 << 20,
        "{stats:?}"
    );
}

/// Large stores are flushed faster than they are freed. No flush frees more than a few slices, and none is forgotten.
#[test]
fn a_flush_behind_others_frees_few_slices() {
    let mut store = Store::new(Limits::default(), [5, 6]).with_ordered();
    let memory = |store: &Store| store.stats().arena_bytes;
    let value = vec![7; 1024 * 1024];
    let mut index = 0;
    for _ in 0..8 {
        for number in 0..40_u8 {
            index += 1;
            let (key, value) = ([number], &value[..]);
            store.apply(Position::new(index, 0), &Command::Put { key: &key, value });
        }
        let before = memory(&store);
        index += 1;
        store.apply(Position::new(index, 0), &Command::Flush);
        let freed = before - memory(&store);
        let most = u64::from(FLUSH_BEHIND_SLICES) * FLUSH_SLICE_BYTES as u64;
        assert!(freed <= most, "{freed} bytes");
    }
    assert!(memory(&store) > (5 * 40) << 20, "{}", memory(&store));
    while !store.free_flushed() {}
    assert_eq!(memory(&store), 0);
}
