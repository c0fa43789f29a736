//! Ranks: how many keys are before a key, and which key is at a rank.

use std::ops::{Bound, RangeBounds};

use super::KeyTree;
use super::path::Path;

impl KeyTree {
    /// The number of keys in a range: two descents, whatever their number. A range that ends before it begins has none.
    #[must_use]
    pub fn count(&self, range: impl RangeBounds<[u8]>) -> u64 {
        let (start, end) = self.places(&range);
        end - start
    }

    /// The key before which there are `place` others.
    #[must_use]
    pub fn nth(&self, place: u64) -> Option<Vec<u8>> {
        let path = self.path_to_place(place)?;
        let (leaf, entry) = path.at(path.leaf());
        Some(self.pool.get(leaf).key(entry, &self.long_keys))
    }

    /// The least key.
    #[must_use]
    pub fn first(&self) -> Option<Vec<u8>> {
        self.nth(0)
    }

    /// The greatest key.
    #[must_use]
    pub fn last(&self) -> Option<Vec<u8>> {
        self.nth(self.count.checked_sub(1)?)
    }

    /// The numbers of keys before a range, and up to its end.
    pub(super) fn places(&self, range: &impl RangeBounds<[u8]>) -> (u64, u64) {
        let start = match range.start_bound() {
            Bound::Included(key) => self.keys_before(key, false),
            Bound::Excluded(key) => self.keys_before(key, true),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(key) => self.keys_before(key, true),
            Bound::Excluded(key) => self.keys_before(key, false),
            Bound::Unbounded => self.count,
        };
        (start, end.max(start))
    }

    /// The number of keys before `key`, itself among them if `inclusive`.
    fn keys_before(&self, key: &[u8], inclusive: bool) -> u64 {
        let (path, found) = self.path_to(key);
        let before = |depth| {
            let (id, entry) = path.at(depth);
            self.pool.get(id).keys_before(entry)
        };
        let sum: u64 = (0..=path.leaf()).map(before).sum();
        sum + u64::from(inclusive && found)
    }

    /// The way to the key before which there are `place` others.
    pub(super) fn path_to_place(&self, place: u64) -> Option<Path> {
        if place >= self.count {
            return None;
        }
        let (mut path, mut page, mut left) = (Path::new(), self.root, place);
        loop {
            let view = self.pool.get(page);
            if view.level() == 0 {
                let entry = usize::try_from(left).expect("an entry of a leaf");
                path.push(page, entry);
                return Some(path);
            }
            let mut index = 0;
            let mut link = view.link(0);
            while left >= link.keys {
                left -= link.keys;
                index += 1;
                link = view.link(index);
            }
            path.push(page, index);
            page = link.child;
        }
    }
}
