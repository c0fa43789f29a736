//! Checks the invariants of a tree.

use super::KeyTree;
use super::page::{self, StoredKey, View};
use crate::config::{INLINE_BYTES_MAX, PREFIX_BYTES_MAX};

/// What a walk over the tree has met.
#[derive(Default)]
struct TreeCensus {
    nodes: usize,
    long_keys: usize,
    keys: u64,
    last: Option<Vec<u8>>,
}

impl KeyTree {
    /// Walks over the whole tree. For tests and fuzzers.
    ///
    /// # Panics
    ///
    /// If an invariant does not hold (`DESIGN.md` lists them).
    #[doc(hidden)]
    pub fn check(&self) {
        let mut seen = TreeCensus::default();
        let root = self.pool.get(self.root);
        assert!(
            root.level() == 0 || root.count() > 1,
            "a root has two children"
        );
        self.check_node(root, None, None, &mut seen);
        assert_eq!(seen.keys, self.count, "the number of keys");
        assert_eq!(
            seen.nodes,
            self.pool.count(),
            "nodes are in the tree or free"
        );
        assert_eq!(
            seen.long_keys,
            self.long_keys.count(),
            "long keys have one owner"
        );
    }

    /// `low` and `high` are the keys that bound what is below this node.
    fn check_node(
        &self,
        view: View<'_>,
        low: Option<&[u8]>,
        high: Option<&[u8]>,
        seen: &mut TreeCensus,
    ) {
        page::check(view);
        seen.nodes += 1;
        assert!(view.prefix().len() <= PREFIX_BYTES_MAX);
        assert!(view.count() > 0 || self.count == 0, "no node is empty");
        let keys = self.check_keys(view, low, high, seen);
        if view.level() == 0 {
            for key in keys {
                assert!(
                    seen.last.as_ref().is_none_or(|last| *last < key),
                    "keys ascend"
                );
                seen.last = Some(key);
                seen.keys += 1;
            }
            return;
        }
        for index in 0..view.count() {
            let link = view.link(index);
            let child = self.pool.get(link.child);
            assert_eq!(
                child.level() + 1,
                view.level(),
                "leaves have the same depth"
            );
            assert_eq!(child.keys(), link.keys, "keys below a child");
            let low = index.checked_sub(1).map(|before| &keys[before][..]).or(low);
            let high = keys.get(index).map(|key| &key[..]).or(high);
            self.check_node(child, low, high, seen);
        }
    }

    /// The keys of a node, which has to have each in its place.
    fn check_keys(
        &self,
        view: View<'_>,
        low: Option<&[u8]>,
        high: Option<&[u8]>,
        seen: &mut TreeCensus,
    ) -> Vec<Vec<u8>> {
        let entries = view.first_key()..view.count();
        let keys: Vec<_> = entries
            .clone()
            .map(|index| view.key(index, &self.long_keys))
            .collect();
        for (index, key) in entries.zip(&keys) {
            assert!(key.starts_with(view.prefix()), "keys share the prefix");
            assert!(
                low.is_none_or(|low| low <= &key[..]),
                "not before what is above"
            );
            assert!(
                high.is_none_or(|high| &key[..] < high),
                "not after what is above"
            );
            assert_eq!(view.find(key, &self.long_keys), Ok(index), "a key is found");
            match view.kept(index) {
                StoredKey::Long(_) => seen.long_keys += 1,
                StoredKey::Inline { length, .. } => assert!(length <= INLINE_BYTES_MAX),
            }
        }
        keys
    }
}
