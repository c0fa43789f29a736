//! Removes a key.
//!
//! A node without entries leaves it, too. One that is underfull is merged with a neighbour below the same node, if both
//! fit into one with room to spare.

use super::KeyTree;
use super::page::{self, View};
use super::path::Path;
use super::rebuild::{common, transfer};
use crate::config::{MERGED_BYTES_MAX, UNDERFULL_BYTES};

impl KeyTree {
    /// Removes a key; false if it was not there.
    pub fn remove(&mut self, key: &[u8]) -> bool {
        let (path, found) = self.path_to(key);
        if !found {
            return false;
        }
        for depth in 0..path.leaf() {
            let (id, entry) = path.at(depth);
            let keys = self.pool.get(id).link(entry).keys;
            page::set_keys(self.pool.get_mut(id), entry, keys - 1);
        }
        self.count -= 1;
        let (leaf, place) = path.at(path.leaf());
        if let Some(id) = page::remove(self.pool.get_mut(leaf), place) {
            self.long_keys.remove(id);
        }
        self.tidy(&path);
        true
    }

    /// Removes or merges nodes from the leaf upwards.
    fn tidy(&mut self, path: &Path) {
        for depth in (1..=path.leaf()).rev() {
            let (id, _) = path.at(depth);
            let (parent, entry) = path.at(depth - 1);
            let view = self.pool.get(id);
            if view.count() == 0 {
                self.pool.remove(id);
                self.remove_child(parent, entry);
                continue;
            }
            if view.used() >= UNDERFULL_BYTES {
                return;
            }
            let has_next = entry + 1 < self.pool.get(parent).count();
            let merged = (has_next && self.merge(parent, entry))
                || (entry > 0 && self.merge(parent, entry - 1));
            if !merged {
                return;
            }
        }
        self.shrink();
    }

    /// Takes away roots with one child.
    fn shrink(&mut self) {
        loop {
            let view = self.pool.get(self.root);
            if view.level() == 0 || view.count() > 1 {
                return;
            }
            let child = view.link(0).child;
            self.pool.remove(self.root);
            self.root = child;
        }
    }

    /// Removes a child's entry. What belonged to it goes to its neighbour before it; before the first child, to the
    /// next one.
    fn remove_child(&mut self, parent: u32, entry: usize) {
        let page = self.pool.get_mut(parent);
        let mut long = page::remove(page, entry);
        if entry == 0 && View(page).count() > 0 {
            long = page::drop_key(page, 0);
        }
        if let Some(id) = long {
            self.long_keys.remove(id);
        }
    }

    /// Merges a child with its next neighbour if they fit.
    fn merge(&mut self, parent: u32, entry: usize) -> bool {
        let above = self.pool.get(parent);
        let (left_link, right_link) = (above.link(entry), above.link(entry + 1));
        let between = above.key(entry + 1, &self.long_keys);
        let left = *self.pool.get(left_link.child).0;
        let right = *self.pool.get(right_link.child).0;
        let (left, right) = (View(&left), View(&right));
        let prefix = self.merged_prefix(left, right, &between);
        if merged_bytes(left, right, prefix.len(), between.len()) > MERGED_BYTES_MAX {
            return false;
        }
        let mut page = page::empty(left.level(), &prefix);
        transfer(left, 0..left.count(), &mut page, &mut self.long_keys);
        *self.pool.get_mut(left_link.child) = page;
        let first = right.first_key();
        if first > 0 {
            // Its first child had no key, but its entry in the node above has one.
            self.place(left_link.child, left.count(), &between, right.link(0));
        }
        let mut page = *self.pool.get(left_link.child).0;
        transfer(right, first..right.count(), &mut page, &mut self.long_keys);
        *self.pool.get_mut(left_link.child) = page;
        self.pool.remove(right_link.child);
        let keys = left_link.keys + right_link.keys;
        page::set_keys(self.pool.get_mut(parent), entry, keys);
        self.remove_child(parent, entry + 1);
        true
    }

    fn merged_prefix(&self, left: View<'_>, right: View<'_>, between: &[u8]) -> Vec<u8> {
        let key_of = |view: View<'_>, index: usize| {
            let has_key = (view.first_key()..view.count()).contains(&index);
            match has_key {
                true => view.key(index, &self.long_keys),
                false => between.to_vec(),
            }
        };
        let mut first = key_of(left, left.first_key());
        let last = key_of(right, right.count() - 1);
        first.truncate(common(&first, &last));
        first
    }
}

/// The bytes of both nodes in one with a prefix of `prefix` bytes.
fn merged_bytes(left: View<'_>, right: View<'_>, prefix: usize, between: usize) -> usize {
    let own = match left.level() {
        0 => 0,
        _ => page::heap_bytes_of(between - prefix),
    };
    let right = right.bytes_with(0..right.count(), prefix) - right.bytes_with(0..0, prefix);
    left.bytes_with(0..left.count(), prefix) + right + own
}
