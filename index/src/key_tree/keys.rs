//! The keys of a range, one after the other.

use std::ops::{Bound, RangeBounds};

use super::KeyTree;
use super::path::Path;

/// The keys of a range, forwards or backwards. Each lies in a buffer of the iterator until the next is asked for, so
/// nothing is allocated for it.
pub struct Keys<'a> {
    tree: &'a KeyTree,
    /// The way to the next key; `None` when all have been given.
    path: Option<Path>,
    left: u64,
    backwards: bool,
    key: Vec<u8>,
}

impl KeyTree {
    /// The keys of a range, the least first.
    #[must_use]
    pub fn range(&self, range: impl RangeBounds<[u8]>) -> Keys<'_> {
        let (start, end) = self.places(&range);
        self.keys(start, end - start, false)
    }

    /// The keys of a range, the greatest first.
    #[must_use]
    pub fn range_backwards(&self, range: impl RangeBounds<[u8]>) -> Keys<'_> {
        let (start, end) = self.places(&range);
        self.keys(end.saturating_sub(1), end - start, true)
    }

    fn keys(&self, place: u64, left: u64, backwards: bool) -> Keys<'_> {
        Keys {
            tree: self,
            path: (left > 0).then(|| self.path_to_place(place)).flatten(),
            left,
            backwards,
            key: Vec::new(),
        }
    }
}

/// The range of all keys that begin with `prefix`.
#[must_use]
pub fn prefix_range(prefix: &[u8]) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let mut end = prefix.to_vec();
    // The last byte that can grow does; those after it are 0xff and go.
    while end.pop_if(|byte| *byte == u8::MAX).is_some() {}
    let end = match end.last_mut() {
        Some(byte) => {
            *byte += 1;
            Bound::Excluded(end)
        }
        None => Bound::Unbounded,
    };
    (Bound::Included(prefix.to_vec()), end)
}

impl Keys<'_> {
    /// The next key.
    #[allow(
        clippy::should_implement_trait,
        reason = "the key is borrowed from the iterator"
    )]
    pub fn next(&mut self) -> Option<&[u8]> {
        let mut key = std::mem::take(&mut self.key);
        let is_one = self.next_into(&mut key);
        self.key = key;
        is_one.then_some(self.key.as_slice())
    }

    /// Replaces `key` by the next key; false, and `key` is as it was, if there is none.
    pub fn next_into(&mut self, key: &mut Vec<u8>) -> bool {
        let Some(path) = self.path.as_mut() else {
            return false;
        };
        let (leaf, entry) = path.at(path.leaf());
        let view = self.tree.pool.get(leaf);
        view.key_into(entry, &self.tree.long_keys, key);
        self.left -= 1;
        if self.left == 0 {
            self.path = None;
        } else {
            step(self.tree, path, self.backwards);
        }
        true
    }

    /// The number of keys that are still to come.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.left
    }
}

/// Goes to the next key, which is there.
fn step(tree: &KeyTree, path: &mut Path, backwards: bool) {
    // Up to the first node with a further entry.
    let (mut page, mut entry) = loop {
        let (page, entry) = path.pop().expect("the counts say that there is a next key");
        let next = match backwards {
            true => entry.checked_sub(1),
            false => Some(entry + 1).filter(|next| *next < tree.pool.get(page).count()),
        };
        if let Some(next) = next {
            break (page, next);
        }
    };
    path.push(page, entry);
    // And down to the leaf, along its edge.
    let mut view = tree.pool.get(page);
    while view.level() > 0 {
        page = view.link(entry).child;
        view = tree.pool.get(page);
        entry = if backwards { view.count() - 1 } else { 0 };
        path.push(page, entry);
    }
}

impl std::fmt::Debug for Keys<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys")
            .field("left", &self.left)
            .field("backwards", &self.backwards)
            .finish_non_exhaustive()
    }
}
