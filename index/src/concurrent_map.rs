//! The map that several threads use together.
//!
//! The tree of `trine index`: keys and values are numbers of 64 bits. It is scc's `TreeIndex` behind a type of ours, so
//! that another tree could take its place. Readers and scans take no lock and are never blocked.

use std::ops::Bound::{Excluded, Unbounded};
use std::sync::{Mutex, MutexGuard, PoisonError};

use scc::{Guard, TreeIndex};

/// An ordered map that threads share.
///
/// ```
/// use trine_index::ConcurrentMap;
///
/// let map = ConcurrentMap::new(1_000);
/// for key in 1..=5 {
///     map.insert(key, key * 10)?;
/// }
/// assert_eq!(map.get(2), Some(20));
/// let scan = map.scan(2, 2);
/// assert_eq!((scan.keys, scan.sum), (2, 30 + 40));
/// # Ok::<(), trine_index::MapFull>(())
/// ```
#[derive(Debug)]
pub struct ConcurrentMap {
    tree: TreeIndex<u64, u64>,
    keys_max: u64,
    /// The number of keys. Writers hold it while they write.
    keys: Mutex<u64>,
}

/// A map has as many keys as it may have.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct MapFull {
    /// Their number.
    pub keys_max: u64,
}

impl std::fmt::Display for MapFull {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "the map has {} keys, as many as it may have",
            self.keys_max
        )
    }
}

impl std::error::Error for MapFull {}

/// What a scan has found.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanResult {
    /// Keys that it went over.
    pub keys: u32,
    /// The sum of their values, modulo 2^64.
    pub sum: u64,
}

impl ConcurrentMap {
    /// An empty map for up to `keys_max` keys.
    #[must_use]
    pub fn new(keys_max: u64) -> Self {
        Self {
            tree: TreeIndex::new(),
            keys_max,
            keys: Mutex::new(0),
        }
    }

    /// The number of keys.
    #[must_use]
    pub fn len(&self) -> u64 {
        *self.writing()
    }

    /// Whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of `key`.
    #[must_use]
    pub fn get(&self, key: u64) -> Option<u64> {
        self.tree.peek_with(&key, |_, value| *value)
    }

    /// Gives `key` a value, in place of an older one. A reader sees one or the other.
    ///
    /// # Errors
    ///
    /// [`MapFull`] if the key is a new one and there is no room for it.
    pub fn insert(&self, key: u64, value: u64) -> Result<(), MapFull> {
        let mut keys = self.writing();
        if *keys < self.keys_max && self.tree.insert_sync(key, value).is_ok() {
            *keys += 1;
            return Ok(());
        }
        if !self.tree.contains(&key) {
            let keys_max = self.keys_max;
            return Err(MapFull { keys_max });
        }
        self.tree.upsert_sync(key, value);
        Ok(())
    }

    /// Removes `key`; false if it was not there.
    pub fn remove(&self, key: u64) -> bool {
        let mut keys = self.writing();
        let removed = self.tree.remove_sync(&key);
        *keys -= u64::from(removed);
        removed
    }

    fn writing(&self) -> MutexGuard<'_, u64> {
        // Nothing in between a change of the tree and that of the count panics.
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sums the values of up to `limit` keys after `key`. Keys that come or go meanwhile may be counted or not.
    #[must_use]
    pub fn scan(&self, key: u64, limit: u32) -> ScanResult {
        let guard = Guard::new();
        let succeeding = self.tree.range((Excluded(key), Unbounded), &guard);
        let mut scan = ScanResult::default();
        for (_, value) in succeeding.take(limit as usize) {
            scan.keys += 1;
            scan.sum = scan.sum.wrapping_add(*value);
        }
        scan
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use proptest::prelude::*;

    use super::*;

    /// Fewer than the keys that the steps have.
    const KEYS_MAX: u64 = 150;

    fn model_scan(model: &BTreeMap<u64, u64>, key: u64, limit: u32) -> ScanResult {
        let succeeding = model.range((Excluded(key), Unbounded)).take(limit as usize);
        succeeding.fold(ScanResult::default(), |scan, (_, value)| ScanResult {
            keys: scan.keys + 1,
            sum: scan.sum.wrapping_add(*value),
        })
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u64, u64),
        Remove(u64),
        Scan(u64, u32),
    }

    fn step() -> impl Strategy<Value = Step> {
        let key = || prop_oneof![0..200_u64, Just(u64::MAX), any::<u64>()];
        prop_oneof![
            3 => (key(), any::<u64>()).prop_map(|(key, value)| Step::Insert(key, value)),
            2 => key().prop_map(Step::Remove),
            1 => (key(), 0..300_u32).prop_map(|(key, limit)| Step::Scan(key, limit)),
        ]
    }

    proptest! {
        #[test]
        fn it_does_what_a_map_does(steps in prop::collection::vec(step(), 0..600)) {
            let (map, mut model) = (ConcurrentMap::new(KEYS_MAX), BTreeMap::new());
            for step in steps {
                match step {
                    Step::Insert(key, value) => {
                        let is_full = model.len() as u64 == KEYS_MAX && !model.contains_key(&key);
                        assert_eq!(map.insert(key, value).is_err(), is_full);
                        if !is_full {
                            model.insert(key, value);
                        }
                        assert_eq!(map.get(key), model.get(&key).copied());
                    }
                    Step::Remove(key) => {
                        assert_eq!(map.get(key), model.get(&key).copied());
                        assert_eq!(map.remove(key), model.remove(&key).is_some());
                    }
                    Step::Scan(key, limit) => {
                        assert_eq!(map.scan(key, limit), model_scan(&model, key, limit));
                    }
                }
                assert_eq!(map.len(), model.len() as u64);
            }
        }
    }

    /// Even keys stay and have their own value. Odd keys come and go, with value 0. So whatever a scan meets of them,
    /// its sum is that of the even keys.
    #[test]
    fn readers_miss_nothing_while_writers_empty_and_refill_the_rest() {
        const KEYS: u64 = 4_000;
        const ROUNDS: u64 = 20;
        let map = ConcurrentMap::new(KEYS);
        let insert = |key, value| map.insert(key, value).expect("room");
        let even = || (2..KEYS).step_by(2);
        even().for_each(|key| insert(key, key));
        let (sum, over) = (even().sum::<u64>(), AtomicBool::new(false));
        let write = |part: u64| {
            for _ in 0..ROUNDS {
                let odd = || (1..KEYS).step_by(2).filter(|key| key / 2 % 2 == part);
                odd().for_each(|key| insert(key, 0));
                odd().for_each(|key| assert!(map.remove(key)));
            }
        };
        thread::scope(|scope| {
            let writers = [0, 1].map(|part| scope.spawn(move || write(part)));
            let reader = scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    assert_eq!(map.scan(0, u32::MAX).sum, sum);
                    even().for_each(|key| assert_eq!(map.get(key), Some(key)));
                }
            });
            for writer in writers {
                writer.join().expect("a writer");
            }
            over.store(true, Ordering::Relaxed);
            reader.join().expect("a reader");
        });
        let left = map.scan(0, u32::MAX);
        assert_eq!((u64::from(left.keys), left.sum), (KEYS / 2 - 1, sum));
    }
}
