//! A cache may forget, but what it answers was the last thing written.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn cache() -> Cache {
    let config = CacheConfig {
        log_bytes: CACHE_LOG_BYTES_MIN,
        index_bytes: 1,
    };
    Cache::new(config, [5, 6]).expect("the configuration leaves room")
}

#[derive(Clone, Debug)]
enum CacheOperation {
    Get(u16),
    Put(u16, u8, usize),
    Delete(u16),
}

fn operation() -> impl Strategy<Value = CacheOperation> {
    let length = prop_oneof![8 => 0_usize..200, 2 => 10_000_usize..600_000];
    prop_oneof![
        2 => (0_u16..300).prop_map(CacheOperation::Get),
        4 => (0_u16..300, any::<u8>(), length).prop_map(|(key, fill, length)| CacheOperation::Put(key, fill, length)),
        1 => (0_u16..300).prop_map(CacheOperation::Delete),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_answer_is_the_last_value_or_none(operations in vec(operation(), 1..300)) {
        let mut cache = cache();
        let mut last: BTreeMap<u16, Vec<u8>> = BTreeMap::new();
        for operation in &operations {
            match *operation {
                CacheOperation::Get(key) => {
                    if let Some(value) = cache.get(&key.to_le_bytes()) {
                        assert_eq!(Some(value), last.get(&key).map(Vec::as_slice));
                    }
                }
                CacheOperation::Put(key, fill, length) => {
                    let value = vec![fill; length];
                    cache.put(&key.to_le_bytes(), &value).expect("it is small enough");
                    assert_eq!(cache.get(&key.to_le_bytes()), Some(value.as_slice()), "the newest is there");
                    last.insert(key, value);
                }
                CacheOperation::Delete(key) => {
                    cache.delete(&key.to_le_bytes());
                    last.remove(&key);
                    assert_eq!(cache.get(&key.to_le_bytes()), None);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// Also where a batch writes a key twice, evicts what it has just fetched, or has an item that is too long.
    #[test]
    fn a_batch_of_puts_is_as_many_single_ones(items in vec((0_u16..300, any::<u8>(), length()), 1..400), size in 1_usize..80) {
        let (mut batched, mut single) = (cache(), cache());
        let items: Vec<([u8; 2], Vec<u8>)> = items
            .into_iter()
            .map(|(key, fill, length)| (key.to_le_bytes(), vec![fill; length]))
            .collect();
        for batch in items.chunks(size) {
            let mut results = Vec::new();
            batched.put_batch(
                batch.len(),
                |number| (&batch[number].0, &batch[number].1),
                |number, result| results.push((number, result)),
            );
            let expected = batch.iter().map(|(key, value)| single.put(key, value));
            assert_eq!(results, expected.enumerate().collect::<Vec<_>>());
        }
        for key in 0..300_u16 {
            assert_eq!(batched.get(&key.to_le_bytes()), single.get(&key.to_le_bytes()));
        }
        assert_eq!(batched.stats(), single.stats());
    }
}

fn length() -> impl Strategy<Value = usize> {
    prop_oneof![8 => 0_usize..200, 2 => 10_000_usize..600_000, 1 => Just(VALUE_BYTES_MAX as usize + 1)]
}

#[test]
fn eviction_is_first_in_first_out() {
    let mut cache = cache();
    let value = vec![1; 64 * 1024];
    for key in 0..1_000_u32 {
        cache
            .put(&key.to_le_bytes(), &value)
            .expect("it is small enough");
    }
    let present: Vec<u32> = (0..1_000)
        .filter(|key: &u32| cache.get(&key.to_le_bytes()).is_some())
        .collect();
    // 8 MiB hold 127 items of 64 KiB with their headers.
    assert_eq!(present, (1_000 - 127..1_000).collect::<Vec<_>>());
    assert_eq!(cache.stats().log_rounds, 1_000 / 127);
}

#[test]
fn a_full_bucket_forgets_its_oldest() {
    let mut cache = cache();
    let home =
        |cache: &Cache, key: u32| cache.index.bucket_of(cache.hasher.key(&key.to_le_bytes()));
    let first = home(&cache, 0);
    let rivals: Vec<u32> = (0..1_000_000)
        .filter(|&key| home(&cache, key) == first)
        .take(9)
        .collect();
    for &key in &rivals {
        cache
            .put(&key.to_le_bytes(), b"value")
            .expect("it is small enough");
    }
    let kept: Vec<u32> = rivals
        .iter()
        .copied()
        .filter(|key| cache.get(&key.to_le_bytes()).is_some())
        .collect();
    assert_eq!(kept, rivals[2..]);
    assert_eq!(cache.stats().bucket_evictions, 2);
}

#[test]
fn interleaved_lookups_and_lists_agree_with_single_ones() {
    let mut cache = cache();
    for key in (0..500_u32).step_by(2) {
        cache
            .put(&key.to_le_bytes(), &key.to_be_bytes())
            .expect("it is small enough");
    }
    let keys: Vec<[u8; 4]> = (0..500_u32).map(u32::to_le_bytes).collect();
    let mut seen = vec![None; keys.len()];
    cache.get_interleaved(
        keys.len(),
        |number| &keys[number],
        |number, value| seen[number] = value.map(<[u8]>::to_vec),
    );
    for (key, value) in keys.iter().zip(&seen) {
        assert_eq!(cache.get(key), value.as_deref());
    }
    let slices: Vec<&[u8]> = keys.iter().map(<[u8; 4]>::as_slice).collect();
    let Response::List(list) = cache.apply(&Command::MultiGet {
        keys: List::from(slices.as_slice()),
    }) else {
        panic!("MGET answers with a list")
    };
    for (response, value) in list.iter().zip(&seen) {
        assert_eq!(response, value_or_not(value.as_deref()));
    }
}

#[test]
fn what_a_cache_cannot_do_is_refused() {
    let mut cache = cache();
    let too_long = vec![0; VALUE_BYTES_MAX as usize + 1];
    assert_eq!(
        cache.put(b"k", &too_long),
        Err(StoreError::ValueTooLong {
            limit: VALUE_BYTES_MAX
        })
    );
    let increment = Command::Increment {
        key: b"k",
        delta: 1,
    };
    assert_eq!(
        cache.apply(&increment),
        Response::Error(StoreError::NotInCache)
    );
    let small = CacheConfig {
        log_bytes: 1,
        index_bytes: 1,
    };
    assert!(matches!(
        Cache::new(small, [0, 0]),
        Err(CacheConfigError::LogTooSmall { asked: 1 })
    ));
}

#[test]
fn shards_get_equal_shares_and_never_change() {
    let mut counts = [0_u32; 3];
    for key in 0..30_000_u32 {
        counts[shard_of(&key.to_le_bytes(), 3) as usize] += 1;
    }
    assert!(
        counts.iter().all(|count| (9_500..10_500).contains(count)),
        "{counts:?}"
    );
    assert_eq!(
        [b"a".as_slice(), b"trine", b""].map(|key| shard_of(key, 1_000)),
        SHARDS
    );
}

/// Clients of every version must agree on these.
const SHARDS: [u32; 3] = [500, 560, 903];
