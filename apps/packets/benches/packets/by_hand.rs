//! Batches of lookups against group prefetching written by hand.
//!
//! For each lookup: the same table and keys, once in batches and once by hand. A hand-written loop takes groups of as many
//! keys as a batch has lanes.

mod ipv4;
mod ipv6;
mod names;
mod patterns;
mod switch;

use crate::PAIRS;
use aho_corasick::AhoCorasickKind;
use std::cell::Cell;
use std::hint::black_box;
use trine_packets::config::BATCH_DEFAULT;
use trine_report::pin::cpu_time_ns;
use trine_report::{Pairs, Report};
use trine_transport::prng::Prng;

/// Lanes of a batch, and keys of a group.
const N: usize = BATCH_DEFAULT;
/// Gives the futures types of their own. The compiler would keep the poll of one that is used in two loops as a function.
const TAG: usize = 1_000 + N;
/// Lookups of one run.
const LOOKUPS: usize = 1 << 20;
/// Sets of keys. Neighbouring runs take different ones.
const SETS: usize = 4;

/// Lookups in one table, in both ways. Each sums up what it finds.
trait Lookups<K> {
    fn batched(&self, keys: &[K]) -> u64;
    fn by_hand(&self, keys: &[K]) -> u64;
}

pub(crate) fn measure(report: &mut Report, is_wanted: &dyn Fn(&str) -> bool) {
    let prng = &mut Prng::new(3);
    let row = "ipv4_find_vs_by_hand";
    if is_wanted(row) {
        let (table, keys) = ipv4::Ipv4::new(500_000, prng);
        compare(report, row, &keys, &table);
    }
    for (row, prefixes) in [
        ("ipv6_find_vs_by_hand", 200_000),
        ("ipv6_large_find_vs_by_hand", 800_000),
    ] {
        if is_wanted(row) {
            let (table, keys) = ipv6::Ipv6::new(prefixes, prng);
            compare(report, row, &keys, &table);
        }
    }
    for (row, stations) in [
        ("switch_find_vs_by_hand", 1_000_000),
        ("switch_large_find_vs_by_hand", 60_000_000),
    ] {
        if is_wanted(row) {
            let (table, keys) = switch::Switch::new(stations, prng);
            compare(report, row, &keys, &table);
        }
    }
    let row = "names_find_vs_by_hand";
    if is_wanted(row) {
        let (table, keys) = names::Names::new(10_000_000, prng);
        compare(report, row, &keys, &table);
    }
    if is_wanted("patterns_find_vs_by_hand") {
        measure_patterns(report, prng);
    }
}

/// Against a loop by hand, and against the automata of the `aho-corasick` crate.
fn measure_patterns(report: &mut Report, prng: &mut Prng) {
    let patterns = patterns::patterns(23_331, prng);
    let (table, contents) = patterns::Patterns::new(&patterns, prng);
    compare(report, "patterns_find_vs_by_hand", &contents, &table);
    for (row, against, kind) in [
        ("patterns_find_vs_crate", "the crate's own choice", None),
        (
            "patterns_find_vs_crate_dfa",
            "the crate's DFA",
            Some(AhoCorasickKind::DFA),
        ),
    ] {
        let automaton = patterns::of_the_crate(&patterns, kind);
        let theirs = |set: &[Vec<u8>]| patterns::crate_finds(&automaton, set);
        let ours = |set: &[Vec<u8>]| table.batched(set);
        pairs(report, row, against, &contents, ours, theirs);
    }
}

fn draw<K>(mut key: impl FnMut() -> K) -> Vec<Vec<K>> {
    (0..SETS)
        .map(|_| (0..LOOKUPS).map(|_| key()).collect())
        .collect()
}

fn compare<K>(report: &mut Report, name: &str, sets: &[Vec<K>], table: &impl Lookups<K>) {
    let against = "group prefetching by hand";
    let batched = |keys: &[K]| table.batched(keys);
    pairs(report, name, against, sets, batched, |keys| {
        table.by_hand(keys)
    });
}

fn pairs<K>(
    report: &mut Report,
    name: &str,
    against: &str,
    sets: &[Vec<K>],
    ours: impl Fn(&[K]) -> u64,
    theirs: impl Fn(&[K]) -> u64,
) {
    for set in sets {
        assert_eq!(ours(set), theirs(set), "{name}: both find the same");
    }
    let runs = Cell::new(0);
    let rate = |way: &dyn Fn(&[K]) -> u64| {
        runs.set(runs.get() + 1);
        let set = &sets[runs.get() % SETS];
        let start = cpu_time_ns();
        black_box(way(set));
        set.len() as f64 * 1e3 / (cpu_time_ns() - start)
    };
    let pairs = Pairs::run(PAIRS, || rate(&ours), || rate(&theirs));
    report.pairs(name, "M/s", against, &pairs);
}
