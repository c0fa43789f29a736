//! Limits of the trees.

/// Bytes of a node of the key tree. Measured with 16-byte keys: 512 bytes cost more memory, 2 KiB more time an insert.
pub(crate) const PAGE_BYTES: usize = 1024;
/// Nodes of a region: the pool grows by 1 MiB.
pub(crate) const REGION_PAGES: usize = 1024;
/// The longest prefix that a node keeps once for all of its keys.
pub(crate) const PREFIX_BYTES_MAX: usize = 128;
/// The longest key that lies in its node, without the node's prefix. Longer ones lie on the heap.
pub(crate) const INLINE_BYTES_MAX: usize = 128;
/// A node with less is merged with a neighbour, if both fit into `MERGED_BYTES_MAX`.
pub(crate) const UNDERFULL_BYTES: usize = PAGE_BYTES / 3;
/// The most bytes of a node after a merge. The rest is room for the next keys, so that they do not split it again.
pub(crate) const MERGED_BYTES_MAX: usize = PAGE_BYTES / 4 * 3;
/// Levels of a tree at most. A node is split when it is full, and a full node has at least six entries. So each level
/// takes more than twice the insertions of the one below it.
pub(crate) const LEVELS_MAX: usize = 40;
