//! The state as checksummed chunks, written while commands continue, and restored from them.
//!
//! A snapshot is the state between two commands. Its items are in the order of (reversed key hash,
//! key), so that every replica writes the same bytes at one position. While it is written, an item
//! that it has not passed yet is not overwritten or removed. It becomes a shadow: it stays in index
//! and arena, invisible to commands, until the snapshot passes it. `DESIGN.md` describes the
//! format.

pub(crate) mod format;
pub(crate) mod progress;
mod reader;
mod writer;

pub use format::{RestoreError, SnapshotSummary};
pub use reader::SnapshotReader;
pub use writer::{SnapshotError, SnapshotStep};

pub(crate) use progress::SnapshotProgress;

#[cfg(test)]
mod tests;
