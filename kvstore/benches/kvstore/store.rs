//! The store beside hashbrown, its memory, and PUT while a snapshot is written.

use crate::PAIRS;
use crate::cpu::{Histogram, clock_cost_ns, thread_ns};
use crate::keys::{Draw, Key, VALUE, consume, key};
use std::hint::black_box;
use trine_kvstore::{Command, Limits, Position, SnapshotReader, SnapshotStep, Store};
use trine_report::{Pairs, Report};

const ITEMS: u64 = 10_000_000;
const OPERATIONS: usize = 1 << 20;
const BATCH: usize = 16;

/// One chunk for this many PUTs: a snapshot of 10 M items then takes 65 M of them.
const PUTS_PER_CHUNK: usize = 4_096;

/// PUTs of one window of a snapshot.
const WINDOW_PUTS: u64 = 6 << 20;

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

/// Millions a second of this thread's CPU time: other programs on the machine do not reduce it.
fn rate(operations: usize, run: impl FnOnce() -> u64) -> f64 {
    let start = thread_ns();
    black_box(run());
    operations as f64 * 1e3 / (thread_ns() - start) as f64
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
    let mut compare = |name: &str, ours: fn(&mut Own, &[Key])| {
        let (mut draw, mut other) = (Draw(200), Draw(200));
        let pairs = Pairs::run(
            PAIRS,
            || {
                let keys = draw.keys(OPERATIONS, ITEMS);
                rate(OPERATIONS, || {
                    ours(&mut own, &keys);
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
        report.pairs(name, "M/s", "hashbrown, boxed slices", &pairs);
    };
    compare("put_vs_hashbrown_boxed", put_one_by_one);
    compare("put_batched_vs_hashbrown_boxed", put_batched);
}

#[inline(never)]
fn put_one_by_one(own: &mut Own, keys: &[Key]) {
    keys.iter().for_each(|key| own.put(key, &VALUE));
}

/// As a replica applies a log entry.
#[inline(never)]
fn put_batched(own: &mut Own, keys: &[Key]) {
    let mut batch = Vec::with_capacity(BATCH);
    for keys in keys.chunks(BATCH) {
        batch.clear();
        for key in keys {
            own.position += 1;
            batch.push((
                Position::from_u64(own.position),
                Command::Put { key, value: &VALUE },
            ));
        }
        own.store
            .apply_batch(&batch, |_, response| drop(black_box(response)));
    }
}

/// In a process of its own, so that nothing else is in its resident memory.
pub(crate) fn memory(report: &mut Report) {
    let program = std::env::current_exe().expect("this program is a file");
    let output = std::process::Command::new(program)
        .arg(MEMORY_JOB)
        .output()
        .expect("it can be run again");
    let text = String::from_utf8(output.stdout).expect("the job prints a number");
    let mut numbers = text
        .split_whitespace()
        .map(|number| number.parse::<f64>().expect("the job prints numbers"));
    let mut next = || numbers.next().expect("the job prints all of them");
    report.value("memory_overhead_at_90_percent", next(), "bytes");
    report.value("memory_in_huge_pages", next(), "%");
    report.value("restore_memory_vs_original", next(), "x");
    report.value("restore_and_write_of_13_m_items", next(), "s");
}

/// Prints the growth of resident memory per item, less key and value, at 90 % of 2^21 buckets. Also
/// prints the share of resident memory that is in huge pages, and what restoring a snapshot of it
/// takes.
pub(crate) fn memory_job() {
    let items = (1_u64 << 21) * 7 * 9 / 10;
    let before = resident_bytes();
    let mut own = Own::filled(items);
    let grown = resident_bytes() - before;
    assert_eq!(own.store.stats().items, items);
    let huge = 100.0 * huge_page_bytes() as f64 / resident_bytes() as f64;
    let before_restore = resident_bytes();
    let start = thread_ns();
    let restored = restore(&mut own.store);
    let seconds = (thread_ns() - start) as f64 / 1e9;
    let restored_bytes = resident_bytes() - before_restore;
    assert_eq!(restored.state_hash(), own.store.state_hash());
    let overhead = grown as f64 / items as f64 - 80.0;
    println!(
        "{overhead} {huge} {} {seconds}",
        restored_bytes as f64 / grown as f64
    );
}

fn restore(store: &mut Store) -> Store {
    let (mut reader, mut chunk) = (SnapshotReader::new(), Vec::new());
    store.begin_snapshot().expect("none is running");
    loop {
        let step = store.snapshot_chunk(&mut chunk).expect("it goes on");
        if step != SnapshotStep::Pending {
            reader.push(&chunk).expect("the chunk is whole");
        }
        if step == SnapshotStep::Last {
            return reader.finish().expect("the last chunk has come");
        }
    }
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

fn huge_page_bytes() -> u64 {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup")
        .expect("Linux tells a process its memory");
    let line = rollup
        .lines()
        .find_map(|line| line.strip_prefix("AnonHugePages:"));
    let kib: u64 = line
        .and_then(|line| line.split_whitespace().next()?.parse().ok())
        .expect("a number");
    kib * 1024
}

/// One snapshot from beginning to end beside PUTs, in windows that alternate with as many PUTs on a
/// second store without a snapshot.
pub(crate) fn snapshot(report: &mut Report) {
    let (mut own, mut quiet) = (Own::filled(ITEMS), Own::filled(ITEMS));
    let windows = snapshot_windows(&mut own, &mut quiet);
    let total = |side: fn(&Window) -> u64| windows.iter().map(side).sum::<u64>() as f64;
    let puts = total(|window| window.puts);
    let (during, without) = (
        total(|window| window.during_ns),
        total(|window| window.without_ns),
    );
    let ratios = windows
        .iter()
        .map(|window| window.without_ns as f64 / window.during_ns as f64);
    let pairs = Pairs {
        ours: puts * 1e3 / during,
        theirs: puts * 1e3 / without,
        ratio: without / during,
        range: (
            ratios.clone().fold(f64::INFINITY, f64::min),
            ratios.fold(0.0, f64::max),
        ),
    };
    report.pairs("put_during_snapshot", "M/s", "without a snapshot", &pairs);
    report.value("put_cpu_p99_99", cpu_of_puts(&mut quiet, false), "ns");
    report.value(
        "put_cpu_p99_99_during_snapshot",
        cpu_of_puts(&mut quiet, true),
        "ns",
    );
}

/// CPU time of as many PUTs on both sides.
struct Window {
    puts: u64,
    during_ns: u64,
    without_ns: u64,
}

fn snapshot_windows(own: &mut Own, quiet: &mut Own) -> Vec<Window> {
    let mut draw = Draw(300);
    let (mut windows, mut chunk, mut ended) = (Vec::new(), Vec::new(), false);
    own.store.begin_snapshot().expect("none is running");
    while !ended {
        let mut window = Window {
            puts: 0,
            during_ns: 0,
            without_ns: 0,
        };
        while window.puts < WINDOW_PUTS && !ended {
            let keys = draw.keys(OPERATIONS, ITEMS);
            let start = thread_ns();
            for keys in keys.chunks(PUTS_PER_CHUNK) {
                keys.iter().for_each(|key| own.put(key, &VALUE));
                ended = ended
                    || own.store.snapshot_chunk(&mut chunk).expect("it goes on")
                        == SnapshotStep::Last;
            }
            window.during_ns += thread_ns() - start;
            let start = thread_ns();
            keys.iter().for_each(|key| quiet.put(key, &VALUE));
            window.without_ns += thread_ns() - start;
            window.puts += keys.len() as u64;
        }
        windows.push(window);
    }
    assert!(
        windows.len() >= PAIRS,
        "a ratio needs at least {PAIRS} pairs"
    );
    windows
}

/// The 99.99th percentile of the CPU time of single PUTs.
fn cpu_of_puts(own: &mut Own, beside_snapshot: bool) -> f64 {
    let keys = Draw(400).keys(2 * OPERATIONS, ITEMS);
    let cost = clock_cost_ns();
    if beside_snapshot {
        own.store.begin_snapshot().expect("the last one has ended");
    }
    let mut chunk = Vec::new();
    let mut histogram = Histogram::default();
    for (index, key) in keys.iter().enumerate() {
        let start = thread_ns();
        own.put(key, &VALUE);
        histogram.add((thread_ns() - start).saturating_sub(cost));
        if beside_snapshot && index % PUTS_PER_CHUNK == 0 {
            own.store.snapshot_chunk(&mut chunk).expect("it goes on");
        }
    }
    if beside_snapshot {
        own.store.abandon_snapshot();
        while !own.store.clear_snapshot() {}
    }
    histogram.percentile(9_999)
}

/// How many items growth is measured to, unless `TRINE_BENCH_ITEMS` says otherwise.
const GROWTH_ITEMS: u64 = 10_000_000;

/// CPU time of single insertions while the table grows from nothing.
pub(crate) fn growth(report: &mut Report) {
    let asked = std::env::var("TRINE_BENCH_ITEMS")
        .ok()
        .and_then(|items| items.parse().ok());
    let items = asked.unwrap_or(GROWTH_ITEMS);
    let mut own = Own::filled(0);
    let cost = clock_cost_ns();
    let mut histogram = Histogram::default();
    for number in 0..items {
        let key = key(number);
        let start = thread_ns();
        own.put(&key, &VALUE);
        histogram.add((thread_ns() - start).saturating_sub(cost));
    }
    assert_eq!(own.store.stats().items, items);
    report.value("growth_items", items as f64, "items");
    report.value("growth_cpu_p50", histogram.percentile(5_000), "ns");
    report.value("growth_cpu_p99_99", histogram.percentile(9_999), "ns");
    report.value("growth_cpu_max", histogram.percentile(10_000), "ns");
}
