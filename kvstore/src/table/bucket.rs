//! One cache line of the index.

use zerocopy::FromBytes;

use super::BucketId;
use crate::arena::Location;
use crate::machine::lanes_equal;

/// Entries in a bucket.
pub(crate) const SLOTS: u32 = 7;

/// Seven entries, packed from slot 0, and the link to the next bucket of the chain.
///
/// The eighth lane of each array belongs to the bucket itself: `low[7]` is the number of the next
/// spare bucket plus one, `tags[7]` and `high[7]` are zero.
#[derive(Copy, Clone, Debug, FromBytes)]
#[repr(C, align(64))]
pub(crate) struct Bucket {
    /// 0 marks an empty slot.
    tags: [u16; 8],
    low: [u32; 8],
    high: [u16; 8],
}

const _: () = assert!(size_of::<Bucket>() == 64);
const _: () = assert!(align_of::<Bucket>() == 64);

const LINK: usize = SLOTS as usize;

impl Bucket {
    pub(crate) const EMPTY: Self = Self {
        tags: [0; 8],
        low: [0; 8],
        high: [0; 8],
    };

    /// A bit for each slot with this tag.
    #[inline(always)]
    pub(crate) fn matching(&self, tag: u16) -> u32 {
        lanes_equal(&self.tags, tag) & ((1 << SLOTS) - 1)
    }

    /// The result of `check` for the first entry with this tag that it accepts.
    #[inline(always)]
    pub(super) fn find<T>(
        &self,
        tag: u16,
        mut check: impl FnMut(u32, Location) -> Option<T>,
    ) -> Option<T> {
        let mut matching = self.matching(tag);
        while matching != 0 {
            let slot = matching.trailing_zeros();
            if let Some(found) = check(slot, self.location(slot)) {
                return Some(found);
            }
            matching &= matching - 1;
        }
        None
    }

    /// How many entries the bucket holds; they are packed from slot 0.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        SLOTS - self.matching(0).count_ones()
    }

    #[inline(always)]
    pub(crate) fn location(&self, slot: u32) -> Location {
        let slot = slot as usize % 8;
        Location::from_u48(u64::from(self.low[slot]) | u64::from(self.high[slot]) << 32)
    }

    #[inline]
    pub(crate) fn set_location(&mut self, slot: u32, location: Location) {
        let bits = location.as_u48();
        self.low[slot as usize] = bits as u32;
        self.high[slot as usize] = (bits >> 32) as u16;
    }

    pub(crate) fn tag(&self, slot: u32) -> u16 {
        self.tags[slot as usize]
    }

    pub(crate) fn set(&mut self, slot: u32, tag: u16, location: Location) {
        debug_assert!(slot < SLOTS && tag != 0);
        self.tags[slot as usize] = tag;
        self.set_location(slot, location);
    }

    pub(crate) fn clear(&mut self, slot: u32) {
        self.tags[slot as usize] = 0;
        self.set_location(slot, Location::from_u48(0));
    }

    #[inline(always)]
    pub(crate) fn next(&self) -> Option<BucketId> {
        self.low[LINK].checked_sub(1).map(BucketId::spare)
    }

    pub(crate) fn set_next(&mut self, next: Option<BucketId>) {
        self.low[LINK] = next.map_or(0, |next| (next.0 & !BucketId::SPARE) + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matching_sees_exactly_the_lanes_with_the_tag() {
        let mut bucket = Bucket::EMPTY;
        for slot in 0..SLOTS {
            bucket.set(
                slot,
                if slot % 3 == 0 { 0xffff } else { 0x0101 },
                Location::from_u48(7 << 40 | u64::from(slot)),
            );
        }
        bucket.set_next(Some(BucketId::spare(0xffff_fffe & !BucketId::SPARE)));
        assert_eq!(bucket.matching(0xffff), 0b100_1001);
        assert_eq!(bucket.matching(0x0101), 0b011_0110);
        assert_eq!((bucket.matching(0), bucket.len()), (0, 7));
        assert_eq!(bucket.location(6).as_u48(), 7 << 40 | 6);
        assert_eq!(bucket.next(), Some(BucketId::spare(0x7fff_fffe)));
    }
}
