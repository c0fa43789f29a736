//! The store beside hashbrown, its memory, and PUT while a snapshot is written.

use crate::PAIRS;
use crate::cpu::{clock_cost_ns, percentile, thread_ns};
use crate::keys::{Draw, Key, VALUE, consume, key};
use crate::report::{Pairs, Report};
use std::hint::black_box;
use std::time::Instant;
use trine_kvstore::{Command, Limits, Position, SnapshotError, SnapshotStep, Store};

const ITEMS: u64 = 10_000_000;
const OPERATIONS: usize = 1 << 20;
const BATCH: usize = 16;

/// One chunk for so many PUTs: a snapshot of 10 M items then takes some 15 s of full load.
const PUTS_PER_CHUNK: usize = 2_048;

/// The argument of the child process that measures memory.
pub(crate) const MEMORY_JOB: &str = "--memory-job";

type Inline = hashbrown::HashMap<Key, [u8; 64], ahash::RandomState>;
type Boxed = hashbrown::HashMap<Box<[u8]>, Box<[u8]>, ahash::RandomState>;

/// A store with the next position to write at.
struct Own {
    store: Store,
    position: u64,
}

impl Own {
    fn filled(items: u64) -> Self {
        let limits = Limits {
            memory_bytes: 1 << 40,
            ..Limits::default()
        };
        let mut own = Self {
            store: Store::new(limits, [1, 2]),
            position: 1,
        };
        (0..items).for_each(|number| own.put(&key(number), &VALUE));
        own
    }

    #[inline(always)]
    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.position += 1;
        black_box(self.store.apply(
            Position::from_u64(self.position),
            &Command::Put { key, value },
        ));
    }
}

fn hasher() -> ahash::RandomState {
    ahash::RandomState::with_seeds(1, 2, 3, 4)
}

fn boxed() -> Boxed {
    let mut map = Boxed::with_hasher(hasher());
    map.extend((0..ITEMS).map(|number| (key(number).into(), VALUE.into())));
    map
}

fn rate(operations: usize, run: impl FnOnce() -> u64) -> f64 {
    let start = Instant::now();
    black_box(run());
    operations as f64 / start.elapsed().as_secs_f64() / 1e6
}

#[inline(never)]
fn get_one_by_one(store: &Store, keys: &[Key]) -> u64 {
    keys.iter()
        .map(|key| consume(store.get(key).expect("every key is there").value))
        .sum()
}

#[inline(never)]
fn get_interleaved(store: &Store, keys: &[Key]) -> u64 {
    let mut sum = 0_u64;
    for batch in keys.chunks(BATCH) {
        store.get_interleaved(
            batch.len(),
            |number| &batch[number],
            |_, found| {
                sum += consume(found.expect("every key is there").value);
            },
        );
    }
    sum
}

#[inline(never)]
fn get_inline(map: &Inline, keys: &[Key]) -> u64 {
    keys.iter()
        .map(|key| consume(map.get(key).expect("every key is there")))
        .sum()
}

#[inline(never)]
fn get_boxed(map: &Boxed, keys: &[Key]) -> u64 {
    keys.iter()
        .map(|key| consume(map.get(key.as_slice()).expect("every key is there")))
        .sum()
}

pub(crate) fn get(report: &mut Report) {
    let own = Own::filled(ITEMS);
    let store = &own.store;
    let mut inline = Inline::with_hasher(hasher());
    inline.extend((0..ITEMS).map(|number| (key(number), VALUE)));
    let boxed = boxed();
    let mut compare = |name: &str,
                       against: &str,
                       ours: fn(&Store, &[Key]) -> u64,
                       theirs: &dyn Fn(&[Key]) -> u64| {
        let (mut draw, mut other) = (Draw(100), Draw(100));
        let mut keys = Vec::new();
        let pairs = Pairs::run(
            PAIRS,
            || {
                keys = draw.keys(OPERATIONS, ITEMS);
                rate(OPERATIONS, || ours(store, &keys))
            },
            || {
                let keys = other.keys(OPERATIONS, ITEMS);
                rate(OPERATIONS, || theirs(&keys))
            },
        );
        report.pairs(name, "M/s", against, &pairs);
    };
    let by_inline = |keys: &[Key]| get_inline(&inline, keys);
    let by_boxed = |keys: &[Key]| get_boxed(&boxed, keys);
    compare(
        "get_interleaved_vs_hashbrown",
        "hashbrown, inline arrays",
        get_interleaved,
        &by_inline,
    );
    compare(
        "get_interleaved_vs_hashbrown_boxed",
        "hashbrown, boxed slices",
        get_interleaved,
        &by_boxed,
    );
    compare(
        "get_interleaved_vs_own",
        "own, one by one",
        get_interleaved,
        &|keys| get_one_by_one(store, keys),
    );
    compare(
        "get_vs_hashbrown",
        "hashbrown, inline arrays",
        get_one_by_one,
        &by_inline,
    );
    compare(
        "get_vs_hashbrown_boxed",
        "hashbrown, boxed slices",
        get_one_by_one,
        &by_boxed,
    );
}

pub(crate) fn put(report: &mut Report) {
    let mut own = Own::filled(ITEMS);
    let mut boxed = boxed();
    let (mut draw, mut other) = (Draw(200), Draw(200));
    let pairs = Pairs::run(
        PAIRS,
        || {
            let keys = draw.keys(OPERATIONS, ITEMS);
            rate(OPERATIONS, || {
                keys.iter().for_each(|key| own.put(key, &VALUE));
                0
            })
        },
        || {
            let keys = other.keys(OPERATIONS, ITEMS);
            rate(OPERATIONS, || {
                keys.iter()
                    .for_each(|key| drop(black_box(boxed.insert((*key).into(), VALUE.into()))));
                0
            })
        },
    );
    report.pairs(
        "put_vs_hashbrown_boxed",
        "M/s",
        "hashbrown, boxed slices",
        &pairs,
    );
}

/// In a process of its own, so that nothing else is in its resident memory.
pub(crate) fn memory(report: &mut Report) {
    let program = std::env::current_exe().expect("this program is a file");
    let output = std::process::Command::new(program)
        .arg(MEMORY_JOB)
        .output()
        .expect("it can be run again");
    let text = String::from_utf8(output.stdout).expect("the job prints a number");
    let overhead: f64 = text.trim().parse().expect("the job prints a number");
    report.value("memory_overhead_at_90_percent", overhead, "bytes");
}

/// Prints the growth of resident memory per item, less key and value, at 90 % of 2^21 buckets.
pub(crate) fn memory_job() {
    let items = (1_u64 << 21) * 7 * 9 / 10;
    let before = resident_bytes();
    let own = Own::filled(items);
    let grown = resident_bytes() - before;
    assert_eq!(own.store.stats().items, items);
    println!("{}", grown as f64 / items as f64 - 80.0);
}

fn resident_bytes() -> u64 {
    let statm =
        std::fs::read_to_string("/proc/self/statm").expect("Linux tells a process its memory");
    let pages: u64 = statm
        .split_whitespace()
        .nth(1)
        .and_then(|field| field.parse().ok())
        .expect("a number");
    pages * 4096
}

pub(crate) fn snapshot(report: &mut Report) {
    let own = std::cell::RefCell::new(Own::filled(ITEMS));
    let (mut draw, mut other) = (Draw(300), Draw(300));
    let pairs = Pairs::run(
        PAIRS,
        || {
            let own = &mut *own.borrow_mut();
            let keys = draw.keys(OPERATIONS, ITEMS);
            own.store
                .begin_snapshot()
                .expect("the last one was cleared away");
            let rate = rate(OPERATIONS, || put_beside_snapshot(own, &keys, |_| {}));
            own.store.abandon_snapshot();
            while !own.store.clear_snapshot() {}
            rate
        },
        || {
            let own = &mut *own.borrow_mut();
            let keys = other.keys(OPERATIONS, ITEMS);
            rate(OPERATIONS, || {
                keys.iter().for_each(|key| own.put(key, &VALUE));
                0
            })
        },
    );
    report.pairs("put_during_snapshot", "M/s", "without a snapshot", &pairs);
    let own = &mut *own.borrow_mut();
    report.value("put_cpu_p99_99", cpu_of_puts(own, false), "ns");
    report.value(
        "put_cpu_p99_99_during_snapshot",
        cpu_of_puts(own, true),
        "ns",
    );
    let start = Instant::now();
    let chunks = whole_snapshot(own);
    report.value(
        "snapshot_whole_under_puts",
        start.elapsed().as_secs_f64(),
        "s",
    );
    report.value("snapshot_chunks", chunks as f64, "chunks");
}

/// PUTs with a chunk after every so many of them; `each` gets the store's turn around each PUT.
fn put_beside_snapshot(
    own: &mut Own,
    keys: &[Key],
    mut chunk_done: impl FnMut(SnapshotStep),
) -> u64 {
    let mut chunk = Vec::new();
    let mut bytes = 0;
    for (index, key) in keys.iter().enumerate() {
        own.put(key, &VALUE);
        if index % PUTS_PER_CHUNK == 0 {
            match own.store.snapshot_chunk(&mut chunk) {
                Ok(step) => chunk_done(step),
                Err(SnapshotError::NotRunning) => {}
                Err(error) => panic!("{error}"),
            }
            bytes += chunk.len() as u64;
        }
    }
    bytes
}

/// The 99.99th percentile of the CPU time of single PUTs.
fn cpu_of_puts(own: &mut Own, beside_snapshot: bool) -> f64 {
    let keys = Draw(400).keys(2 * OPERATIONS, ITEMS);
    let cost = clock_cost_ns();
    if beside_snapshot {
        own.store.begin_snapshot().expect("the last one has ended");
    }
    let mut chunk = Vec::new();
    let mut samples = Vec::with_capacity(keys.len());
    for (index, key) in keys.iter().enumerate() {
        let start = thread_ns();
        own.put(key, &VALUE);
        samples.push((thread_ns() - start).saturating_sub(cost));
        if beside_snapshot && index % PUTS_PER_CHUNK == 0 {
            own.store.snapshot_chunk(&mut chunk).expect("it goes on");
        }
    }
    if beside_snapshot {
        own.store.abandon_snapshot();
        while !own.store.clear_snapshot() {}
    }
    percentile(&mut samples, 9_999) as f64
}

/// A snapshot from beginning to end while PUTs go on.
fn whole_snapshot(own: &mut Own) -> u64 {
    own.store.begin_snapshot().expect("the last one has ended");
    let (mut draw, mut chunks, mut ended) = (Draw(500), 0, false);
    while !ended {
        let keys = draw.keys(OPERATIONS, ITEMS);
        put_beside_snapshot(own, &keys, |step| {
            chunks += u64::from(step != SnapshotStep::Pending);
            ended |= step == SnapshotStep::Last;
        });
    }
    chunks
}
