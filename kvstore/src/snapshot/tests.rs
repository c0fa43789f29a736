//! Snapshots during writes, and damaged ones.

use super::*;
use crate::{Command, Limits, Position, Response, Store};

fn store() -> Store {
    Store::new(Limits::default(), [1, 2])
}

/// Applies PUTs of `keys` at log index `index`, one place each.
fn put_all(store: &mut Store, index: u64, keys: impl Iterator<Item = u32>, value: &[u8]) {
    for (place, key) in keys.enumerate() {
        let command = Command::Put {
            key: &key.to_le_bytes(),
            value,
        };
        let response = store.apply(Position::new(index, place as u16), &command);
        assert!(matches!(response, Response::Written { .. }));
    }
}

fn chunks(store: &mut Store, mut between: impl FnMut(&mut Store, u64)) -> Vec<Vec<u8>> {
    let mut chunks = Vec::new();
    for round in 0.. {
        let mut chunk = Vec::new();
        let step = store
            .snapshot_chunk(&mut chunk)
            .expect("the snapshot goes on");
        assert!(chunk.len() <= crate::config::CHUNK_BYTES_MAX);
        if step != SnapshotStep::Pending {
            chunks.push(chunk);
        }
        if step == SnapshotStep::Last {
            break;
        }
        between(store, round);
    }
    chunks
}

fn restore(chunks: &[Vec<u8>]) -> Result<Store, RestoreError> {
    let mut reader = SnapshotReader::new();
    chunks.iter().try_for_each(|chunk| reader.push(chunk))?;
    reader.finish()
}

#[test]
fn a_snapshot_under_writes_is_the_state_at_its_beginning() {
    let mut store = store();
    put_all(&mut store, 1, 0..20_000, &[7; 50]);
    let quiet = {
        store.begin_snapshot().expect("none is running");
        chunks(&mut store, |_, _| {})
    };
    let before = store.begin_snapshot().expect("the first one has ended");
    let written = chunks(&mut store, |store, round| {
        let first = (round as u32 * 777) % 20_000;
        put_all(store, 2 + 3 * round, first..first + 500, &[8; 90]);
        for key in first + 250..first + 600 {
            let at = Position::new(3 + 3 * round, (key - first) as u16);
            store.apply(
                at,
                &Command::Delete {
                    key: &key.to_le_bytes(),
                },
            );
        }
        put_all(store, 4 + 3 * round, 30_000 + first..30_100 + first, b"new");
    });
    assert_eq!(written, quiet, "what goes on meanwhile changes no byte");
    let restored = restore(&written).expect("it is whole");
    assert_eq!(restored.summary(), before);
    assert_ne!(store.state_hash(), before.state_hash);
}

#[test]
fn an_abandoned_snapshot_leaves_nothing_behind() {
    let mut store = store();
    put_all(&mut store, 1, 0..5_000, &[7; 50]);
    store.begin_snapshot().expect("none is running");
    let mut chunk = Vec::new();
    for _ in 0..3 {
        store
            .snapshot_chunk(&mut chunk)
            .expect("the snapshot goes on");
    }
    put_all(&mut store, 2, 0..5_000, &[8; 50]);
    let hash = store.state_hash();
    store.abandon_snapshot();
    assert_eq!(
        store.snapshot_chunk(&mut chunk),
        Err(SnapshotError::GivenUp)
    );
    assert_eq!(store.begin_snapshot(), Err(SnapshotError::Busy));
    while !store.clear_snapshot() {}
    assert_eq!(store.items.table.entries(), 5_000, "every shadow is gone");
    assert_eq!(store.state_hash(), hash);
    store.begin_snapshot().expect("the way is free again");
    let restored = restore(&chunks(&mut store, |_, _| {})).expect("it is whole");
    assert_eq!(restored.state_hash(), hash);
}

/// The receiver of a snapshot died, and then no client wrote any more. A replica asks each tick whether a new snapshot
/// can begin, and each time only as much was cleared away as behind a command. So a store of ten million items took
/// half an hour, and meanwhile no member could come back.
#[test]
fn an_abandoned_snapshot_is_cleared_away_without_any_writes() {
    let mut store = store();
    put_all(&mut store, 1, 0..60_000, &[7; 10]);
    store.begin_snapshot().expect("none is running");
    put_all(&mut store, 2, (0..60_000).step_by(100), &[8; 10]);
    store.abandon_snapshot();
    let asked = (1..).find(|_| store.clear_snapshot());
    assert!(asked.is_some_and(|asked| asked <= 16), "{asked:?}");
}

#[test]
fn an_empty_store_and_large_items_survive() {
    let mut store = store();
    store.begin_snapshot().expect("none is running");
    assert_eq!(chunks(&mut store, |_, _| {}).len(), 3);
    let (key, value) = (vec![1; 64 * 1024], vec![2; 1024 * 1024]);
    store.apply(
        Position::new(1, 0),
        &Command::Put {
            key: &key,
            value: &value,
        },
    );
    store.apply(
        Position::new(1, 1),
        &Command::Put {
            key: b"",
            value: b"",
        },
    );
    store.begin_snapshot().expect("none is running");
    let restored = restore(&chunks(&mut store, |_, _| {})).expect("it is whole");
    assert_eq!(
        restored.read(&Command::Get { key: &key }),
        store.read(&Command::Get { key: &key })
    );
    assert_eq!(
        restored.read(&Command::Get { key: b"" }),
        store.read(&Command::Get { key: b"" })
    );
}

#[test]
fn damage_is_named() {
    let mut store = store();
    put_all(&mut store, 1, 0..3_000, &[7; 50]);
    store.begin_snapshot().expect("none is running");
    let good = chunks(&mut store, |_, _| {});
    let with = |at: usize, chunk: Vec<u8>| {
        let mut all = good.clone();
        all[at] = chunk;
        restore(&all).map(|_| ()).expect_err("damage must be seen")
    };
    for position in (0..good[1].len()).step_by(997) {
        let mut damaged = good[1].clone();
        damaged[position] ^= 0x10;
        with(1, damaged);
    }
    let mut flipped = good[2].clone();
    *flipped.last_mut().expect("chunks are not empty") ^= 1;
    assert_eq!(
        with(2, flipped),
        RestoreError::ChecksumDiffers { sequence: 2 }
    );
    assert_eq!(with(2, good[2][..100].to_vec()), RestoreError::Truncated);
    assert_eq!(
        with(2, good[3].clone()),
        RestoreError::WrongSequence {
            expected: 2,
            found: 3
        }
    );
    let missing_end = restore(&good[..good.len() - 1]).map(|_| ());
    assert_eq!(
        missing_end,
        Err(RestoreError::Incomplete {
            expected: good.len() as u32 - 1
        })
    );

    store.apply(Position::new(9, 0), &Command::Delete { key: &[0; 4] });
    store.begin_snapshot().expect("none is running");
    let other = chunks(&mut store, |_, _| {});
    let expected = RestoreError::OtherSnapshot {
        expected: Position::new(1, 2_999),
        found: Position::new(9, 0),
    };
    assert_eq!(with(1, other[1].clone()), expected);
}

#[test]
fn a_snapshot_that_would_keep_too_much_is_given_up_and_begun_again() {
    let limit_mib = (crate::config::SNAPSHOT_KEPT_BYTES_MIN >> 20) as u32;
    let mut store = store();
    let value = vec![1; 1 << 20];
    put_all(&mut store, 1, 0..limit_mib + 2, &value);
    store.begin_snapshot().expect("none is running");
    let mut chunk = Vec::new();
    store.snapshot_chunk(&mut chunk).expect("the head");
    put_all(&mut store, 2, 0..limit_mib - 1, b"small");
    store
        .snapshot_chunk(&mut chunk)
        .expect("so much may be kept");
    put_all(&mut store, 3, limit_mib - 1..limit_mib + 2, b"small");
    assert_eq!(
        store.snapshot_chunk(&mut chunk),
        Err(SnapshotError::GivenUp)
    );
    while !store.clear_snapshot() {}
    assert_eq!(
        store.items.table.entries(),
        u64::from(limit_mib) + 2,
        "every shadow is gone"
    );
    store.begin_snapshot().expect("the way is free again");
    let restored = restore(&chunks(&mut store, |_, _| {})).expect("it is whole");
    assert_eq!(restored.state_hash(), store.state_hash());
}
