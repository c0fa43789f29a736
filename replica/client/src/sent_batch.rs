//! A batch that the transport owes a completion for.

use trine_transport::slab::Key;

/// Marks the tag of a batch.
pub(super) const BATCH_BIT: u64 = 1 << 62;

/// A batch under way.
#[derive(Debug)]
pub(super) struct SentBatch {
    /// Who was asked.
    pub(super) peer: usize,
    /// The operations, in the order of their requests.
    pub(super) keys: Vec<Key>,
}
