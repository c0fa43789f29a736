//! Inserts a key.
//!
//! A node without room first gets the longest prefix that its keys and the new one share. If that makes no room, it is
//! split, and the node above gets an entry for the new half.

use super::KeyTree;
use super::page::{self, ChildLink, View};
use super::path::Path;
use super::rebuild::{best_prefix, common, transfer};
use crate::config::{INLINE_BYTES_MAX, PAGE_BYTES};

/// A node was split: from this key on, everything is in `right`.
struct Split {
    separator: Vec<u8>,
    right: u32,
    /// Entries that stayed.
    stayed: usize,
}

/// The shortest key above `low` and not above `high`.
fn separator(low: &[u8], high: &[u8]) -> Vec<u8> {
    let equal = low.iter().zip(high).take_while(|(a, b)| a == b).count();
    high[..=equal].to_vec()
}

impl KeyTree {
    /// Adds a key; false if it was there.
    pub fn insert(&mut self, key: &[u8]) -> bool {
        let (path, found) = self.path_to(key);
        if found {
            return false;
        }
        for depth in 0..path.leaf() {
            let (id, entry) = path.at(depth);
            let keys = self.pool.get(id).link(entry).keys;
            page::set_keys(self.pool.get_mut(id), entry, keys + 1);
        }
        self.count += 1;
        let (_, place) = path.at(path.leaf());
        self.put(&path, path.leaf(), place, key, ChildLink::default());
        true
    }

    /// Adds an entry to the node at a depth of the path, which is split if it has no room.
    fn put(&mut self, path: &Path, depth: usize, place: usize, key: &[u8], link: ChildLink) {
        let (id, _) = path.at(depth);
        if self.make_room(id, key) {
            return self.place(id, place, key, link);
        }
        let split = self.split(id, place, key);
        if key < &split.separator[..] {
            let has_room = self.make_room(id, key);
            assert!(has_room, "half of a node has room for any entry");
            self.place(id, place, key, link);
        } else {
            let at = place - split.stayed;
            let has_room = self.make_room(split.right, key);
            assert!(has_room, "half of a node has room for any entry");
            self.place(split.right, at, key, link);
        }
        let (left, right) = (self.link_to(id), self.link_to(split.right));
        match depth.checked_sub(1) {
            Some(above) => {
                let (parent, entry) = path.at(above);
                page::set_keys(self.pool.get_mut(parent), entry, left.keys);
                self.put(path, above, entry + 1, &split.separator, right);
            }
            None => self.grow(left, &split.separator, right),
        }
    }

    fn link_to(&self, id: u32) -> ChildLink {
        ChildLink {
            child: id,
            keys: self.pool.get(id).keys(),
        }
    }

    /// Puts a new root above the two halves of the old one.
    fn grow(&mut self, left: ChildLink, separator: &[u8], right: ChildLink) {
        let level = self.pool.get(self.root).level() + 1;
        self.root = self.pool.add(&page::empty(level, &[]));
        self.place(self.root, 0, &[], left);
        self.place(self.root, 1, separator, right);
    }

    /// Adds an entry to a node that has room. The first entry of an inner node keeps no key.
    pub(super) fn place(&mut self, id: u32, place: usize, key: &[u8], link: ChildLink) {
        let view = self.pool.get(id);
        if place < view.first_key() {
            return page::place(self.pool.get_mut(id), place, &[], None, link);
        }
        let suffix = &key[view.prefix().len()..];
        let is_long = suffix.len() > INLINE_BYTES_MAX;
        let long = is_long.then(|| self.long_keys.add(key));
        page::place(self.pool.get_mut(id), place, suffix, long, link);
    }

    /// Makes a gap for an entry with this key, if that is possible without a split.
    fn make_room(&mut self, id: u32, key: &[u8]) -> bool {
        let view = self.pool.get(id);
        if let Some(suffix) = key.strip_prefix(view.prefix()) {
            let bytes = page::heap_bytes_of(suffix.len());
            if view.has_gap(bytes) {
                return true;
            }
            if view.has_room(bytes) {
                let prefix = view.prefix().to_vec();
                self.rebuild(id, &prefix);
                return true;
            }
        }
        let mut prefix = best_prefix(view, 0..view.count(), &self.long_keys);
        prefix.truncate(common(&prefix, key));
        let own = view.slot_bytes() + page::heap_bytes_of(key.len() - prefix.len());
        let fits = view.bytes_with(0..view.count(), prefix.len()) + own <= PAGE_BYTES;
        if fits {
            self.rebuild(id, &prefix);
        }
        fits
    }

    /// Splits a node that has no room for `key`, which belongs before the entry `place`.
    fn split(&mut self, id: u32, place: usize, key: &[u8]) -> Split {
        let old = *self.pool.get(id).0;
        let view = View(&old);
        let stayed = split_point(view, place, key);
        let separator = self.separator_at(view, stayed, key);
        let mut halves = [0..stayed, stayed..view.count()].map(|entries| {
            // The key of the right half's first entry goes up if the node is an inner one.
            let keyed = entries.start + view.first_key()..entries.end;
            let mut prefix = best_prefix(view, keyed.clone(), &self.long_keys);
            let bytes_with = |prefix| view.bytes_with(keyed.clone(), prefix);
            if bytes_with(prefix.len()) > bytes_with(view.prefix().len()) {
                // Keys that lie outside do not become shorter.
                prefix = view.prefix().to_vec();
            }
            (page::empty(view.level(), &prefix), entries)
        });
        for (half, entries) in &mut halves {
            transfer(view, entries.clone(), half, &mut self.long_keys);
        }
        let [(left, _), (right, _)] = halves;
        *self.pool.get_mut(id) = left;
        Split {
            separator,
            right: self.pool.add(&right),
            stayed,
        }
    }

    /// The least key of the right half, or a shorter one that divides as well.
    fn separator_at(&self, view: View<'_>, stayed: usize, key: &[u8]) -> Vec<u8> {
        let key_of = |index| view.key(index, &self.long_keys);
        let is_last = stayed == view.count();
        match (view.level(), stayed) {
            (0, 0) => separator(key, &key_of(0)),
            (0, _) if is_last => separator(&key_of(stayed - 1), key),
            (0, _) => separator(&key_of(stayed - 1), &key_of(stayed)),
            _ if is_last => key.to_vec(),
            _ => key_of(stayed),
        }
    }
}

/// How many entries stay. A new key at the end gets a node of its own: keys that come in their order leave full nodes
/// behind them. So does a key before all others that does not share their prefix. Otherwise each half gets as many
/// bytes.
fn split_point(view: View<'_>, place: usize, key: &[u8]) -> usize {
    let (first, count) = (view.first_key(), view.count());
    if place == count || (place == first && !key.starts_with(view.prefix())) {
        return place;
    }
    let prefix = view.prefix().len();
    let bytes_of = |index| view.slot_bytes() + view.heap_bytes_with(index, prefix);
    let half = (0..count).map(bytes_of).sum::<usize>() / 2;
    let mut sum = 0;
    let middle = (0..count).position(|index| {
        sum += bytes_of(index);
        sum >= half
    });
    let middle = middle.expect("the sum reaches its half");
    (middle + 1).clamp(1, count - 1)
}
