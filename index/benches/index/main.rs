//! `cargo bench -p trine-index [-- NAME...]`: see `BENCHMARKS.md`.
//!
//! Each round builds all maps of a group anew, one after the other, and does every operation on each. A figure is the
//! median of the rounds, in processor time of the thread. A ratio is that of two medians. `KEYS` and
//! `ROUNDS` in the environment change their numbers.

mod concurrent;
mod keys;

use std::hint::black_box;

use trine_allocations::{Counting, live_bytes};
use trine_report::{Report, median, pin};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Keys of a SCAN, by name.
const SCANS: [(&str, usize); 3] = [("scan 10", 10), ("scan 128", 128), ("scan 10,000", 10_000)];
/// Keys that all scans of one length go over.
const SCANNED: usize = 2_000_000;

/// A map under measurement, over keys by their number.
trait Subject {
    fn insert(&mut self, number: usize);
    fn get(&self, number: usize) -> bool;
    fn remove(&mut self, number: usize) -> bool;
    /// Goes over `count` keys after one, and gives a number that depends on all of them.
    fn scan(&self, number: usize, count: usize) -> u64;
}

/// Makes an empty map.
type Make<'a> = Box<dyn Fn() -> Box<dyn Subject + 'a> + 'a>;

/// Measures a group.
type Measurement = fn(&mut Report);

/// Nanoseconds an operation, or bytes a key, by name.
type Figures = Vec<(&'static str, f64)>;

fn number_of(name: &str, default: usize) -> usize {
    let text = std::env::var(name);
    text.map_or(default, |text| text.parse().expect("a number"))
}

/// Nanoseconds of `run`, for one of `count` operations.
fn timed(count: usize, run: impl FnOnce()) -> f64 {
    let start = pin::cpu_time_ns();
    run();
    (pin::cpu_time_ns() - start) / count as f64
}

/// A fixed order of `0..count` without an order that caches like.
fn scrambled(count: usize, salt: u64) -> Vec<u32> {
    let mut numbers: Vec<u32> = (0..u32::try_from(count).expect("at most 2^32 keys")).collect();
    let mut state = salt | 1;
    for index in (1..count).rev() {
        state = state
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        numbers.swap(index, (state >> 33) as usize % (index + 1));
    }
    numbers
}

/// A random number for each key, the same in every run.
fn random(number: usize) -> u64 {
    let mut bits = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// All operations on one map.
fn figures(make: &Make<'_>, count: usize, order: &[u32]) -> Figures {
    let before = live_bytes();
    let mut map = make();
    let mut figures = vec![(
        "insert",
        timed(count, || (0..count).for_each(|key| map.insert(key))),
    )];
    figures.push(("bytes a key", (live_bytes() - before) as f64 / count as f64));
    let get = || {
        order
            .iter()
            .for_each(|key| assert!(black_box(map.get(*key as usize))))
    };
    figures.push(("get", timed(count, get)));
    for (name, length) in SCANS {
        let starts = &order[..(SCANNED / length).min(count)];
        let scan = || {
            for start in starts {
                black_box(map.scan(*start as usize, length));
            }
        };
        figures.push((name, timed(starts.len() * length, scan)));
    }
    let remove = || {
        order
            .iter()
            .for_each(|key| assert!(map.remove(*key as usize)))
    };
    figures.push(("remove", timed(count, remove)));
    figures
}

/// Measures maps against the first one.
fn compare(report: &mut Report, group: &str, maps: &[(&str, Make<'_>)]) {
    let (count, rounds) = (number_of("KEYS", 1_000_000), number_of("ROUNDS", 5));
    let rounds: Vec<Vec<Figures>> = (0..rounds)
        .map(|round| {
            let order = scrambled(count, round as u64);
            maps.iter()
                .map(|(_, make)| figures(make, count, &order))
                .collect()
        })
        .collect();
    let base = maps[0].0;
    for (map, (name, _)) in maps.iter().enumerate() {
        for (place, (figure, _)) in rounds[0][map].iter().enumerate() {
            let of = |map: usize| median(rounds.iter().map(|round| round[map][place].1));
            let unit = if *figure == "bytes a key" { "B" } else { "ns" };
            let row = format!("{group}, {count} keys: {figure}, {name}");
            match map {
                0 => report.value(&row, of(0), unit),
                _ => report.ratio(&row, of(map), unit, base, of(0)),
            }
        }
    }
}

fn main() {
    pin::pin(pin::two_cores().0);
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    let mut report = Report::new("index");
    let groups: [(&str, Measurement); 2] =
        [("keys", keys::measure), ("concurrent", concurrent::measure)];
    for (name, measure) in groups {
        if wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str())) {
            measure(&mut report);
        }
    }
    report.finish();
}
