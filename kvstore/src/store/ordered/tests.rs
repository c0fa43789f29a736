//! Ranges: pages and their ends, expired keys, building beside changes, undo, snapshots.

use crate::codec::List;
use crate::{
    Command, Condition, ExecuteMode, KeyRange, Limits, Ordered, Position, Response, ScanOptions,
    SnapshotReader, SnapshotStep, Store, StoreError,
};
use std::collections::BTreeSet;

const ALL: KeyRange<'static> = KeyRange::Prefix(b"");

/// A store that gets its commands one log entry each.
struct LoggedStore {
    store: Store,
    index: u64,
}

impl LoggedStore {
    fn new(store: Store) -> Self {
        let index = store.applied().index();
        Self { store, index }
    }

    fn ordered() -> Self {
        Self::new(Store::new(Limits::default(), [1, 2]).with_ordered())
    }

    fn apply(&mut self, command: &Command<'_>) -> Response<'_> {
        self.index += 1;
        self.store.build_index();
        self.store.apply(Position::new(self.index, 0), command)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) {
        let response = self.apply(&Command::Put { key, value });
        assert!(matches!(response, Response::Written { .. }), "{response:?}");
    }

    fn expire(&mut self, key: &[u8], after_ns: u64) {
        self.apply(&Command::Expire { key, after_ns });
    }

    /// One page: its keys, the bytes of its values, and where it goes on.
    fn page(
        &self,
        range: KeyRange<'_>,
        options: ScanOptions,
    ) -> (Vec<Vec<u8>>, usize, Option<Vec<u8>>) {
        match self.store.read(&Command::Scan { range, options }) {
            Response::Items { items, next } => {
                let keys = items.iter().map(|item| item.key.to_vec()).collect();
                let values = items.iter().filter_map(|item| item.item);
                let bytes = values.map(|item| item.value.len()).sum();
                (keys, bytes, next.map(|next| next.into_owned()))
            }
            other => panic!("{other:?}"),
        }
    }

    /// All pages, one behind the other.
    fn walk(&self, limit: u32, reverse: bool) -> Vec<Vec<u8>> {
        let options = ScanOptions {
            limit,
            reverse,
            keys_only: true,
        };
        let (mut keys, mut next) = (Vec::new(), None::<Vec<u8>>);
        loop {
            let range = match (&next, reverse) {
                (None, _) => ALL,
                (Some(next), false) => KeyRange::Between {
                    start: next,
                    end: None,
                },
                (Some(next), true) => KeyRange::Between {
                    start: b"",
                    end: Some(next),
                },
            };
            let page = self.page(range, options);
            assert!(page.0.len() <= limit as usize);
            keys.extend(page.0);
            match page.2 {
                Some(more) => next = Some(more),
                None => return keys,
            }
        }
    }

    fn count(&self, range: KeyRange<'_>) -> Response<'_> {
        self.store.read(&Command::CountRange { range })
    }

    fn refused(&mut self, command: &Command<'_>, error: StoreError) {
        self.index += 1;
        self.store.build_index();
        let hash = self.store.state_hash();
        let response = self.store.apply(Position::new(self.index, 0), command);
        assert_eq!(response, Response::Error(error));
        assert_eq!(self.store.state_hash(), hash, "a refusal changes nothing");
    }
}

fn number(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

#[test]
fn pages_go_on_where_they_ended_in_both_directions() {
    let mut log = LoggedStore::ordered();
    let keys: BTreeSet<Vec<u8>> = (0..100_u32)
        .map(|n| n.wrapping_mul(0x9e37_79b9).to_be_bytes().to_vec())
        .collect();
    keys.iter().for_each(|key| log.put(key, b"v"));
    let forwards: Vec<_> = keys.iter().cloned().collect();
    let backwards: Vec<_> = keys.iter().rev().cloned().collect();
    for limit in [1, 7, 16, 99, 100, 101] {
        assert_eq!(log.walk(limit, false), forwards, "limit {limit}");
        assert_eq!(log.walk(limit, true), backwards, "limit {limit}");
    }
}

#[test]
fn a_page_ends_at_its_bytes_and_has_at_least_one_item() {
    let mut log = LoggedStore::ordered();
    let (key, value) = (vec![7; 64 * 1024], vec![1; 1024 * 1024]);
    log.put(b"a", &value);
    log.put(&key, &value);
    (0..100).for_each(|n| log.put(&[b'z', n], &[2; 10_000]));
    let options = ScanOptions::default();
    let (keys, bytes, next) = log.page(ALL, options);
    assert_eq!(
        (keys, bytes),
        (vec![key.clone()], value.len()),
        "the largest item there is"
    );
    assert_eq!(next.as_deref(), Some(b"a".as_slice()));
    let (keys, bytes, next) = log.page(KeyRange::Prefix(b"z"), options);
    assert_eq!((keys.len(), bytes), (26, 260_000));
    assert_eq!(next.as_deref(), Some([b'z', 26].as_slice()));
    let prefix = log.page(KeyRange::Prefix(&key), options);
    assert_eq!(prefix.0, [key], "a prefix may be as long as a key");
}

#[test]
fn bad_ranges_are_told_apart() {
    let mut log = LoggedStore::ordered();
    log.put(b"k", b"v");
    let options = ScanOptions::default();
    let reversed = KeyRange::Between {
        start: b"b",
        end: Some(b"a"),
    };
    let (long, limit) = (vec![1; 64 * 1024 + 1], 64 * 1024);
    let far = KeyRange::Between {
        start: &long,
        end: None,
    };
    for (range, error) in [
        (reversed, StoreError::RangeReversed),
        (KeyRange::Prefix(&long), StoreError::PrefixTooLong { limit }),
        (far, StoreError::KeyTooLong { limit }),
    ] {
        log.refused(&Command::Scan { range, options }, error);
        log.refused(&Command::CountRange { range }, error);
        log.refused(&Command::DeleteRange { range, count: 1 }, error);
    }
    for asked in [0, 16_385] {
        let options = ScanOptions {
            limit: asked,
            ..options
        };
        let scan = Command::Scan {
            range: ALL,
            options,
        };
        log.refused(&scan, StoreError::BadKeyCount { asked });
    }
    let none = Command::DeleteRange {
        range: ALL,
        count: 0,
    };
    log.refused(&none, StoreError::BadKeyCount { asked: 0 });
    let empty = KeyRange::Between {
        start: b"a",
        end: Some(b"a"),
    };
    assert_eq!(log.page(empty, options), (vec![], 0, None));
}

#[test]
fn without_the_whole_index_commands_say_how_to_get_it() {
    let mut log = LoggedStore::new(Store::new(Limits::default(), [1, 2]));
    (0..1_000).for_each(|n| log.put(&number(n), b"v"));
    let count = Command::CountRange { range: ALL };
    log.refused(&count, StoreError::NotOrdered { building: false });
    let used = log.store.stats().logical_bytes;
    assert_eq!(log.apply(&Command::SetOrdered { on: true }), Response::Done);
    assert_eq!(log.store.stats().logical_bytes, used + (32 + 4 + 2) * 1_000);
    assert_eq!(
        log.count(ALL),
        Response::Error(StoreError::NotOrdered { building: true })
    );
    let all = Command::DeleteRange {
        range: ALL,
        count: 5,
    };
    log.refused(&all, StoreError::NotOrdered { building: true });
    while log.store.ordered() != Ordered::On {
        log.apply(&Command::Count);
    }
    assert_eq!(log.count(ALL), Response::Count { items: 1_000 });
    assert!(log.store.stats().ordered_bytes > 0);
    log.apply(&Command::SetOrdered { on: false });
    let stats = log.store.stats();
    assert_eq!((stats.logical_bytes, stats.ordered_bytes), (used, 0));
}

#[test]
fn an_index_that_would_pass_the_limit_is_refused() {
    let limits = Limits {
        memory_bytes: 10 * (32 + 5) + 10 * (32 + 4 + 2) - 1,
        ..Limits::default()
    };
    let mut log = LoggedStore::new(Store::new(limits, [1, 2]));
    (0..10).for_each(|n| log.put(&number(n), b"v"));
    let on = Command::SetOrdered { on: true };
    log.refused(&on, StoreError::NoRoomForIndex { needed: 750 });
    log.apply(&Command::SetMemory { memory_bytes: 750 });
    assert_eq!(log.apply(&on), Response::Done);
    let command = Command::Put {
        key: b"x",
        value: b"",
    };
    log.refused(&command, StoreError::Full { limit: 750 });
}

/// What the limit counts covers what the index takes, whatever the length of the keys, and not much more than twice that.
#[test]
fn the_charge_covers_what_the_index_takes() {
    for (key_bytes, count) in [
        (4, 50_000_u32),
        (8, 50_000),
        (16, 50_000),
        (32, 50_000),
        (64, 30_000),
        (100, 30_000),
        (128, 30_000),
        (132, 30_000),
        (200, 20_000),
        (1_000, 5_000),
        (64 * 1024, 100),
    ] {
        let mut log = LoggedStore::ordered();
        for n in 0..count {
            // In no order, and without a prefix that nodes would have once: this is the dear case.
            let mut key = n.wrapping_mul(0x9e37_79b9).to_be_bytes().to_vec();
            key.resize(key_bytes, b'k');
            log.put(&key, b"");
        }
        let counted = log.store.stats();
        let charged = counted.logical_bytes - u64::from(count) * (32 + key_bytes as u64);
        let ratio = charged as f64 / counted.ordered_bytes as f64;
        println!("key {key_bytes}: charged / taken = {ratio:.2}");
        // A key of 4 bytes is a slot and nothing else.
        let most = if key_bytes < 16 { 4.0 } else { 2.5 };
        assert!((1.0..most).contains(&ratio), "key {key_bytes}: {ratio:.2}");
    }
}

/// While it is built, keys come and go on both sides of the walk, a snapshot keeps shadows, and the table grows.
#[test]
fn an_index_that_is_built_beside_changes_is_whole() {
    let mut log = LoggedStore::new(Store::new(Limits::default(), [1, 2]));
    (0..20_000).for_each(|n| log.put(&number(n), b"v"));
    log.store.begin_snapshot().expect("none is running");
    log.apply(&Command::SetOrdered { on: true });
    let mut restored = None;
    let mut steps = 0;
    for n in 0.. {
        log.put(&number(30_000 + 7 * n), b"new");
        log.apply(&Command::Delete {
            key: &number(3 * n),
        });
        log.put(&number(5 * n), b"other");
        steps += 3;
        if n == 10 {
            log.store.abandon_snapshot();
            while !log.store.clear_snapshot() {}
            restored = Some(LoggedStore::new(copy(&mut log.store)));
        }
        if log.store.ordered() == Ordered::On {
            break;
        }
    }
    assert!((60..200).contains(&steps), "a few items a step: {steps}");
    let mut restored = restored.expect("a copy in the middle");
    assert!(matches!(restored.store.ordered(), Ordered::Building(_)));
    while restored.store.ordered() != Ordered::On {
        restored.apply(&Command::Count);
    }
    assert_eq!(
        restored.walk(16_384, false).len() as u64,
        restored.store.stats().items
    );
    let walked = log.walk(999, false);
    assert_eq!(walked.len() as u64, log.store.stats().items);
    assert!(walked.iter().all(|key| log.store.get(key).is_some()));
}

/// Two replicas with unlike tables and one log have it whole at the same entry.
#[test]
fn building_ends_at_the_same_position_everywhere() {
    let mut grown = LoggedStore::new(Store::new(Limits::default(), [1, 2]));
    (0..5_000).for_each(|n| grown.put(&number(n), b"v"));
    (0..4_000).for_each(|n| drop(grown.apply(&Command::Delete { key: &number(n) })));
    let mut small = LoggedStore::new(copy(&mut grown.store));
    small.index = grown.index;
    for log in [&mut grown, &mut small] {
        log.apply(&Command::SetOrdered { on: true });
    }
    for _ in 0..10 {
        assert_eq!(grown.store.ordered(), small.store.ordered());
        assert_eq!(grown.store.state_hash(), small.store.state_hash());
        for log in [&mut grown, &mut small] {
            log.apply(&Command::Count);
        }
    }
    assert_eq!(small.store.ordered(), Ordered::On);
    assert_eq!(grown.walk(100, false), small.walk(100, false));
}

#[test]
fn an_undone_execute_leaves_the_index_as_it_was() {
    let mut log = LoggedStore::ordered();
    log.put(b"a", b"v");
    log.put(b"b", b"v");
    for kept in [false, true] {
        if kept {
            log.store.begin_snapshot().expect("none is running");
        }
        let operations = [
            Command::Delete { key: b"a" },
            Command::Put {
                key: b"c",
                value: b"v",
            },
            Command::Put {
                key: b"b",
                value: b"w",
            },
            Command::Increment {
                key: b"b",
                delta: 1,
            },
        ];
        let conditions = [Condition::Present { key: b"a" }];
        let response = log.apply(&Command::Execute {
            mode: ExecuteMode::AllOrNothing,
            conditions: List::from(&conditions),
            operations: List::from(&operations),
        });
        assert!(matches!(response, Response::Aborted { .. }), "{response:?}");
        assert_eq!(log.walk(10, false), [b"a", b"b"], "with a snapshot: {kept}");
    }
}

#[test]
fn expired_keys_are_in_no_page_and_count_for_nothing() {
    let mut log = LoggedStore::ordered();
    (0..1_000).for_each(|n| log.put(&number(n), b"v"));
    (0..900).for_each(|n| log.expire(&number(n), 5));
    log.store.set_group_time(10);
    assert!(log.store.stats().items > 800, "few are swept at once");
    assert_eq!(log.count(ALL), Response::Count { items: 100 });
    let end = number(950);
    let first = KeyRange::Between {
        start: b"",
        end: Some(&end),
    };
    assert_eq!(log.count(first), Response::Count { items: 50 });
    assert_eq!(log.walk(30, false).len(), 100);
    assert_eq!(log.walk(30, true).len(), 100);
    let response = log.apply(&Command::DeleteRange {
        range: ALL,
        count: 2_000,
    });
    let Response::RangeDeleted { removed, next } = response else {
        panic!("{response:?}")
    };
    assert_eq!((removed, next.is_none()), (100, true));
    assert_eq!(log.store.stats().items, 0);
}

/// Counting them would take longer than a group can stand still.
#[test]
fn a_range_is_not_counted_while_too_many_expired_keys_are_left() {
    let mut log = LoggedStore::ordered();
    (0..5_000).for_each(|n| log.put(&number(n), b""));
    (0..4_500).for_each(|n| log.expire(&number(n), 5));
    log.store.set_group_time(10);
    assert_eq!(log.count(ALL), Response::Error(StoreError::SweepBehind));
    let end = number(500);
    let few = KeyRange::Between {
        start: b"",
        end: Some(&end),
    };
    assert_eq!(log.count(few), Response::Count { items: 0 }, "one by one");
    // A page passes only so many of them by, and goes on.
    let (keys, _, next) = log.page(ALL, ScanOptions::default());
    assert!(keys.is_empty() && next.is_some());
    assert_eq!(log.walk(16_384, false).len(), 500);
    (0..7).for_each(|_| log.store.set_group_time(11));
    assert_eq!(log.count(ALL), Response::Count { items: 500 });
}

#[test]
fn a_range_is_deleted_in_steps() {
    let mut log = LoggedStore::ordered();
    (0..3_000).for_each(|n| log.put(&number(n), b"v"));
    log.put(b"\x01behind", b"v");
    let (mut start, mut steps) = (Vec::new(), Vec::new());
    loop {
        let response = log.apply(&Command::DeleteRange {
            range: KeyRange::Between {
                start: &start,
                end: Some(&[1]),
            },
            count: u32::MAX,
        });
        let Response::RangeDeleted { removed, next } = response else {
            panic!("{response:?}")
        };
        steps.push(removed);
        match next {
            Some(next) => start = next.into_owned(),
            None => break,
        }
    }
    assert_eq!(steps, [1_024, 1_024, 952]);
    assert_eq!(log.walk(10, false), [b"\x01behind"]);
}

/// A store made of a snapshot of another one.
pub(super) fn copy(store: &mut Store) -> Store {
    let (mut reader, mut chunk) = (SnapshotReader::new(), Vec::new());
    store.begin_snapshot().expect("none is running");
    loop {
        let step = store.snapshot_chunk(&mut chunk).expect("it was begun");
        if step != SnapshotStep::Pending {
            reader.push(&chunk).expect("it is whole");
        }
        if step == SnapshotStep::Last {
            return reader.finish().expect("it is complete");
        }
    }
}

/// Keys are deleted by many commands of one entry: together they look at a bounded number of keys, and each one that comes too
/// late says where to go on.
#[test]
fn the_deletions_of_one_entry_are_bounded_together() {
    let mut log = LoggedStore::ordered();
    (0..6_000).for_each(|n| log.put(&number(n), b"v"));
    let delete = Command::DeleteRange {
        range: ALL,
        count: u32::MAX,
    };
    let entry = log.index + 1;
    let mut steps = Vec::new();
    for place in 0..8 {
        match log.store.apply(Position::new(entry, place), &delete) {
            Response::RangeDeleted { removed, next } => {
                steps.push((removed, next.map(|next| next.into_owned())));
            }
            other => panic!("{other:?}"),
        }
    }
    let next = |n: u32| Some(number(n).to_vec());
    let expected = [1_024, 2_048, 3_072, 4_096].map(|n| (1_024, next(n)));
    assert_eq!(steps[..4], expected);
    assert!(
        steps[4..].iter().all(|step| *step == (0, next(4_096))),
        "{steps:?}"
    );
    log.index = entry;
    let response = log.apply(&delete);
    assert!(
        matches!(response, Response::RangeDeleted { removed: 1_024, .. }),
        "the next entry goes on: {response:?}"
    );
}

/// Long keys make a step smaller.
#[test]
fn a_step_of_a_deletion_has_bounded_bytes() {
    let mut log = LoggedStore::ordered();
    let key = |n: u8| [&[n][..], &vec![b'k'; 64 * 1024 - 1]].concat();
    (0..10).for_each(|n| log.put(&key(n), b"v"));
    let delete = Command::DeleteRange {
        range: ALL,
        count: 100,
    };
    let next = Some(std::borrow::Cow::Owned(key(4)));
    let removed = 4;
    assert_eq!(log.apply(&delete), Response::RangeDeleted { removed, next });
}

/// `ordered off` takes as long for many keys as for few. The memory comes back slice by slice.
#[test]
fn a_dropped_index_is_freed_in_slices() {
    let mut log = LoggedStore::ordered();
    let long = |n: u32| [&[0xff; 200][..], &number(n)].concat();
    (0..200_000_u32).for_each(|n| log.put(&number(n.wrapping_mul(0x9e37_79b9)), b"v"));
    (0..5_000).for_each(|n| log.put(&long(n), b"v"));
    let before = log.store.stats().ordered_bytes;
    assert!(before > 3 << 20, "{before}");
    log.apply(&Command::SetOrdered { on: false });
    let left = log.store.stats().ordered_bytes;
    assert_eq!(left, before, "nothing was freed by the command");
    assert_eq!(log.store.ordered(), Ordered::Off);
    // A new index does not wait for the old one to be gone.
    log.apply(&Command::SetOrdered { on: true });
    while log.store.ordered() != Ordered::On {
        log.apply(&Command::Count);
    }
    assert_eq!(log.count(ALL), Response::Count { items: 205_000 });
    let both = log.store.stats().ordered_bytes;
    assert!(both > before, "the old one is there still");
    let (mut last, mut slices) = (both, 0);
    while !log.store.free_flushed() {
        let now = log.store.stats().ordered_bytes;
        assert!(last - now <= 2 << 20, "a slice is bounded: {}", last - now);
        (slices, last) = (slices + 1, now);
    }
    assert!(slices >= before >> 20, "{slices} slices");
    let now = log.store.stats().ordered_bytes;
    assert_eq!(both - now, before, "all of it was freed");
    assert_eq!(log.count(ALL), Response::Count { items: 205_000 });
}
