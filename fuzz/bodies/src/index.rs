//! Trees of `trine-index` against std's.

use std::collections::BTreeSet;
use std::ops::Bound;

use trine_apps::index::wire::{IndexRequest, IndexResponse, execute};
use trine_index::{ConcurrentMap, KeyTree, prefix_range};

/// Longer inputs only repeat themselves.
const INPUT_BYTES_MAX: usize = 2_400;
/// A check walks over the whole tree, so not every operation has one.
const OPERATIONS_PER_CHECK: usize = 8;
/// Bytes of the keys' common beginnings: none, less than a node keeps, more than a node keeps, more than a node has.
const BEGINNINGS: [usize; 8] = [0, 0, 1, 7, 120, 128, 200, 1_100];

/// Four bytes an operation, on a tree of keys and on a set.
pub fn key_tree(bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(INPUT_BYTES_MAX)];
    let (mut tree, mut model) = (KeyTree::new(), BTreeSet::new());
    for (number, operation) in bytes.chunks_exact(4).enumerate() {
        let [kind, shape, first, second] = *operation else {
            continue;
        };
        let key = key_of(shape, first, second);
        match kind % 16 {
            0..=7 => assert_eq!(tree.insert(&key), model.insert(key)),
            8..=10 => assert_eq!(tree.remove(&key), model.remove(&key)),
            11 => remove_at(&mut tree, &mut model, usize::from(first)),
            12 => insert_run(&mut tree, &mut model, key, second),
            13 => remove_range(&mut tree, &mut model, &key),
            14 => compare_range(&tree, &model, (Bound::Excluded(key), Bound::Unbounded)),
            _ => compare_range(&tree, &model, prefix_range(&key)),
        }
        if number % OPERATIONS_PER_CHECK == 0 {
            tree.check();
        }
        assert_eq!(tree.len(), model.len() as u64);
    }
    compare_range(&tree, &model, (Bound::Unbounded, Bound::Unbounded));
    for key in &model {
        assert!(tree.remove(key));
    }
    tree.check();
}

/// A beginning, and up to two bytes.
fn key_of(shape: u8, first: u8, second: u8) -> Vec<u8> {
    let beginning = BEGINNINGS[usize::from(shape % 8)];
    let mut key = vec![[0, b'a', 0xff][usize::from(shape >> 6).min(2)]; beginning];
    key.extend(&[first, second][..usize::from(shape >> 3) % 3]);
    key
}

fn remove_at(tree: &mut KeyTree, model: &mut BTreeSet<Vec<u8>>, place: usize) {
    let expected = model.iter().nth(place).cloned();
    assert_eq!(tree.nth(place as u64), expected);
    if let Some(key) = expected {
        assert!(tree.contains(&key) && tree.remove(&key));
        model.remove(&key);
    }
}

/// Many keys that differ in their last byte, so that nodes fill up.
fn insert_run(tree: &mut KeyTree, model: &mut BTreeSet<Vec<u8>>, mut key: Vec<u8>, count: u8) {
    key.push(0);
    for last in 0..count {
        *key.last_mut().expect("one was added") = last;
        assert_eq!(tree.insert(&key), model.insert(key.clone()));
    }
}

/// All keys after one, as far as 64 of them.
fn remove_range(tree: &mut KeyTree, model: &mut BTreeSet<Vec<u8>>, key: &[u8]) {
    let after = (Bound::Excluded(key), Bound::Unbounded);
    let keys: Vec<_> = model.range::<[u8], _>(after).take(64).cloned().collect();
    for key in keys {
        assert!(tree.remove(&key));
        model.remove(&key);
    }
}

fn compare_range(
    tree: &KeyTree,
    model: &BTreeSet<Vec<u8>>,
    range: (Bound<Vec<u8>>, Bound<Vec<u8>>),
) {
    let slices = (
        range.0.as_ref().map(Vec::as_slice),
        range.1.as_ref().map(Vec::as_slice),
    );
    let expected: Vec<_> = model.range::<[u8], _>(slices).collect();
    assert_eq!(tree.count(slices), expected.len() as u64);
    let (mut forwards, mut backwards) = (tree.range(slices), tree.range_backwards(slices));
    for (key, last) in expected.iter().zip(expected.iter().rev()) {
        assert_eq!(forwards.next(), Some(&key[..]));
        assert_eq!(backwards.next(), Some(&last[..]));
    }
    assert_eq!((forwards.next(), backwards.next()), (None, None));
}

/// A kind and what follows it: a request to an index, and what a client makes of any answer.
pub fn requests(bytes: &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else {
        return;
    };
    let map = ConcurrentMap::new(2);
    for key in 1..=2 {
        map.insert(key, key).expect("room");
    }
    let answer = execute(&map, 1, *kind, rest);
    assert!(map.len() <= 2);
    match IndexRequest::decode(*kind, rest) {
        Ok(ask) => {
            assert_eq!((ask.kind(), &ask.encode()[..]), (*kind, rest));
            assert_eq!(IndexResponse::decode(ask, &answer.encode()), Some(answer));
            let _ = IndexResponse::decode(ask, rest);
        }
        Err(refusal) => assert_eq!(answer, IndexResponse::Refused(refusal)),
    }
    for ask in [
        IndexRequest::Hello,
        IndexRequest::Get(1),
        IndexRequest::Put(1, 1),
        IndexRequest::Scan(1, 1),
    ] {
        if let Some(answer) = IndexResponse::decode(ask, bytes) {
            let encoded = answer.encode();
            assert_eq!(IndexResponse::decode(ask, &encoded), Some(answer));
        }
    }
}
