//! The map of `trine index` against a lock around std's map: keys and values of 8 bytes, one thread.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::RwLock;

use trine_index::ConcurrentMap;
use trine_report::Report;

use super::{Make, Subject, compare, random};

struct Locked(RwLock<BTreeMap<u64, u64>>);

struct Ours(ConcurrentMap);

impl Subject for Locked {
    fn insert(&mut self, number: usize) {
        self.0
            .write()
            .expect("one thread")
            .insert(random(number), 1);
    }

    fn get(&self, number: usize) -> bool {
        self.0
            .read()
            .expect("one thread")
            .contains_key(&random(number))
    }

    fn remove(&mut self, number: usize) -> bool {
        self.0
            .write()
            .expect("one thread")
            .remove(&random(number))
            .is_some()
    }

    fn scan(&self, number: usize, count: usize) -> u64 {
        let map = self.0.read().expect("one thread");
        map.range((Excluded(random(number)), Unbounded))
            .take(count)
            .map(|(_, value)| value)
            .sum()
    }
}

impl Subject for Ours {
    fn insert(&mut self, number: usize) {
        self.0.insert(random(number), 1).expect("room");
    }

    fn get(&self, number: usize) -> bool {
        self.0.get(random(number)).is_some()
    }

    fn remove(&mut self, number: usize) -> bool {
        self.0.remove(random(number))
    }

    fn scan(&self, number: usize, count: usize) -> u64 {
        let limit = u32::try_from(count).expect("a short scan");
        self.0.scan(random(number), limit).sum
    }
}

pub(super) fn measure(report: &mut Report) {
    let maps: [(&str, Make<'_>); 2] = [
        (
            "RwLock over BTreeMap",
            Box::new(|| Box::new(Locked(RwLock::default()))),
        ),
        (
            "ConcurrentMap",
            Box::new(|| Box::new(Ours(ConcurrentMap::new(u64::MAX)))),
        ),
    ];
    compare(report, "8-byte keys", &maps);
}
