//! The memory of items: regions cut into blocks, allocated by segregated fits.
//!
//! Free blocks of similar size share a list; two bitmaps find the first list that has a block large
//! enough. A freed block joins its free neighbours immediately. The remaining fragmentation is
//! undone by moving the items of the emptiest region elsewhere (`defragment.rs`). Everything is an
//! index into a region, checked by the language.

mod block;
mod defragment;
mod fit;
mod item;

pub(crate) use item::{ItemView, Stamp, item_bytes};

use crate::memory::Region;
use block::BlockHeader;
use defragment::Evacuation;
use fit::{BINS, Bitmaps};

/// The unit of block sizes and locations.
pub(crate) const GRANULE_BYTES: usize = 16;

/// The size of a region; an item never spans two.
pub(crate) const REGION_BYTES: usize = 16 * 1024 * 1024;

const REGION_GRANULES: u64 = (REGION_BYTES / GRANULE_BYTES) as u64;

const _: () = assert!(
    item_bytes(
        crate::config::KEY_BYTES_MAX as usize,
        crate::config::VALUE_BYTES_MAX as usize,
        true
    ) * 15
        <= REGION_BYTES
);

/// Where a block is: its first granule, counted over all regions. Needs 48 bits.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub(crate) struct Location(u64);

impl Location {
    /// Beyond every block; ends a free list.
    const NONE: Self = Self(u64::MAX);

    #[inline(always)]
    pub(crate) fn from_u48(bits: u64) -> Self {
        Self(bits)
    }
    #[inline(always)]
    pub(crate) fn as_u48(self) -> u64 {
        debug_assert!(self.0 < 1 << 48);
        self.0
    }
    #[inline(always)]
    fn new(region: usize, granule: u64) -> Self {
        Self(region as u64 * REGION_GRANULES + granule)
    }
    #[inline(always)]
    fn region(self) -> usize {
        (self.0 / REGION_GRANULES) as usize
    }
    #[inline(always)]
    fn granule(self) -> u64 {
        self.0 % REGION_GRANULES
    }
    /// In bytes, over all regions.
    #[inline(always)]
    fn offset(self) -> usize {
        self.0 as usize * GRANULE_BYTES
    }
}

/// One region and what is known about it.
#[derive(Debug)]
struct Space {
    /// Whether the region is in use; one that was given back is used again first.
    mapped: bool,
    /// Granules in live blocks.
    live: u64,
}

/// The arena's memory use.
#[derive(Copy, Clone, Eq, PartialEq, Default, Debug)]
pub(crate) struct Usage {
    /// Bytes in live blocks.
    pub(crate) live_bytes: u64,
    /// Bytes taken from the system.
    pub(crate) region_bytes: u64,
}

/// The item memory of one store.
#[derive(Debug)]
pub(crate) struct Arena {
    memory: Region<u8>,
    spaces: Vec<Space>,
    heads: Box<[Location; BINS]>,
    bitmaps: Bitmaps,
    live: u64,
    mapped: u64,
    evacuation: Option<Evacuation>,
}

impl Arena {
    pub(crate) fn new() -> Self {
        Self {
            memory: Region::empty(),
            spaces: Vec::new(),
            heads: Box::new([Location::NONE; BINS]),
            bitmaps: Bitmaps::default(),
            live: 0,
            mapped: 0,
            evacuation: None,
        }
    }

    pub(crate) fn usage(&self) -> Usage {
        Usage {
            live_bytes: self.live * GRANULE_BYTES as u64,
            region_bytes: self.mapped * REGION_BYTES as u64,
        }
    }

    /// Gives the last region back to the system, of an arena that is not used any more; true once it has none left.
    pub(crate) fn give_back_last(&mut self) -> bool {
        while let Some(space) = self.spaces.pop() {
            if space.mapped {
                self.memory
                    .give_back(self.spaces.len() * REGION_BYTES, REGION_BYTES);
                self.mapped -= 1;
                return false;
            }
        }
        true
    }

    #[inline(always)]
    fn bytes(&self, location: Location) -> &[u8] {
        &self.memory[location.offset()..]
    }

    #[inline(always)]
    fn bytes_mut(&mut self, location: Location) -> &mut [u8] {
        &mut self.memory[location.offset()..]
    }

    #[inline(always)]
    fn word(&self, location: Location, index: usize) -> u64 {
        let bytes = self.bytes(location);
        u64::from_le_bytes(
            bytes[index * 8..index * 8 + 8]
                .try_into()
                .expect("the range has eight bytes"),
        )
    }

    #[inline(always)]
    fn set_word(&mut self, location: Location, index: usize, word: u64) {
        self.bytes_mut(location)[index * 8..index * 8 + 8].copy_from_slice(&word.to_le_bytes());
    }

    #[inline(always)]
    fn header(&self, location: Location) -> BlockHeader {
        BlockHeader::from_bits(self.word(location, 0))
    }

    #[inline(always)]
    fn set_header(&mut self, location: Location, header: BlockHeader) {
        self.set_word(location, 0, header.bits());
    }
}

#[cfg(test)]
mod tests;
