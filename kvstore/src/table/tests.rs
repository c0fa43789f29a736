//! The table beside a model, with locations that equal their own hash.

use super::*;
use std::collections::BTreeMap;

/// Spreads a number over 64 bits, so that it can serve as a key's hash.
fn hash_of(number: u64) -> KeyHash {
    KeyHash(
        (number + 1)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29)
            .wrapping_mul(0xbf58_476d_1ce4_e5b9),
    )
}

fn of_location(location: Location) -> KeyHash {
    hash_of(location.as_u48())
}

fn find(table: &Table, number: u64) -> Option<Slot> {
    table.find_location(hash_of(number), Location::from_u48(number))
}

#[test]
fn entries_are_found_through_growth_and_removal() {
    let mut table = Table::new();
    for number in 0..20_000 {
        table.insert(hash_of(number), Location::from_u48(number));
        table.grow(of_location);
    }
    assert_eq!(table.entries(), 20_000);
    // 29/32 of 7 slots a bucket.
    assert!(
        u64::from(table.buckets()) * 7 * 29 / 32 >= 20_000,
        "{}",
        table.buckets()
    );
    for number in (0..20_000).step_by(2) {
        let slot = find(&table, number).expect("it was inserted");
        table.remove(hash_of(number), slot);
    }
    for number in 0..20_000 {
        assert_eq!(find(&table, number).is_some(), number % 2 == 1, "{number}");
    }
    assert_eq!(find(&table, 20_001), None);
}

#[test]
fn chains_grow_and_shrink_and_reuse_their_spare_buckets() {
    let mut table = Table::new();
    let same_home: Vec<u64> = (0..100_000)
        .filter(|&number| table.home(hash_of(number)) == BucketId::main(5))
        .take(60)
        .collect();
    for &number in &same_home {
        table.insert(hash_of(number), Location::from_u48(number));
    }
    let spares = table.spare_used;
    assert_eq!(spares, 60_u32.div_ceil(SLOTS) - 1);
    for &number in &same_home {
        let slot = find(&table, number).expect("it was inserted");
        table.remove(hash_of(number), slot);
    }
    let mut left = 0;
    table.for_each_in_chain(BucketId::main(5), |_| left += 1);
    assert_eq!(left, 0);
    for &number in &same_home {
        table.insert(hash_of(number), Location::from_u48(number));
    }
    assert_eq!(
        table.spare_used, spares,
        "returned spare buckets are used again"
    );
}

#[test]
fn a_bucket_is_a_range_of_the_snapshot_order() {
    let mut table = Table::new();
    for number in 0..3_000 {
        table.insert(hash_of(number), Location::from_u48(number));
        table.grow(of_location);
    }
    let mut homes: BTreeMap<u64, (u32, BucketId)> = BTreeMap::new();
    for number in 0..3_000 {
        let (bits, home) = (
            table.home_bits(hash_of(number)),
            table.home(hash_of(number)),
        );
        let prefix = hash_of(number).order() >> (64 - bits) << (64 - bits);
        assert_eq!(*homes.entry(prefix).or_insert((bits, home)), (bits, home));
    }
    assert!(homes.len() > 300);
}
