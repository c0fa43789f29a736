//! The expiries of items, in an order that every replica shares.

use crate::hash::KeyHash;
use std::collections::BTreeMap;

/// Whether an expiry has passed; 0 is none.
#[inline]
pub(crate) fn is_over(expiry_ns: u64, now_ns: u64) -> bool {
    expiry_ns != 0 && expiry_ns <= now_ns
}

/// Expiries with the hashes of their keys, soonest first. Two keys with one hash and one expiry
/// share an entry and leave together, so that no order depends on where an item lies in memory.
#[derive(Default, Debug)]
pub(crate) struct Expiries {
    due: BTreeMap<(u64, KeyHash), u32>,
}

impl Expiries {
    /// Counts an item in; 0 is no expiry.
    pub(crate) fn add(&mut self, expiry_ns: u64, hash: KeyHash) {
        if expiry_ns != 0 {
            *self.due.entry((expiry_ns, hash)).or_insert(0) += 1;
        }
    }

    /// Counts an item out.
    pub(crate) fn remove(&mut self, expiry_ns: u64, hash: KeyHash) {
        if expiry_ns == 0 {
            return;
        }
        let count = self
            .due
            .get_mut(&(expiry_ns, hash))
            .expect("an item with an expiry was counted in");
        *count -= 1;
        if *count == 0 {
            self.due.remove(&(expiry_ns, hash));
        }
    }

    /// How many items will expire. Of keys that share an entry one counts.
    pub(crate) fn count(&self) -> u64 {
        self.due.len() as u64
    }

    /// Those that are due at `now_ns`, each once, however many keys share it.
    pub(crate) fn due(&self, now_ns: u64) -> impl Iterator<Item = (u64, KeyHash)> {
        let due = self.due.keys().copied();
        due.take_while(move |(expiry_ns, _)| *expiry_ns <= now_ns)
    }

    /// How many items are due at `now_ns`.
    pub(crate) fn count_due(&self, now_ns: u64) -> u64 {
        let due = self.due.iter();
        due.take_while(|((expiry_ns, _), _)| *expiry_ns <= now_ns)
            .map(|(_, &items)| u64::from(items))
            .sum()
    }

    /// Forgets up to `count` of them; true once none is left.
    pub(crate) fn forget_some(&mut self, count: u32) -> bool {
        for _ in 0..count {
            if self.due.pop_first().is_none() {
                return true;
            }
        }
        self.due.is_empty()
    }

    /// The soonest expiry.
    pub(crate) fn first(&self) -> Option<(u64, KeyHash)> {
        self.due.keys().next().copied()
    }
}
