//! Ordered trees of trine.
//!
//! [`KeyTree`] is the store's: keys alone, one thread, no unsafe code. [`ConcurrentMap`] is that of `trine index`: keys
//! and values of 8 bytes, readers without locks. `DESIGN.md` says why there are two.

mod concurrent_map;
mod config;
mod key_tree;

pub use concurrent_map::{ConcurrentMap, MapFull, ScanResult};
pub use key_tree::{KeyTree, Keys, MemoryUse, prefix_range};
