//! The index: 64-byte buckets of 16-bit tags and item locations, grown one bucket at a time.
//!
//! Linear hashing: with `2^level + split` buckets, the buckets below `split` use one more hash
//! bit than the others. A split moves one bucket's entries, so growth never stops the store.
//! Buckets lie in segments of one huge page that never move.

mod bucket;
mod chain;
mod grow;

pub(crate) use bucket::{Bucket, SLOTS};

use crate::arena::Location;
use crate::hash::KeyHash;
use crate::memory::{HUGE_PAGE_BYTES, Region};

/// Buckets in a segment.
const SEGMENT_BUCKETS: u32 = (HUGE_PAGE_BYTES / size_of::<Bucket>()) as u32;

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
    main: Vec<Region<Bucket>>,
    spare: Vec<Region<Bucket>>,
    /// Spare buckets that were ever handed out.
    spare_used: u32,
    /// Head of the list of returned spare buckets, as number + 1; 0 if there is none.
    spare_free: u32,
    level: u32,
    split: u32,
    entries: u64,
    /// Reused by splits, so that they do not allocate.
    moving: Vec<(KeyHash, Location)>,
}

impl Table {
    pub(crate) fn new() -> Self {
        Self {
            main: vec![Region::zeroed(SEGMENT_BUCKETS as usize)],
            spare: Vec::new(),
            spare_used: 0,
            spare_free: 0,
            level: LEVEL_FIRST,
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
        (self.main.len() + self.spare.len()) as u64 * HUGE_PAGE_BYTES as u64
    }

    /// How many main buckets there are.
    pub(crate) fn buckets(&self) -> u32 {
        (1 << self.level) + self.split
    }

    /// The main bucket that the hash belongs to.
    #[inline]
    pub(crate) fn home(&self, hash: KeyHash) -> BucketId {
        let coarse = hash.0 as u32 & ((1 << self.level) - 1);
        let fine = hash.0 as u32 & ((2 << self.level) - 1);
        BucketId::main(if coarse < self.split { fine } else { coarse })
    }

    /// How many hash bits the bucket of this hash stands for.
    pub(crate) fn home_bits(&self, hash: KeyHash) -> u32 {
        let coarse = hash.0 as u32 & ((1 << self.level) - 1);
        if coarse < self.split {
            self.level + 1
        } else {
            self.level
        }
    }

    #[inline]
    pub(crate) fn bucket(&self, id: BucketId) -> &Bucket {
        let number = id.0 & !BucketId::SPARE;
        let segments = if id.0 & BucketId::SPARE == 0 {
            &self.main
        } else {
            &self.spare
        };
        &segments[(number / SEGMENT_BUCKETS) as usize][(number % SEGMENT_BUCKETS) as usize]
    }

    #[inline]
    fn bucket_mut(&mut self, id: BucketId) -> &mut Bucket {
        let number = id.0 & !BucketId::SPARE;
        let segments = if id.0 & BucketId::SPARE == 0 {
            &mut self.main
        } else {
            &mut self.spare
        };
        &mut segments[(number / SEGMENT_BUCKETS) as usize][(number % SEGMENT_BUCKETS) as usize]
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
        let tag = hash.tag();
        let mut id = self.home(hash);
        loop {
            let bucket = self.bucket(id);
            let mut matching = bucket.matching(tag);
            while matching != 0 {
                let slot = matching.trailing_zeros();
                let location = bucket.location(slot);
                if is_it(location) {
                    return Some((Slot { bucket: id, slot }, location));
                }
                matching &= matching - 1;
            }
            id = bucket.next()?;
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
