//! How far a snapshot is, and what it still needs.

use super::format::{ChunkKind, SnapshotSummary};
use crate::config::SNAPSHOT_KEPT_BYTES_MIN;
use crate::hash::KeyHash;
use crate::position::Position;
use std::collections::VecDeque;

/// The purpose of the walk.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
enum WalkPurpose {
    /// Writing items and clearing the shadows that were written.
    Writing,
    /// The snapshot was given up; only clearing.
    Clearing,
}

/// The state of the one snapshot that a store may be writing.
#[derive(Debug)]
pub(crate) struct SnapshotProgress {
    purpose: WalkPurpose,
    /// Every item before this place is written. The key decides among equal hashes.
    cursor_order: u64,
    cursor_key: Vec<u8>,
    /// Whether the walk went past the last place.
    at_end: bool,
    /// Bytes of the blocks of shadows.
    kept_bytes: u64,
    /// Whether shadows took more than they may.
    over_limit: bool,
    pub(super) summary: SnapshotSummary,
    pub(super) sequence: u32,
    pub(super) items_written: u64,
    /// The chunks of users and pins that are still to be written: the tables as they were when the snapshot began.
    pub(super) tables: VecDeque<(ChunkKind, Vec<u8>, u32)>,
    /// The items of the chunk that is being filled.
    pub(super) open_body: Vec<u8>,
    pub(super) open_items: u32,
}

impl SnapshotProgress {
    pub(super) fn new(
        summary: SnapshotSummary,
        tables: VecDeque<(ChunkKind, Vec<u8>, u32)>,
    ) -> Self {
        Self {
            purpose: WalkPurpose::Writing,
            cursor_order: 0,
            cursor_key: Vec::new(),
            at_end: false,
            kept_bytes: 0,
            over_limit: false,
            summary,
            sequence: 0,
            items_written: 0,
            tables,
            open_body: Vec::new(),
            open_items: 0,
        }
    }

    pub(crate) fn is_clearing(&self) -> bool {
        self.purpose == WalkPurpose::Clearing
    }

    pub(super) fn at_end(&self) -> bool {
        self.at_end
    }

    pub(super) fn cursor_order(&self) -> u64 {
        self.cursor_order
    }

    /// Whether this place is still to be written.
    pub(super) fn is_ahead(&self, order: u64, key: &[u8]) -> bool {
        !self.at_end && (order, key) >= (self.cursor_order, &self.cursor_key)
    }

    /// The position whose state is written.
    pub(crate) fn position(&self) -> Position {
        self.summary.position
    }

    /// Whether the snapshot still has to write this item.
    pub(crate) fn needs(&self, hash: KeyHash, key: &[u8], version: Position) -> bool {
        self.purpose == WalkPurpose::Writing
            && version <= self.summary.position
            && self.is_ahead(hash.order(), key)
    }

    /// Counts a shadow; beyond the limit the snapshot is given up.
    pub(crate) fn keep(&mut self, bytes: u64, live_bytes: u64) {
        self.kept_bytes += bytes;
        if self.kept_bytes > SNAPSHOT_KEPT_BYTES_MIN.max(live_bytes / 2) {
            self.over_limit = true;
            self.purpose = WalkPurpose::Clearing;
        }
    }

    /// A shadow lies in another block now, which may be a granule larger: it is counted out with that block's bytes.
    pub(crate) fn moved(&mut self, from_bytes: u64, to_bytes: u64) {
        self.kept_bytes = self.kept_bytes - from_bytes + to_bytes;
    }

    /// Counts a shadow out.
    pub(crate) fn forget(&mut self, bytes: u64) {
        self.kept_bytes -= bytes;
    }

    /// Whether no shadow is left.
    pub(super) fn is_clear(&self) -> bool {
        self.kept_bytes == 0
    }

    pub(super) fn kept_bytes(&self) -> u64 {
        self.kept_bytes
    }

    pub(super) fn give_up(&mut self) {
        self.purpose = WalkPurpose::Clearing;
    }

    /// Every item was flushed, the shadows too: nothing is left to be written or cleared away.
    pub(crate) fn of_flushed(mut self) -> Self {
        self.purpose = WalkPurpose::Clearing;
        self.kept_bytes = 0;
        self.open_body = Vec::new();
        self
    }

    /// The walk continues with this item.
    pub(super) fn stop_before(&mut self, order: u64, key: &[u8]) {
        self.cursor_order = order;
        self.cursor_key.clear();
        self.cursor_key.extend_from_slice(key);
    }

    /// The walk continues with the first item of the range behind the one of `bits` hash bits that the cursor is in.
    pub(super) fn pass_range(&mut self, bits: u32) {
        self.cursor_key.clear();
        match KeyHash::behind_range(self.cursor_order, bits) {
            Some(next) => self.cursor_order = next,
            None => self.at_end = true,
        }
    }
}
