//! The tree against std's set, with keys of shapes that bite.

use std::collections::BTreeSet;
use std::ops::Bound;

use proptest::prelude::*;

use super::{KeyTree, prefix_range};

type Model = BTreeSet<Vec<u8>>;

/// Keys that are empty, that differ in the padding of their heads, that share prefixes of any length, and that are as
/// long as a key may be.
fn key() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![Just(0x00_u8), Just(0x01), Just(0xff), any::<u8>()];
    let short = prop::collection::vec(byte, 0..8);
    let lengths = prop_oneof![
        8 => 0..20_usize,
        4 => 100..140_usize,
        2 => 250..300_usize,
        1 => 65_500..65_530_usize,
    ];
    prop_oneof![
        2 => short.clone(),
        1 => any::<u16>().prop_map(|number| format!("user:{number:010}").into_bytes()),
        2 => (prop_oneof![Just(b'a'), Just(0), Just(0xff)], lengths, short).prop_map(
            |(byte, length, tail)| {
                let mut key = vec![byte; length];
                key.extend(tail);
                key
            }
        ),
    ]
}

#[derive(Clone, Debug)]
enum TreeOperation {
    Insert(Vec<u8>),
    /// Removes the key at a place, counted from the beginning in parts of 65,536.
    Remove(u16),
    RemoveKey(Vec<u8>),
    Range(Bound<Vec<u8>>, Bound<Vec<u8>>),
    Prefix(Vec<u8>),
}

fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![
        key().prop_map(Bound::Included),
        key().prop_map(Bound::Excluded),
        Just(Bound::Unbounded),
    ]
}

fn step(removals: u32) -> impl Strategy<Value = TreeOperation> {
    prop_oneof![
        8 => key().prop_map(TreeOperation::Insert),
        removals => any::<u16>().prop_map(TreeOperation::Remove),
        1 => key().prop_map(TreeOperation::RemoveKey),
        1 => (bound(), bound()).prop_map(|(from, to)| TreeOperation::Range(from, to)),
        1 => key().prop_map(TreeOperation::Prefix),
    ]
}

fn as_slices<'a>(
    range: &'a (Bound<Vec<u8>>, Bound<Vec<u8>>),
) -> (Bound<&'a [u8]>, Bound<&'a [u8]>) {
    let slice = |bound: &'a Bound<Vec<u8>>| bound.as_ref().map(Vec::as_slice);
    (slice(&range.0), slice(&range.1))
}

fn is_in(key: &[u8], (from, to): (Bound<&[u8]>, Bound<&[u8]>)) -> bool {
    let after = match from {
        Bound::Included(from) => key >= from,
        Bound::Excluded(from) => key > from,
        Bound::Unbounded => true,
    };
    let before = match to {
        Bound::Included(to) => key <= to,
        Bound::Excluded(to) => key < to,
        Bound::Unbounded => true,
    };
    after && before
}

fn check_range(tree: &KeyTree, model: &Model, range: (Bound<&[u8]>, Bound<&[u8]>)) {
    let expected: Vec<_> = model.iter().filter(|key| is_in(key, range)).collect();
    assert_eq!(tree.count(range), expected.len() as u64);
    let (mut forwards, mut backwards) = (tree.range(range), tree.range_backwards(range));
    for key in &expected {
        assert_eq!(forwards.next(), Some(&key[..]));
    }
    for key in expected.iter().rev() {
        assert_eq!(backwards.next(), Some(&key[..]));
    }
    assert_eq!((forwards.next(), backwards.next()), (None, None));
}

fn run(tree: &mut KeyTree, model: &mut Model, step: TreeOperation) {
    match step {
        TreeOperation::Insert(key) => assert_eq!(tree.insert(&key), model.insert(key)),
        TreeOperation::Remove(place) => {
            let place = model.len() * usize::from(place) / (1 << 16);
            if let Some(key) = model.iter().nth(place).cloned() {
                assert_eq!(tree.nth(place as u64), Some(key.clone()));
                assert!(tree.contains(&key) && tree.remove(&key) && !tree.contains(&key));
                model.remove(&key);
            }
        }
        TreeOperation::RemoveKey(key) => {
            assert_eq!(tree.contains(&key), model.contains(&key));
            assert_eq!(tree.remove(&key), model.remove(&key));
        }
        TreeOperation::Range(from, to) => check_range(tree, model, as_slices(&(from, to))),
        TreeOperation::Prefix(prefix) => {
            let range = prefix_range(&prefix);
            let with = |key: &&Vec<u8>| key.starts_with(&prefix);
            let expected = model.iter().filter(with).count();
            assert_eq!(tree.count(as_slices(&range)), expected as u64);
            check_range(tree, model, as_slices(&range));
        }
    }
}

fn check_all(tree: &KeyTree, model: &Model) {
    tree.check();
    assert_eq!(tree.len(), model.len() as u64);
    assert_eq!(tree.first().as_ref(), model.first());
    assert_eq!(tree.last().as_ref(), model.last());
}

/// Empties a tree in an order of its own, and fills it again.
fn empty_and_refill(tree: &mut KeyTree, model: &Model) {
    let mut keys: Vec<_> = model.iter().collect();
    keys.sort_by_key(|key| {
        key.iter()
            .fold(7_u64, |hash, byte| hash.wrapping_mul(31) + u64::from(*byte))
    });
    for key in &keys {
        assert!(tree.remove(key));
    }
    tree.check();
    assert_eq!((tree.len(), tree.memory().nodes), (0, 1));
    for key in &keys {
        assert!(tree.insert(key));
    }
    check_all(tree, model);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn it_does_what_a_set_does(
        growing in prop::collection::vec(step(1), 0..300),
        shrinking in prop::collection::vec(step(16), 0..300),
    ) {
        let (mut tree, mut model) = (KeyTree::new(), Model::new());
        for step in growing.into_iter().chain(shrinking) {
            run(&mut tree, &mut model, step);
            check_all(&tree, &model);
        }
        empty_and_refill(&mut tree, &model);
    }
}

/// Numbers without an order, the same in every run.
fn scrambled(count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(|number| (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

#[test]
fn keys_in_either_order_and_in_none_come_out_in_order() {
    let count = 20_000;
    let orders: [Vec<u64>; 3] = [
        (0..count).collect(),
        (0..count).rev().collect(),
        scrambled(count).collect(),
    ];
    for numbers in orders {
        let mut tree = KeyTree::new();
        let mut keys: Vec<_> = numbers
            .iter()
            .map(|number| format!("{number:020}"))
            .collect();
        for key in &keys {
            assert!(tree.insert(key.as_bytes()) && !tree.insert(key.as_bytes()));
        }
        tree.check();
        keys.sort_unstable();
        let mut all = tree.range(..);
        for (place, key) in keys.iter().enumerate() {
            assert_eq!(all.next(), Some(key.as_bytes()));
            let range = (Bound::Unbounded, Bound::Excluded(key.as_bytes()));
            assert_eq!(tree.count(range), place as u64);
        }
        assert_eq!(all.next(), None);
    }
}

/// A longer prefix makes long keys no shorter. A split that gave the left half one overflowed it.
#[test]
fn long_keys_with_a_common_beginning_fill_their_nodes() {
    let (mut tree, mut model) = (KeyTree::new(), Model::new());
    for number in 0..400_u32 {
        let key = [&[b'a'; 300][..], &number.to_be_bytes()].concat();
        assert!(tree.insert(&key));
        model.insert(key);
        tree.check();
    }
    check_range(&tree, &model, (Bound::Unbounded, Bound::Unbounded));
}

#[test]
fn a_queue_gives_its_nodes_back() {
    let mut tree = KeyTree::new();
    let key = |number: u64| format!("queue:{number:012}").into_bytes();
    for number in 0..100_000 {
        tree.insert(&key(number));
        if number >= 1_000 {
            assert!(tree.remove(&key(number - 1_000)));
        }
    }
    tree.check();
    let memory = tree.memory();
    assert!(memory.nodes < 100, "{memory:?}");
}

#[test]
fn keys_that_come_in_order_fill_their_nodes() {
    let mut tree = KeyTree::new();
    for number in 0..100_000_u64 {
        tree.insert(format!("user:{number:011}").as_bytes());
    }
    let bytes = tree.memory().bytes as u64;
    // A slot is 8 bytes; what is left of a key beside its prefix fits into the head.
    assert!(bytes < 100_000 * 11, "{bytes}");
}

#[test]
fn a_range_that_ends_before_it_begins_is_empty() {
    let mut tree = KeyTree::new();
    for key in ["a", "b", "c"] {
        tree.insert(key.as_bytes());
    }
    let range = (Bound::Included(&b"c"[..]), Bound::Included(&b"a"[..]));
    assert_eq!(tree.count(range), 0);
    assert_eq!(tree.range(range).next(), None);
    assert_eq!(tree.range_backwards(range).next(), None);
    assert_eq!(tree.range_backwards(..).remaining(), 3);
}
