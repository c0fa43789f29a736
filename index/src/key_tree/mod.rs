//! The keys in their order.
//!
//! A B+ tree of keys alone, for one thread. Its nodes are pages of fixed size from a pool (`pool.rs`, `page.rs`). Keys
//! of a node share a prefix, which it has once. Every inner node counts the keys below each child. So the number of keys
//! in a range, and the key at a place, cost one descent each. `DESIGN.md` has the invariants; `check.rs` tests them.

mod check;
mod insert;
mod keys;
mod long_keys;
mod page;
mod path;
mod pool;
mod rank;
mod rebuild;
mod remove;
#[cfg(test)]
mod tests;

use self::long_keys::LongKeys;
use self::pool::Pool;
pub use keys::{Keys, prefix_range};

/// An ordered set of keys.
///
/// ```
/// use std::ops::Bound::{Excluded, Unbounded};
/// use trine_index::KeyTree;
///
/// let mut tree = KeyTree::new();
/// for key in ["pear", "apple", "plum"] {
///     assert!(tree.insert(key.as_bytes()));
/// }
/// let mut keys = tree.range((Excluded(&b"apple"[..]), Unbounded));
/// assert_eq!(keys.next(), Some(&b"pear"[..]));
/// assert_eq!(keys.next(), Some(&b"plum"[..]));
/// assert_eq!(keys.next(), None);
/// ```
pub struct KeyTree {
    pool: Pool,
    long_keys: LongKeys,
    root: u32,
    count: u64,
}

/// What a tree takes of the memory.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    /// All of it, in bytes.
    pub bytes: usize,
    /// Those of them that keys outside of nodes take.
    pub long_key_bytes: usize,
    /// Nodes in use.
    pub nodes: usize,
    /// Nodes that are free for new keys.
    pub nodes_free: usize,
}

impl Default for KeyTree {
    fn default() -> Self {
        Self::new()
    }
}

impl KeyTree {
    /// A tree without keys.
    #[must_use]
    pub fn new() -> Self {
        let mut pool = Pool::default();
        let root = pool.add(&page::empty(0, &[]));
        Self {
            pool,
            long_keys: LongKeys::default(),
            root,
            count: 0,
        }
    }

    /// The number of keys.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether `key` is there.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        let mut view = self.pool.get(self.root);
        while view.level() > 0 {
            let index = view.child_for(key, &self.long_keys);
            view = self.pool.get(view.link(index).child);
        }
        view.find(key, &self.long_keys).is_ok()
    }

    /// Frees a part of a tree that is not used any more, before it is dropped: a region of nodes, or so many long keys.
    /// True once nothing is left. Nothing else may be done with the tree from then on.
    pub fn free_some(&mut self, long_keys: usize) -> bool {
        self.pool.drop_region() && self.long_keys.drop_some(long_keys)
    }

    /// What the tree takes of the memory.
    #[must_use]
    pub fn memory(&self) -> MemoryUse {
        let long_key_bytes = self.long_keys.memory();
        MemoryUse {
            bytes: self.pool.memory() + long_key_bytes,
            long_key_bytes,
            nodes: self.pool.count(),
            nodes_free: self.pool.count_free(),
        }
    }
}

impl std::fmt::Debug for KeyTree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyTree")
            .field("count", &self.count)
            .field("memory", &self.memory())
            .finish_non_exhaustive()
    }
}
