//! Cuckoo hashing 2-8: two buckets a key, eight slots a bucket, one cache line each.

use crate::keys::{Draw, mix};
use crate::lookups::{Case, LANES, SETS};
use std::future::Future;
use trine_kvstore::interleave::{batch, fetch, prefetch};
use trine_kvstore::memory::Region;
use trine_report::Report;

/// The name of a case and its buckets: 256 MiB, which a large cache holds, and 1 GiB.
const CASES: [(&str, usize); 2] = [("cuckoo", 1 << 22), ("cuckoo_1g", 1 << 24)];
const SLOTS: usize = 8;
const LOOKUPS: usize = 1 << 20;
/// Displacements of one insertion before the table counts as full.
const KICKS_MAX: usize = 2_000;

/// Slots of key (high half, 0 is empty) and value (low half).
struct Table {
    slots: Region<u64>,
    /// A power of two.
    buckets: usize,
}

pub(crate) fn measure(report: &mut Report) {
    for (name, buckets) in CASES {
        measure_one(report, name, buckets);
    }
}

fn measure_one(report: &mut Report, name: &'static str, buckets: usize) {
    let table = Table::filled(buckets);
    let mut draw = Draw(5);
    let mut key = || key_of(draw.below(keys_of(buckets)));
    let sets: Vec<Vec<u32>> = (0..SETS)
        .map(|_| (0..LOOKUPS).map(|_| key()).collect())
        .collect();
    let case = Case {
        name,
        count: LOOKUPS,
        naive: &|set| naive(&table, &sets[set]),
        by_hand: &|set| by_hand(&table, &sets[set]),
        batch: &|set| {
            let keys = &sets[set];
            let mut sum = 0;
            batch::<LANES, _>(
                keys.len(),
                |i| find(&table, keys[i]),
                |_, value| sum += u64::from(value),
            );
            sum
        },
    };
    case.measure(report);
}

/// Distinct and never 0.
fn key_of(number: u64) -> u32 {
    (number as u32 + 1).wrapping_mul(0x9e37_79b1)
}

/// 90 % of the slots.
fn keys_of(buckets: usize) -> u64 {
    (buckets * SLOTS) as u64 * 9 / 10
}

impl Table {
    fn filled(buckets: usize) -> Self {
        let mut slots = Region::empty();
        slots.grow_to(buckets * SLOTS);
        let mut table = Self { slots, buckets };
        let mut draw = Draw(3);
        for number in 0..keys_of(buckets) {
            table.insert(
                u64::from(key_of(number)) << 32 | (number & 0xffff_ffff),
                &mut draw,
            );
        }
        table
    }

    fn insert(&mut self, mut entry: u64, draw: &mut Draw) {
        for _ in 0..KICKS_MAX {
            let buckets = self.buckets_of((entry >> 32) as u32);
            for bucket in buckets {
                let slots = &mut self.slots[bucket * SLOTS..][..SLOTS];
                if let Some(slot) = slots.iter_mut().find(|slot| **slot == 0) {
                    *slot = entry;
                    return;
                }
            }
            let victim = draw.below(2 * SLOTS as u64) as usize;
            let slot = &mut self.slots[buckets[victim / SLOTS] * SLOTS + victim % SLOTS];
            entry = std::mem::replace(slot, entry);
        }
        panic!("two buckets of eight hold 90 %");
    }

    #[inline(always)]
    fn buckets_of(&self, key: u32) -> [usize; 2] {
        let hash = mix(u64::from(key));
        let mask = self.buckets - 1;
        [hash as usize & mask, (hash >> 32) as usize & mask]
    }

    #[inline(always)]
    fn bucket(&self, bucket: usize) -> &[u64; SLOTS] {
        self.slots[bucket * SLOTS..]
            .first_chunk()
            .expect("a bucket has eight slots")
    }
}

#[inline(always)]
fn match_in(bucket: &[u64; SLOTS], key: u32) -> Option<u32> {
    bucket
        .iter()
        .find(|&&slot| (slot >> 32) as u32 == key)
        .map(|&slot| slot as u32)
}

#[inline(never)]
fn naive(table: &Table, keys: &[u32]) -> u64 {
    let find = |&key: &u32| {
        let [first, second] = table.buckets_of(key);
        let value =
            match_in(table.bucket(first), key).or_else(|| match_in(table.bucket(second), key));
        u64::from(value.expect("every key was inserted"))
    };
    keys.iter().map(find).sum()
}

#[inline(never)]
fn by_hand(table: &Table, keys: &[u32]) -> u64 {
    let mut sum = 0;
    for group in keys.chunks(LANES) {
        let mut buckets = [[0; 2]; LANES];
        let mut left = [0; LANES];
        let mut left_count = 0;
        for (buckets, &key) in buckets.iter_mut().zip(group) {
            *buckets = table.buckets_of(key);
            prefetch(table.bucket(buckets[0]));
        }
        for (lane, &key) in group.iter().enumerate() {
            match match_in(table.bucket(buckets[lane][0]), key) {
                Some(value) => sum += u64::from(value),
                None => {
                    prefetch(table.bucket(buckets[lane][1]));
                    left[left_count] = lane;
                    left_count += 1;
                }
            }
        }
        for &lane in &left[..left_count] {
            let value = match_in(table.bucket(buckets[lane][1]), group[lane]);
            sum += u64::from(value.expect("every key was inserted"));
        }
    }
    sum
}

#[inline(always)]
fn find(table: &Table, key: u32) -> impl Future<Output = u32> {
    async move {
        let [first, second] = table.buckets_of(key);
        fetch(table.bucket(first)).await;
        if let Some(value) = match_in(table.bucket(first), key) {
            return value;
        }
        fetch(table.bucket(second)).await;
        match_in(table.bucket(second), key).expect("every key was inserted")
    }
}
