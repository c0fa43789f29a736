//! Writing a snapshot chunk by chunk, between commands.

use super::format::{ChunkHeader, ChunkKind, HEADER_BYTES, ITEM_HEADER_BYTES};
use super::progress::SnapshotProgress;
use crate::arena::Location;
use crate::codec::{Sink, length_u32};
use crate::config::CHUNK_BODY_BYTES;
use crate::hash::KeyHash;
use crate::interleave::{LANES, batch, fetch};
use crate::items::Items;
use crate::store::Store;
use std::collections::VecDeque;
use std::fmt;

/// Buckets that one call of [`Store::snapshot_chunk`] scans.
const WALK_BUCKETS_MAX: u32 = 2048;

/// Buckets whose shadows one command clears away.
const CLEAR_BUCKETS_MAX: u32 = 8;

/// The result of [`Store::snapshot_chunk`].
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum SnapshotStep {
    /// No chunk yet: the walk came through too many empty buckets. Call again.
    Pending,
    /// A chunk was written and more follow.
    Chunk,
    /// The last chunk was written.
    Last,
}

/// Why there is no chunk.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum SnapshotError {
    /// Another snapshot is being written, or what an earlier one kept is not cleared away yet.
    Busy,
    /// No snapshot is being written.
    NotRunning,
    /// Overwritten items took more memory than they may; begin again.
    GivenUp,
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => write!(formatter, "an earlier snapshot is not finished"),
            Self::NotRunning => write!(formatter, "no snapshot was begun"),
            Self::GivenUp => write!(
                formatter,
                "too much was overwritten while the snapshot was written"
            ),
        }
    }
}

impl std::error::Error for SnapshotError {}

impl Store {
    /// Begins a snapshot of the present state. Commands may continue while its chunks are written; they will not be in
    /// it.
    ///
    /// # Errors
    /// [`SnapshotError::Busy`] while another one is written or cleared away;
    /// [`Store::clear_snapshot`] ends that.
    pub fn begin_snapshot(&mut self) -> Result<super::SnapshotSummary, SnapshotError> {
        if self.items.snapshot.is_some() {
            return Err(SnapshotError::Busy);
        }
        let summary = self.summary();
        self.items.snapshot = Some(SnapshotProgress::new(summary, self.tables()));
        self.items.set_keep_through();
        Ok(summary)
    }

    /// Replaces `chunk` by the next chunk: at most [`crate::config::CHUNK_BYTES_MAX`] bytes.
    ///
    /// # Errors
    /// When there is no snapshot, or it had to be given up.
    pub fn snapshot_chunk(&mut self, chunk: &mut Vec<u8>) -> Result<SnapshotStep, SnapshotError> {
        let progress = self
            .items
            .snapshot
            .as_mut()
            .ok_or(SnapshotError::NotRunning)?;
        if progress.is_clearing() {
            return Err(SnapshotError::GivenUp);
        }
        chunk.clear();
        chunk.resize(HEADER_BYTES, 0);
        let kind = if progress.sequence == 0 {
            progress.summary.write(chunk);
            ChunkKind::Head
        } else if let Some((kind, body, count)) = progress.tables.pop_front() {
            (progress.open_body, progress.open_items) = (body, count);
            kind
        } else if progress.at_end() {
            chunk.put_u64(progress.items_written);
            ChunkKind::End
        } else if self.items.fill_chunk() {
            ChunkKind::Items
        } else {
            chunk.clear();
            return Ok(SnapshotStep::Pending);
        };
        let progress = self.items.snapshot.as_mut().expect("it was there above");
        chunk.append(&mut progress.open_body);
        let items = std::mem::take(&mut progress.open_items);
        let header = ChunkHeader {
            kind,
            position: progress.summary.position,
            sequence: progress.sequence,
            items,
        };
        header.seal(chunk);
        progress.sequence += 1;
        if kind == ChunkKind::Items {
            progress.items_written += u64::from(items);
        }
        if kind != ChunkKind::End {
            return Ok(SnapshotStep::Chunk);
        }
        assert!(progress.is_clear(), "the walk has passed every shadow");
        assert_eq!(
            progress.items_written, progress.summary.items,
            "a snapshot has all items and no other"
        );
        self.items.snapshot = None;
        self.items.set_keep_through();
        Ok(SnapshotStep::Last)
    }

    /// The chunks of what the state has beside items: users, then pins.
    fn tables(&self) -> VecDeque<(ChunkKind, Vec<u8>, u32)> {
        let users = self.users.to_bodies().into_iter();
        let mut tables: VecDeque<_> = users
            .map(|(body, count)| (ChunkKind::Users, body, count))
            .collect();
        if !self.pins.is_empty() {
            let mut body = Vec::new();
            self.pins.write(&mut body);
            tables.push_back((ChunkKind::Pins, body, length_u32(self.pins.len())));
        }
        tables
    }

    /// Whether a snapshot is being written that was not given up.
    #[must_use]
    pub fn writes_snapshot(&self) -> bool {
        let progress = self.items.snapshot.as_ref();
        progress.is_some_and(|progress| !progress.is_clearing())
    }

    /// Gives the running snapshot up. The following commands clear its shadows away.
    pub fn abandon_snapshot(&mut self) {
        if let Some(progress) = &mut self.items.snapshot {
            progress.give_up();
            self.items.clear_shadows(CLEAR_BUCKETS_MAX);
        }
    }

    /// Clears away a part of what an abandoned snapshot kept, as much as a chunk would pass; true once nothing is left.
    /// Commands clear as well, but not every store is written to all the time.
    pub fn clear_snapshot(&mut self) -> bool {
        if self
            .items
            .snapshot
            .as_ref()
            .is_some_and(SnapshotProgress::is_clearing)
        {
            self.items.clear_shadows(WALK_BUCKETS_MAX);
        }
        self.items.snapshot.is_none()
    }
}

impl Items {
    /// How much of an abandoned snapshot one command clears away.
    pub(crate) fn clear_a_little(&mut self) {
        self.clear_shadows(CLEAR_BUCKETS_MAX);
    }

    /// Fills the open chunk from the cursor on; true once it is full or the walk is at its end.
    fn fill_chunk(&mut self) -> bool {
        let mut progress = self
            .snapshot
            .take()
            .expect("called while a snapshot is written");
        let mut range = Vec::new();
        let mut full = false;
        for step in 0..WALK_BUCKETS_MAX {
            if step.is_multiple_of(LANES as u32) {
                self.warm_ranges(progress.cursor_order());
            }
            let bits = self.collect_range(&progress, &mut range);
            full = !self.write_range(&mut progress, &range);
            if full {
                break;
            }
            progress.pass_range(bits);
            if progress.at_end() {
                full = true;
                break;
            }
        }
        self.snapshot = Some(progress);
        full
    }

    /// Brings the buckets and items of the ranges from this place on into the cache, all of them together.
    pub(crate) fn warm_ranges(&self, mut order: u64) {
        let start = |_| {
            let hash = KeyHash::from_order(order);
            order = order.saturating_add(1 << (64 - self.table.home_bits(hash)));
            let bucket = self.table.home_bucket(hash);
            async move {
                fetch(bucket).await;
                for slot in 0..bucket.len() {
                    self.arena.prefetch_block(bucket.location(slot));
                }
            }
        };
        batch::<LANES, _>(LANES, start, |_, ()| {});
    }

    /// The items that the snapshot needs of the cursor's bucket, in order, and how many hash bits that bucket covers.
    fn collect_range(&self, progress: &SnapshotProgress, range: &mut Vec<(u64, Location)>) -> u32 {
        range.clear();
        let hash = KeyHash::from_order(progress.cursor_order());
        self.table
            .for_each_in_chain(self.table.home(hash), |location| {
                let version = self.version_for_snapshot(location);
                if version.is_some_and(|version| version <= progress.summary.position) {
                    let item = self.arena.item(location);
                    let order = self.hasher.key(item.key).order();
                    if progress.is_ahead(order, item.key) {
                        range.push((order, location));
                    }
                }
            });
        let key = |location: Location| self.arena.item(location).key;
        range.sort_unstable_by(|left, right| {
            left.0
                .cmp(&right.0)
                .then_with(|| key(left.1).cmp(key(right.1)))
        });
        self.table.home_bits(hash)
    }

    /// Moves a range into the open chunk and clears its shadows away; false if not all of it fits.
    fn write_range(&mut self, progress: &mut SnapshotProgress, range: &[(u64, Location)]) -> bool {
        for &(order, location) in range {
            let item = self.arena.item(location);
            let bytes = ITEM_HEADER_BYTES + item.key.len() + item.value.len();
            if progress.open_items > 0 && progress.open_body.len() + bytes > CHUNK_BODY_BYTES {
                progress.stop_before(order, item.key);
                return false;
            }
            let body = &mut progress.open_body;
            body.put_u32(length_u32(item.key.len()));
            body.put_u32(length_u32(item.value.len()));
            let version = self.version_for_snapshot(location);
            let version = version.expect("it was collected");
            body.put_u64(version.as_u64());
            body.put_u64(item.stamp.expiry_ns);
            body.put(item.key);
            body.put(item.value);
            progress.open_items += 1;
            self.drop_for_snapshot(progress, location);
        }
        true
    }

    /// Clears away what an abandoned snapshot kept in the next few buckets.
    fn clear_shadows(&mut self, buckets_max: u32) {
        let Some(mut progress) = self.snapshot.take() else {
            return;
        };
        let mut range = Vec::new();
        for _ in 0..buckets_max {
            if progress.at_end() || progress.is_clear() {
                assert!(
                    progress.is_clear(),
                    "{} bytes of shadows were passed",
                    progress.kept_bytes()
                );
                self.set_keep_through();
                return;
            }
            let bits = self.collect_range(&progress, &mut range);
            for &(_, location) in &range {
                self.drop_for_snapshot(&mut progress, location);
            }
            progress.pass_range(bits);
        }
        self.snapshot = Some(progress);
    }
}
