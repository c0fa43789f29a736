//! Entries in and out of a chain, which stays packed: every bucket but the last is full.

use super::{Bucket, BucketId, PAGE_BUCKETS, SLOTS, Slot, Table};
use crate::arena::Location;
use crate::hash::KeyHash;

impl Table {
    /// Adds an entry; the caller knows that it is not there.
    pub(crate) fn insert(&mut self, hash: KeyHash, location: Location) -> Slot {
        self.entries += 1;
        self.append(self.home(hash), hash, location)
    }

    /// Removes an entry. The chain's last entry takes its place, so only that one slot changes.
    pub(crate) fn remove(&mut self, hash: KeyHash, slot: Slot) {
        self.entries -= 1;
        let (before_last, last) = self.last_of_chain(self.home(hash));
        let last_slot = self.bucket(last).len() - 1;
        let (tag, location) = (
            self.bucket(last).tag(last_slot),
            self.bucket(last).location(last_slot),
        );
        self.bucket_mut(slot.bucket).set(slot.slot, tag, location);
        self.bucket_mut(last).clear(last_slot);
        if let (0, Some(before)) = (last_slot, before_last) {
            self.bucket_mut(before).set_next(None);
            self.release_spare(last);
        }
    }

    pub(super) fn append(&mut self, home: BucketId, hash: KeyHash, location: Location) -> Slot {
        let (_, mut last) = self.last_of_chain(home);
        let mut slot = self.bucket(last).len();
        if slot == SLOTS {
            let spare = self.take_spare();
            self.bucket_mut(last).set_next(Some(spare));
            (last, slot) = (spare, 0);
        }
        self.bucket_mut(last).set(slot, hash.tag(), location);
        Slot { bucket: last, slot }
    }

    /// The last bucket of a chain and the one before it.
    fn last_of_chain(&self, home: BucketId) -> (Option<BucketId>, BucketId) {
        let (mut before, mut last) = (None, home);
        while let Some(next) = self.bucket(last).next() {
            (before, last) = (Some(last), next);
        }
        (before, last)
    }

    /// Empties a chain, giving its spare buckets back.
    pub(super) fn clear_chain(&mut self, home: BucketId) {
        let mut next = self.bucket(home).next();
        *self.bucket_mut(home) = Bucket::EMPTY;
        while let Some(spare) = next {
            next = self.bucket(spare).next();
            self.release_spare(spare);
        }
    }

    fn take_spare(&mut self) -> BucketId {
        if let Some(number) = self.spare_free.checked_sub(1) {
            let spare = BucketId::spare(number);
            self.spare_free = self
                .bucket(spare)
                .next()
                .map_or(0, |next| (next.0 & !BucketId::SPARE) + 1);
            self.bucket_mut(spare).set_next(None);
            return spare;
        }
        if self.spare_used as usize == self.spare.len() {
            self.spare.grow_to(self.spare.len() + PAGE_BUCKETS);
        }
        self.spare_used += 1;
        BucketId::spare(self.spare_used - 1)
    }

    fn release_spare(&mut self, spare: BucketId) {
        let free = self.spare_free.checked_sub(1).map(BucketId::spare);
        let bucket = self.bucket_mut(spare);
        *bucket = Bucket::EMPTY;
        bucket.set_next(free);
        self.spare_free = (spare.0 & !BucketId::SPARE) + 1;
    }
}
