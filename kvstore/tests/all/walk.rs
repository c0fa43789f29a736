//! Walks: every key that is there all the time comes once, whatever happens between the pages.

use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use trine_kvstore::config::{WALK_BUCKETS_MAX, WALK_BYTES_MAX, WALK_ITEMS_MAX};
use trine_kvstore::{
    Command, Cursor, DecodeError, Entry, Found, Limits, Position, Prefix, Response, SetOptions,
    SnapshotReader, SnapshotStep, Store, StoreError, WalkContent,
};

fn walk(from: Cursor, count: u32, content: WalkContent, prefix: &[u8]) -> Command<'_> {
    Command::Walk {
        from,
        count,
        content,
        prefix: Prefix(prefix),
    }
}

/// An item: key, value, version, time to live.
type Item = (Vec<u8>, Vec<u8>, Position, Option<u64>);

/// A page as values, through its encoding.
struct Read {
    position: Position,
    next: Cursor,
    items: Vec<Item>,
}

fn read(store: &Store, from: Cursor, count: u32, prefix: &[u8]) -> Read {
    let mut bytes = Vec::new();
    let command = walk(from, count, WalkContent::Items, prefix);
    store.read(&command).encode(&mut bytes);
    let Ok(Response::Page(page)) = Response::decode(&bytes) else {
        panic!("a walk is answered with a page")
    };
    let Found::Items(items) = &page.found else {
        panic!("items were asked for")
    };
    let owned = |entry: Entry<'_>| {
        let Entry {
            key,
            value,
            version,
            remaining_ns,
        } = entry;
        (key.to_vec(), value.to_vec(), version, remaining_ns)
    };
    let items: Vec<_> = items.iter().map(owned).collect();
    let keys = store.read(&walk(from, count, WalkContent::Keys, prefix));
    let Response::Page(keys) = keys else {
        panic!("a walk is answered with a page")
    };
    let Found::Keys(keys) = &keys.found else {
        panic!("keys were asked for")
    };
    // Keys alone are fewer bytes, so there may be more of them.
    assert!(keys.iter().zip(&items).all(|(key, item)| key == item.0) && keys.len() >= items.len());
    Read {
        position: page.position,
        next: page.next,
        items,
    }
}

/// All keys of a store that does not change, and the number of pages.
fn all(store: &Store, count: u32, prefix: &[u8]) -> (Vec<Vec<u8>>, u32) {
    let (mut keys, mut pages, mut from) = (Vec::new(), 0, Cursor::START);
    loop {
        let page = read(store, from, count, prefix);
        keys.extend(page.items.into_iter().map(|(key, ..)| key));
        (pages, from) = (pages + 1, page.next);
        if from == Cursor::START {
            return (keys, pages);
        }
    }
}

fn filled(count: u64) -> Store {
    let mut store = Store::new(Limits::default(), [5, 6]);
    for number in 0..count {
        let (key, value) = (number.to_le_bytes(), b"v");
        store.apply(
            Position::new(number + 1, 0),
            &Command::Put { key: &key, value },
        );
    }
    store
}

fn copy(store: &mut Store) -> Store {
    let (mut reader, mut chunk) = (SnapshotReader::new(), Vec::new());
    store.begin_snapshot().expect("none is running");
    loop {
        let step = store.snapshot_chunk(&mut chunk).expect("it is running");
        if step != SnapshotStep::Pending {
            reader.push(&chunk).expect("the chunk is whole");
        }
        if step == SnapshotStep::Last {
            return reader.finish().expect("it is complete");
        }
    }
}

/// What happens between two pages.
#[derive(Clone, Debug)]
enum Between {
    /// Enough new keys to make the table grow.
    Insert(u16),
    Remove(u16),
    Overwrite,
    Expire,
    Advance,
    Chunk,
    Rebuild,
}

fn between() -> impl Strategy<Value = Between> {
    prop_oneof![
        4 => (1_u16..2_000).prop_map(Between::Insert),
        2 => (1_u16..1_000).prop_map(Between::Remove),
        2 => Just(Between::Overwrite),
        1 => Just(Between::Expire),
        1 => Just(Between::Advance),
        2 => Just(Between::Chunk),
        2 => Just(Between::Rebuild),
    ]
}

/// A store, what it must hold, and the keys that stay.
struct Bench {
    store: Store,
    /// The value of each key and the group time at which it expires.
    model: BTreeMap<Vec<u8>, (Vec<u8>, u64)>,
    staying: BTreeSet<Vec<u8>>,
    index: u64,
    time_ns: u64,
    writing: bool,
}

impl Bench {
    fn new(staying: u16) -> Self {
        let mut bench = Self {
            store: Store::new(Limits::default(), [7, 8]),
            model: BTreeMap::new(),
            staying: BTreeSet::new(),
            index: 0,
            time_ns: 0,
            writing: false,
        };
        for number in 0..staying {
            let key = format!("stay/{number}").into_bytes();
            bench.put(&key, b"first");
            bench.staying.insert(key);
        }
        bench
    }

    fn at(&mut self) -> Position {
        self.index += 1;
        Position::new(self.index, 0)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) {
        let at = self.at();
        self.store.apply(at, &Command::Put { key, value });
        self.model.insert(key.to_vec(), (value.to_vec(), 0));
    }

    fn passing(&self, count: u16) -> Vec<Vec<u8>> {
        let passes = |key: &&Vec<u8>| key.starts_with(b"pass/");
        self.model
            .keys()
            .filter(passes)
            .take(count.into())
            .cloned()
            .collect()
    }

    fn happen(&mut self, what: &Between) {
        match what {
            Between::Insert(count) => {
                for number in 0..*count {
                    self.put(format!("pass/{}/{number}", self.index).as_bytes(), b"new");
                }
            }
            Between::Remove(count) => {
                for key in self.passing(*count) {
                    let at = self.at();
                    self.store.apply(at, &Command::Delete { key: &key });
                    self.model.remove(&key);
                }
            }
            Between::Overwrite => {
                let keys: Vec<_> = self.staying.iter().step_by(3).cloned().collect();
                let value = vec![b'w'; (self.index % 300) as usize];
                keys.iter().for_each(|key| self.put(key, &value));
            }
            Between::Expire => {
                for key in self.passing(50) {
                    let (at, after_ns) = (self.at(), 10);
                    self.store.apply(
                        at,
                        &Command::Expire {
                            key: &key,
                            after_ns,
                        },
                    );
                    let item = self.model.get_mut(&key).expect("it was taken from there");
                    item.1 = self.time_ns + after_ns;
                }
            }
            Between::Advance => {
                self.time_ns += 6;
                self.store.set_group_time(self.time_ns);
                let now_ns = self.time_ns;
                self.model.retain(|_, item| item.1 == 0 || item.1 > now_ns);
            }
            Between::Chunk => self.chunk(),
            Between::Rebuild => {
                self.store.abandon_snapshot();
                while !self.store.clear_snapshot() {}
                self.writing = false;
                self.store = copy(&mut self.store);
            }
        }
    }

    /// Another snapshot is written meanwhile, so that there are shadows.
    fn chunk(&mut self) {
        self.writing = self.writing || self.store.begin_snapshot().is_ok();
        if self.writing {
            let step = self.store.snapshot_chunk(&mut Vec::new());
            self.writing = step.is_ok_and(|step| step != SnapshotStep::Last);
        }
    }

    fn check(&self, page: &Read, prefix: &[u8], seen: &mut BTreeSet<Vec<u8>>) {
        assert_eq!(page.position, self.store.applied());
        for (key, value, version, remaining_ns) in &page.items {
            let (expected, expiry_ns) = self.model.get(key).expect("only keys that are there");
            assert_eq!(value, expected);
            assert_eq!(
                *remaining_ns,
                (*expiry_ns != 0).then(|| expiry_ns - self.time_ns)
            );
            let at = self.store.get(key).map(|found| found.version);
            assert_eq!(at, Some(*version));
            assert!(key.starts_with(prefix));
            // A key of the same name may come back, but its place has been passed.
            assert!(seen.insert(key.clone()), "twice: {key:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_key_that_stays_is_seen_once(
        staying in 0_u16..800,
        counts in vec(1_u32..60, 1..4),
        of_staying: bool,
        happenings in vec(between(), 0..25),
    ) {
        let mut bench = Bench::new(staying);
        let prefix: &[u8] = if of_staying { b"stay/" } else { b"" };
        let (mut seen, mut from) = (BTreeSet::new(), Cursor::START);
        let mut happenings = happenings.iter();
        for number in 0.. {
            let page = read(&bench.store, from, counts[number % counts.len()], prefix);
            bench.check(&page, prefix, &mut seen);
            from = page.next;
            if from == Cursor::START {
                break;
            }
            if let Some(what) = happenings.next() {
                bench.happen(what);
            }
        }
        prop_assert!(bench.staying.is_subset(&seen));
    }
}

#[test]
fn the_order_is_that_of_every_replica_and_size() {
    let mut store = filled(20_000);
    let rebuilt = copy(&mut store);
    let (keys, pages) = all(&store, 100, b"");
    assert_eq!(keys.len(), 20_000);
    assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), 20_000);
    assert!((200..=220).contains(&pages), "{pages}");
    assert_eq!(all(&rebuilt, 7, b"").0, keys);
    // A page of one replica is continued at the other.
    let first = read(&store, Cursor::START, 5_000, b"");
    assert_eq!(first.items.len(), WALK_ITEMS_MAX as usize);
    let second = read(&rebuilt, first.next, 10, b"");
    assert_eq!(second.items[0].0, keys[first.items.len()]);
    assert_eq!(second.items.len(), 10);
    let few: Vec<_> = keys
        .into_iter()
        .filter(|key| key.starts_with(&[7]))
        .collect();
    assert_eq!(all(&store, 0, &[7]).0, few);
    assert!(!few.is_empty());
}

#[test]
fn pages_are_bounded_by_bytes_and_by_buckets() {
    let mut store = Store::new(Limits::default(), [5, 6]);
    for number in 0..20_u64 {
        let (key, value) = (number.to_le_bytes(), vec![7; 100_000]);
        let put = Command::Put {
            key: &key,
            value: &value,
        };
        store.apply(Position::new(number + 1, 0), &put);
    }
    let page = read(&store, Cursor::START, 0, b"");
    let bytes: usize = page.items.iter().map(|item| item.1.len()).sum();
    assert!(page.items.len() == 2 && bytes <= WALK_BYTES_MAX);
    assert_eq!(all(&store, 0, b"").0.len(), 20);
    let (key, value) = (b"huge".as_slice(), vec![7; 1 << 20]);
    store.apply(Position::new(30, 0), &Command::Put { key, value: &value });
    assert_eq!(all(&store, 0, b"").0.len(), 21, "a larger item goes alone");

    // A table that was large is walked in pages of nothing.
    let mut store = filled(100_000);
    for number in 0..100_000_u64 {
        let key = number.to_le_bytes();
        store.apply(
            Position::new(200_000 + number, 0),
            &Command::Delete { key: &key },
        );
    }
    let (keys, pages) = all(&store, 0, b"");
    assert!(keys.is_empty());
    let buckets = store.stats().index_bytes / 64;
    assert!(
        pages > 8 && u64::from(pages) <= buckets / u64::from(WALK_BUCKETS_MAX) + 1,
        "{pages}"
    );
}

#[test]
fn a_cursor_that_was_made_up_is_a_place_like_any_other() {
    let store = filled(3_000);
    let mut numbers = vec![1, 2, 3, (1 << 52) - 1, 1 << 51, 0xf_ffff_0000_0000];
    numbers.extend(
        (0..500_u64)
            .map(|number| Cursor::anywhere(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).as_u64()),
    );
    let mut first = BTreeSet::new();
    for number in numbers {
        let from = Cursor::new(number).expect("it has 52 bits");
        let page = read(&store, from, 10, b"");
        assert!(page.items.len() <= 10);
        first.extend(page.items.first().map(|item| item.0.clone()));
    }
    assert!(first.len() > 300, "they are spread: {}", first.len());
    let mut bytes = Vec::new();
    walk(Cursor::START, 1, WalkContent::Keys, b"").encode(&mut bytes);
    bytes[8] = 0x10;
    assert_eq!(
        Command::decode(&bytes),
        Err(DecodeError::BadField { field: "cursor" })
    );
}

#[test]
fn expired_keys_are_left_out_before_they_are_swept() {
    let mut store = Store::new(Limits::default(), [5, 6]);
    for number in 0..200_u64 {
        let (key, value) = (number.to_le_bytes(), b"v".as_slice());
        let options = SetOptions {
            expiry: trine_kvstore::SetExpiry::After(if number % 2 == 0 { 10 } else { 1_000 }),
            ..SetOptions::default()
        };
        let set = Command::Set {
            key: &key,
            value,
            options,
        };
        store.apply(Position::new(number + 1, 0), &set);
    }
    store.set_group_time(10);
    assert_eq!(
        store.stats().items,
        200 - 64,
        "the sweep takes a part of them"
    );
    let page = read(&store, Cursor::START, 0, b"");
    assert_eq!(page.items.len(), 100);
    assert!(page.items.iter().all(|item| item.3 == Some(990)));
}

/// Its pages end where this replica's table says: in the log its answers would differ.
#[test]
fn a_walk_has_no_place_in_the_log() {
    let mut store = filled(3);
    let command = walk(Cursor::START, 1, WalkContent::Keys, b"");
    let answer = store.apply(Position::new(9, 0), &command);
    assert_eq!(answer, Response::Error(StoreError::OnlyRead));
    let mut old = Store::with_version(Limits::default(), [1, 2], 5);
    let refused = Response::Error(StoreError::VersionNotActive {
        required: 6,
        active: 5,
    });
    assert_eq!(old.apply(Position::new(1, 0), &Command::Flush), refused);
}
