//! Gives a node another prefix, or a heap without gaps.

use std::ops::Range;

use super::KeyTree;
use super::long_keys::LongKeys;
use super::page::{self, ChildLink, NodeBytes, StoredKey, View};
use crate::config::{INLINE_BYTES_MAX, PREFIX_BYTES_MAX};

/// The number of bytes that both begin with, as far as a node may keep them.
pub(super) fn common(a: &[u8], b: &[u8]) -> usize {
    let pairs = a.iter().zip(b).take(PREFIX_BYTES_MAX);
    pairs.take_while(|(a, b)| a == b).count()
}

/// The best prefix for a node with the keys of some entries of another. A node with one key has none: the next key
/// would not share it.
pub(super) fn best_prefix(view: View<'_>, entries: Range<usize>, long_keys: &LongKeys) -> Vec<u8> {
    let entries = entries.start.max(view.first_key())..entries.end;
    if entries.len() < 2 {
        return Vec::new();
    }
    let mut first = view.key(entries.start, long_keys);
    let last = view.key(entries.end - 1, long_keys);
    first.truncate(common(&first, &last));
    first
}

/// Adds entries of a node to the end of another, whose prefix their keys have. The first entry of an inner node loses
/// its key.
pub(super) fn transfer(
    from: View<'_>,
    entries: Range<usize>,
    to: &mut NodeBytes,
    long_keys: &mut LongKeys,
) {
    let mut key = Vec::new();
    for index in entries {
        let link = if from.level() > 0 {
            from.link(index)
        } else {
            ChildLink::default()
        };
        let (count, prefix) = (View(to).count(), View(to).prefix().len());
        let kept = from.kept(index);
        if count < View(to).first_key() {
            if let StoredKey::Long(id) = kept {
                long_keys.remove(id);
            }
            page::place(to, count, &[], None, link);
            continue;
        }
        from.key_into(index, long_keys, &mut key);
        let suffix = &key[prefix..];
        let long = match kept {
            StoredKey::Long(id) => Some(id),
            StoredKey::Inline { .. } if suffix.len() > INLINE_BYTES_MAX => {
                Some(long_keys.add(&key))
            }
            StoredKey::Inline { .. } => None,
        };
        page::place(to, count, suffix, long, link);
    }
}

impl KeyTree {
    /// Gives a node this prefix, and its heap no gaps.
    pub(super) fn rebuild(&mut self, id: u32, prefix: &[u8]) {
        let old = *self.pool.get(id).0;
        let view = View(&old);
        let mut new = page::empty(view.level(), prefix);
        transfer(view, 0..view.count(), &mut new, &mut self.long_keys);
        *self.pool.get_mut(id) = new;
    }
}
