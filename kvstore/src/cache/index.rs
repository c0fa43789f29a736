//! The lossy index: a key has one bucket of seven slots, and no other slots.

use super::log::LogPosition;
use crate::arena::Location;
use crate::hash::KeyHash;
use crate::memory::{HUGE_PAGE_BYTES, Region};
use crate::table::{Bucket, SLOTS};

/// Slots of a bucket.
pub(super) const WAYS: u32 = SLOTS;

/// Where an entry is.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(super) struct Slot {
    pub(super) bucket: usize,
    pub(super) slot: u32,
}

/// A power of two of buckets.
#[derive(Debug)]
pub(super) struct Index {
    buckets: Region<Bucket>,
    mask: usize,
}

impl Index {
    pub(super) fn new(bytes: usize) -> Self {
        let count = bytes.max(HUGE_PAGE_BYTES).next_power_of_two() / size_of::<Bucket>();
        let mut buckets = Region::empty();
        buckets.grow_to(count);
        Self {
            buckets,
            mask: count - 1,
        }
    }

    #[inline(always)]
    pub(super) fn bucket_of(&self, hash: KeyHash) -> usize {
        hash.0 as usize & self.mask
    }

    #[inline(always)]
    pub(super) fn bucket(&self, bucket: usize) -> &Bucket {
        &self.buckets[bucket]
    }

    pub(super) fn is_empty(&self, slot: Slot) -> bool {
        self.buckets[slot.bucket].tag(slot.slot) == 0
    }

    pub(super) fn set(&mut self, slot: Slot, tag: u16, position: LogPosition) {
        self.buckets[slot.bucket].set(slot.slot, tag, Location::from_u48(position.as_u48()));
    }

    pub(super) fn clear(&mut self, slot: Slot) {
        self.buckets[slot.bucket].clear(slot.slot);
    }
}
