//! How close does a batch of lookups come to group prefetching that was written by hand?

use crate::PAIRS;
use std::cell::Cell;
use std::hint::black_box;
use trine_kvstore::interleave::{batch, prefetch};
use trine_packets::config::BATCH_DEFAULT as N;
use trine_packets::ipv4::{Dir24, bgp_like};
use trine_packets::switch::{Stations, random_stations};
use trine_report::pin::cpu_time_ns;
use trine_report::{Pairs, Report};
use trine_transport::prng::Prng;

/// Lookups of one run.
const LOOKUPS: usize = 1 << 20;
/// Sets of keys; neighbouring runs take different ones.
const SETS: usize = 4;
/// A table of 512 MiB.
const STATIONS: usize = 30_000_000;

pub(crate) fn measure(report: &mut Report, is_wanted: &dyn Fn(&str) -> bool) {
    let mut prng = Prng::new(3);
    if is_wanted("ipv4_find_vs_by_hand") {
        let table = Dir24::build(&bgp_like(500_000, &mut prng)).expect("a table");
        let sets = draw(|| prng.next_u64() as u32);
        let batched = |keys: &[u32]| {
            let mut sum = 0;
            batch::<N, _>(
                keys.len(),
                |i| table.find::<N>(keys[i]),
                |_, hop| sum += u64::from(hop.unwrap_or(0)),
            );
            sum
        };
        compare(report, "ipv4_find_vs_by_hand", &sets, batched, |keys| {
            ipv4(&table, keys)
        });
    }
    if is_wanted("switch_find_vs_by_hand") {
        let stations = random_stations(STATIONS, 4, &mut prng);
        let table = Stations::build(&stations, &mut prng).expect("a table");
        let sets = draw(|| stations[prng.below(STATIONS as u64) as usize].mac);
        let batched = |keys: &[u64]| {
            let mut sum = 0;
            batch::<N, _>(
                keys.len(),
                |i| table.find::<N>(keys[i]),
                |_, port| sum += u64::from(port.unwrap_or(0)),
            );
            sum
        };
        compare(report, "switch_find_vs_by_hand", &sets, batched, |keys| {
            switch(&table, keys)
        });
    }
}

fn draw<K>(mut key: impl FnMut() -> K) -> Vec<Vec<K>> {
    (0..SETS)
        .map(|_| (0..LOOKUPS).map(|_| key()).collect())
        .collect()
}

fn compare<K>(
    report: &mut Report,
    name: &str,
    sets: &[Vec<K>],
    batched: impl Fn(&[K]) -> u64,
    by_hand: impl Fn(&[K]) -> u64,
) {
    for set in sets {
        assert_eq!(batched(set), by_hand(set), "{name}: both find the same");
    }
    let runs = Cell::new(0);
    let rate = |way: &dyn Fn(&[K]) -> u64| {
        runs.set(runs.get() + 1);
        let start = cpu_time_ns();
        black_box(way(&sets[runs.get() % SETS]));
        LOOKUPS as f64 * 1e3 / (cpu_time_ns() - start)
    };
    let pairs = Pairs::run(PAIRS, || rate(&batched), || rate(&by_hand));
    report.pairs(name, "M/s", "group prefetching by hand", &pairs);
}

#[inline(never)]
fn ipv4(table: &Dir24, keys: &[u32]) -> u64 {
    let mut sum = 0;
    for group in keys.chunks(N) {
        let mut left = [(0, 0); N];
        let mut count = 0;
        group.iter().for_each(|&key| prefetch(table.first(key)));
        for &key in group {
            let entry = *table.first(key);
            if Dir24::is_link(entry) {
                prefetch(table.behind(entry, key));
                left[count] = (entry, key);
                count += 1;
            } else {
                sum += u64::from(Dir24::hop(entry).unwrap_or(0));
            }
        }
        for &(entry, key) in &left[..count] {
            sum += u64::from(Dir24::hop(*table.behind(entry, key)).unwrap_or(0));
        }
    }
    sum
}

#[inline(never)]
fn switch(table: &Stations, keys: &[u64]) -> u64 {
    let mut sum = 0;
    for group in keys.chunks(N) {
        let mut buckets = [[0; 2]; N];
        let mut left = [0; N];
        let mut count = 0;
        for (buckets, &key) in buckets.iter_mut().zip(group) {
            *buckets = table.buckets(key);
            prefetch(table.table().bucket(buckets[0]));
        }
        for (lane, &key) in group.iter().enumerate() {
            match table.find_in(buckets[lane][0], key) {
                Some(port) => sum += u64::from(port),
                None => {
                    prefetch(table.table().bucket(buckets[lane][1]));
                    left[count] = lane;
                    count += 1;
                }
            }
        }
        for &lane in &left[..count] {
            sum += u64::from(table.find_in(buckets[lane][1], group[lane]).unwrap_or(0));
        }
    }
    sum
}
