//! Cuckoo hashing 2-8: two buckets a key, eight slots a bucket, one cache line each.

use crate::keys::{Draw, mix};
use crate::lookups::{Case, LANES, SETS};
use std::future::Future;
use trine_kvstore::interleave::{batch, fetch, prefetch, refill};
use trine_kvstore::memory::Region;
use trine_report::Report;

const BUCKETS: usize = 1 << 22;
const SLOTS: usize = 8;
/// 90 % of the slots.
const KEYS: u64 = (BUCKETS * SLOTS) as u64 * 9 / 10;
const LOOKUPS: usize = 1 << 20;
/// Displacements of one insertion before the table counts as full.
const KICKS_MAX: usize = 2_000;

/// Slots of key (high half, 0 is empty) and value (low half).
struct Table {
    slots: Region<u64>,
}

pub(crate) fn measure(report: &mut Report) {
    let table = Table::filled();
    let mut draw = Draw(5);
    let sets: Vec<Vec<u32>> = (0..SETS)
        .map(|_| (0..LOOKUPS).map(|_| key_of(draw.below(KEYS))).collect())
        .collect();
    let case = Case {
        name: "cuckoo",
        count: LOOKUPS,
        naive: &|set| naive(&table, &sets[set]),
        by_hand: &|set| by_hand(&table, &sets[set]),
        batch: &|set| {
            let keys = &sets[set];
            let mut sum = 0;
            batch::<LANES, _>(
                keys.len(),
                |i| find::<0>(&table, keys[i]),
                |_, value| sum += u64::from(value),
            );
            sum
        },
        refill: &|set| {
            let keys = &sets[set];
            let mut sum = 0;
            refill::<LANES, _>(
                keys.len(),
                |i| find::<1>(&table, keys[i]),
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

#[inline(always)]
fn buckets_of(key: u32) -> [usize; 2] {
    let hash = mix(u64::from(key));
    [hash as usize % BUCKETS, (hash >> 32) as usize % BUCKETS]
}

impl Table {
    fn filled() -> Self {
        let mut slots = Region::empty();
        slots.grow_to(BUCKETS * SLOTS);
        let mut table = Self { slots };
        let mut draw = Draw(3);
        for number in 0..KEYS {
            table.insert(
                u64::from(key_of(number)) << 32 | (number & 0xffff_ffff),
                &mut draw,
            );
        }
        table
    }

    fn insert(&mut self, mut entry: u64, draw: &mut Draw) {
        for _ in 0..KICKS_MAX {
            let buckets = buckets_of((entry >> 32) as u32);
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
        let [first, second] = buckets_of(key);
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
            *buckets = buckets_of(key);
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

/// Each form gets a type of its own (`FORM`), so that its polls are inlined.
#[inline(always)]
fn find<const FORM: usize>(table: &Table, key: u32) -> impl Future<Output = u32> {
    let [first, second] = buckets_of(key);
    prefetch(table.bucket(first));
    async move {
        // The first bucket was prefetched when the lookup began, a whole round ago.
        if let Some(value) = match_in(table.bucket(first), key) {
            return value;
        }
        fetch(table.bucket(second)).await;
        match_in(table.bucket(second), key).expect("every key was inserted")
    }
}
