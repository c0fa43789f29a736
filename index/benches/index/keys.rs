//! The store's tree of keys against std's map: random keys of 16 bytes, and keys with a common beginning.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use trine_index::KeyTree;
use trine_report::Report;

use super::{Make, Subject, compare, random};

/// The key of a number.
type KeyOf = fn(usize) -> [u8; 16];

struct Std(BTreeMap<Box<[u8]>, ()>, KeyOf);

struct Ours(KeyTree, KeyOf);

/// What a scan gives: each key is looked at.
fn fold(sum: u64, key: &[u8]) -> u64 {
    sum.wrapping_add(u64::from(key[key.len() - 1]))
}

impl Subject for Std {
    fn insert(&mut self, number: usize) {
        self.0.insert((self.1)(number).into(), ());
    }

    fn get(&self, number: usize) -> bool {
        self.0.contains_key(&(self.1)(number)[..])
    }

    fn remove(&mut self, number: usize) -> bool {
        self.0.remove(&(self.1)(number)[..]).is_some()
    }

    fn scan(&self, number: usize, count: usize) -> u64 {
        let key = (self.1)(number);
        let range = self.0.range::<[u8], _>((Excluded(&key[..]), Unbounded));
        range.take(count).fold(0, |sum, (key, ())| fold(sum, key))
    }
}

impl Subject for Ours {
    fn insert(&mut self, number: usize) {
        self.0.insert(&(self.1)(number));
    }

    fn get(&self, number: usize) -> bool {
        self.0.contains(&(self.1)(number))
    }

    fn remove(&mut self, number: usize) -> bool {
        self.0.remove(&(self.1)(number))
    }

    fn scan(&self, number: usize, count: usize) -> u64 {
        let key = (self.1)(number);
        let mut range = self.0.range((Excluded(&key[..]), Unbounded));
        let mut sum = 0;
        for _ in 0..count {
            let Some(key) = range.next() else { break };
            sum = fold(sum, key);
        }
        sum
    }
}

fn random_key(number: usize) -> [u8; 16] {
    let (high, low) = (random(number), random(number ^ (1 << 40)));
    (u128::from(high) << 64 | u128::from(low)).to_be_bytes()
}

/// `user:` and a number of 11 digits, in no order.
fn user_key(number: usize) -> [u8; 16] {
    let mut key = *b"user:00000000000";
    // The factor shares no divisor with the modulus, so no two numbers meet.
    let mut rest = number as u64 * 68_718_953 % 100_000_000_000;
    for digit in key[5..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

pub(super) fn measure(report: &mut Report) {
    let shapes: [(&str, KeyOf); 2] = [("random keys", random_key), ("user:", user_key)];
    for (shape, key_of) in shapes {
        let maps: [(&str, Make<'_>); 2] = [
            (
                "BTreeMap",
                Box::new(move || Box::new(Std(BTreeMap::new(), key_of))),
            ),
            (
                "KeyTree",
                Box::new(move || Box::new(Ours(KeyTree::new(), key_of))),
            ),
        ];
        compare(report, shape, &maps);
    }
}
