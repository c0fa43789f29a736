//! The index: 64-byte buckets of 16-bit tags and item locations, grown one bucket at a time.
//!
//! Linear hashing: with `2^level + split` buckets, the buckets below `split` use one more hash
//! bit than the others. A split moves one bucket's entries, so growth never stops the store.
//! Growth never copies the buckets that stay.

mod bucket;
mod chain;
mod grow;

pub(crate) use bucket::{Bucket, SLOTS};

use crate::arena::Location;
use crate::hash::KeyHash;
use crate::memory::{HUGE_PAGE_BYTES, Region};

/// Buckets are taken from the system in huge pages.
const PAGE_BUCKETS: usize = HUGE_PAGE_BYTES / size_of::<Bucket>();

/// The number of buckets of an empty table is 2 to this power.
const LEVEL_FIRST: u32 = 6;

/// Which bucket: a main bucket by its number, or a spare one that continues a chain.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) struct BucketId(u32);

impl BucketId {
    const SPARE: u32 = 1 << 31;

    fn main(number: u32) -> Self {
        debug_assert!(number < Self::SPARE);
        Self(number)
    }
    fn spare(number: u32) -> Self {
        debug_assert!(number < Self::SPARE);
        Self(number | Self::SPARE)
    }
}

/// Where the table holds one entry.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) struct Slot {
    pub(crate) bucket: BucketId,
    pub(crate) slot: u32,
}

/// The index of one store.
#[derive(Debug)]
pub(crate) struct Table {
    main: Region<Bucket>,
    spare: Region<Bucket>,
    /// Spare buckets that were ever handed out.
    spare_used: u32,
    /// Head of the list of returned spare buckets, as number + 1; 0 if there is none.
    spare_free: u32,
    level: u32,
    /// `2^level - 1`.
    mask: u32,
    split: u32,
    entries: u64,
    /// Reused by splits, so that they do not allocate.
    moving: Vec<(KeyHash, Location)>,
}

impl Table {
    pub(crate) fn new() -> Self {
        let mut main = Region::empty();
        main.grow_to(PAGE_BUCKETS);
        Self {
            main,
            spare: Region::empty(),
            spare_used: 0,
            spare_free: 0,
            level: LEVEL_FIRST,
            mask: (1 << LEVEL_FIRST) - 1,
            split: 0,
            entries: 0,
            moving: Vec::new(),
        }
    }

    /// A table that will not have to grow for this many entries.
    pub(crate) fn for_entries(count: u64) -> Self {
        let mut table = Self::new();
        table.presize(count);
        table
    }

    #[cfg(test)]
    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }

    /// Bytes that the index takes from the system.
    pub(crate) fn memory_bytes(&self) -> u64 {
        ((self.main.len() + self.spare.len()) * size_of::<Bucket>()) as u64
    }

    /// Gives up to `bytes` back to the system, of a table that is not used any more; true once it has none left.
    pub(crate) fn give_back(&mut self, bytes: usize) -> bool {
        let count = bytes / size_of::<Bucket>() / PAGE_BUCKETS * PAGE_BUCKETS;
        for region in [&mut self.main, &mut self.spare] {
            if !region.is_empty() {
                region.shrink_by(count.min(region.len()));
                return false;
            }
        }
        true
    }

    /// How many main buckets there are.
    pub(crate) fn buckets(&self) -> u32 {
        (1 << self.level) + self.split
    }

    /// The main bucket that the hash belongs to.
    #[inline(always)]
    pub(crate) fn home(&self, hash: KeyHash) -> BucketId {
        let coarse = hash.0 as u32 & self.mask;
        if coarse >= self.split {
            return BucketId(coarse);
        }
        BucketId(hash.0 as u32 & (2 * self.mask + 1))
    }

    /// The bucket of [`Table::home`].
    #[inline(always)]
    pub(crate) fn home_bucket(&self, hash: KeyHash) -> &Bucket {
        &self.main[self.home(hash).0 as usize]
    }

    /// How many hash bits the bucket of this hash covers.
    pub(crate) fn home_bits(&self, hash: KeyHash) -> u32 {
        if hash.0 as u32 & self.mask < self.split {
            self.level + 1
        } else {
            self.level
        }
    }

    #[inline(always)]
    pub(crate) fn bucket(&self, id: BucketId) -> &Bucket {
        let number = (id.0 & !BucketId::SPARE) as usize;
        if id.0 & BucketId::SPARE == 0 {
            &self.main[number]
        } else {
            &self.spare[number]
        }
    }

    #[inline]
    fn bucket_mut(&mut self, id: BucketId) -> &mut Bucket {
        let number = (id.0 & !BucketId::SPARE) as usize;
        if id.0 & BucketId::SPARE == 0 {
            &mut self.main[number]
        } else {
            &mut self.spare[number]
        }
    }

    pub(crate) fn set_location(&mut self, slot: Slot, location: Location) {
        self.bucket_mut(slot.bucket)
            .set_location(slot.slot, location);
    }

    /// The slot that holds this location, wherever it is in the chain of the hash.
    pub(crate) fn find_location(&self, hash: KeyHash, location: Location) -> Option<Slot> {
        self.find(hash, |candidate| candidate == location)
            .map(|(slot, _)| slot)
    }

    /// The first entry with the hash's tag that `is_it` accepts.
    #[inline]
    pub(crate) fn find(
        &self,
        hash: KeyHash,
        mut is_it: impl FnMut(Location) -> bool,
    ) -> Option<(Slot, Location)> {
        let mut id = self.home(hash);
        let mut bucket = self.home_bucket(hash);
        loop {
            let found = bucket.find(hash.tag(), |slot, location| {
                is_it(location).then_some((slot, location))
            });
            if let Some((slot, location)) = found {
                return Some((Slot { bucket: id, slot }, location));
            }
            id = bucket.next()?;
            bucket = self.bucket(id);
        }
    }

    /// The result of `check` for the first entry with the hash's tag that it accepts.
    #[inline(always)]
    pub(crate) fn lookup<T>(
        &self,
        hash: KeyHash,
        mut check: impl FnMut(Location) -> Option<T>,
    ) -> Option<T> {
        let mut bucket = self.home_bucket(hash);
        loop {
            if let Some(found) = bucket.find(hash.tag(), |_, location| check(location)) {
                return Some(found);
            }
            bucket = self.bucket(bucket.next()?);
        }
    }

    /// Every location in the chain of a main bucket.
    pub(crate) fn for_each_in_chain(&self, mut id: BucketId, mut each: impl FnMut(Location)) {
        loop {
            let bucket = self.bucket(id);
            for slot in 0..bucket.len() {
                each(bucket.location(slot));
            }
            match bucket.next() {
                Some(next) => id = next,
                None => return,
            }
        }
    }
}

#[cfg(test)]
mod tests;
