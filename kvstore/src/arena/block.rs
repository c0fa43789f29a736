//! The first word of every block, and blocks between their neighbours.
//!
//! ```text
//! bit   0        free
//! bit   1        the block before this one, in the same region, is free
//! bit   2        live: the item has an expiry      free: the block is in no list
//! bit   3        live: the item is kept only for the running snapshot
//! bits  4..26    size in granules
//! bits 26..43    live: key length
//! bits 43..64    live: value length
//! ```
//!
//! A free block holds the list links in its second and third word and its size in the last word,
//! where the block behind it finds it.

use super::{Arena, GRANULE_BYTES, Location, REGION_GRANULES};

/// The smallest block: a free one needs four words.
pub(crate) const BLOCK_BYTES_MIN: usize = 32;

pub(super) const BLOCK_GRANULES_MIN: u64 = (BLOCK_BYTES_MIN / GRANULE_BYTES) as u64;

const SIZE_SHIFT: u32 = 4;
const KEY_SHIFT: u32 = 26;
const VALUE_SHIFT: u32 = 43;
const SIZE_MASK: u64 = (1 << (KEY_SHIFT - SIZE_SHIFT)) - 1;
const KEY_MASK: u64 = (1 << (VALUE_SHIFT - KEY_SHIFT)) - 1;

const _: () = assert!(REGION_GRANULES <= SIZE_MASK);
const _: () = assert!(crate::config::KEY_BYTES_MAX as u64 <= KEY_MASK);
const _: () = assert!((crate::config::VALUE_BYTES_MAX as u64) < 1 << (64 - VALUE_SHIFT));

#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(super) struct BlockHeader(u64);

impl BlockHeader {
    const FREE: u64 = 1;
    const BEFORE_FREE: u64 = 2;
    const EXPIRES_OR_UNLISTED: u64 = 4;
    const SHADOW: u64 = 8;

    #[inline(always)]
    pub(super) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
    #[inline(always)]
    pub(super) fn bits(self) -> u64 {
        self.0
    }
    pub(super) fn free(granules: u64, listed: bool) -> Self {
        let unlisted = if listed { 0 } else { Self::EXPIRES_OR_UNLISTED };
        Self(granules << SIZE_SHIFT | Self::FREE | unlisted)
    }
    pub(super) fn live(granules: u64) -> Self {
        Self(granules << SIZE_SHIFT)
    }
    #[inline(always)]
    pub(super) fn with_item(self, key: usize, value: usize, expires: bool) -> Self {
        let kept = self.0 & (SIZE_MASK << SIZE_SHIFT | Self::BEFORE_FREE);
        let expires = if expires {
            Self::EXPIRES_OR_UNLISTED
        } else {
            0
        };
        Self(kept | expires | (key as u64) << KEY_SHIFT | (value as u64) << VALUE_SHIFT)
    }
    pub(super) fn with_before_free(self, before_free: bool) -> Self {
        Self(if before_free {
            self.0 | Self::BEFORE_FREE
        } else {
            self.0 & !Self::BEFORE_FREE
        })
    }
    pub(super) fn with_shadow(self, shadow: bool) -> Self {
        Self(if shadow {
            self.0 | Self::SHADOW
        } else {
            self.0 & !Self::SHADOW
        })
    }
    pub(super) fn with_granules(self, granules: u64) -> Self {
        Self(self.0 & !(SIZE_MASK << SIZE_SHIFT) | granules << SIZE_SHIFT)
    }
    #[inline(always)]
    pub(super) fn is_free(self) -> bool {
        self.0 & Self::FREE != 0
    }
    pub(super) fn is_listed(self) -> bool {
        self.0 & Self::EXPIRES_OR_UNLISTED == 0
    }
    pub(super) fn before_free(self) -> bool {
        self.0 & Self::BEFORE_FREE != 0
    }
    #[inline(always)]
    pub(super) fn expires(self) -> bool {
        self.0 & Self::EXPIRES_OR_UNLISTED != 0
    }
    #[inline(always)]
    pub(super) fn shadow(self) -> bool {
        self.0 & Self::SHADOW != 0
    }
    #[inline(always)]
    pub(super) fn granules(self) -> u64 {
        self.0 >> SIZE_SHIFT & SIZE_MASK
    }
    #[inline(always)]
    pub(super) fn key_len(self) -> usize {
        (self.0 >> KEY_SHIFT & KEY_MASK) as usize
    }
    /// Whether this is an item with a key of this length that is no shadow.
    #[inline(always)]
    pub(super) fn is_current_with(self, key_length: usize) -> bool {
        self.0 & (KEY_MASK << KEY_SHIFT | Self::SHADOW) == (key_length as u64) << KEY_SHIFT
    }
    #[inline(always)]
    pub(super) fn value_len(self) -> usize {
        (self.0 >> VALUE_SHIFT) as usize
    }
}

impl Arena {
    /// The block behind this one, if the region does not end here.
    pub(super) fn behind(&self, location: Location, granules: u64) -> Option<Location> {
        (location.granule() + granules < REGION_GRANULES).then(|| Location(location.0 + granules))
    }

    /// The free block before this one, which its header says is there.
    pub(super) fn free_before(&self, location: Location) -> Location {
        let footer = Location(location.0 - 1);
        Location(location.0 - self.word(footer, GRANULE_BYTES / 8 - 1))
    }

    /// Writes the header and footer of a free block and tells the block behind it.
    pub(super) fn mark_free(&mut self, location: Location, granules: u64, listed: bool) {
        self.set_header(location, BlockHeader::free(granules, listed));
        let last = Location(location.0 + granules - 1);
        self.set_word(last, GRANULE_BYTES / 8 - 1, granules);
        self.tell_behind(location, granules, true);
    }

    pub(super) fn tell_behind(&mut self, location: Location, granules: u64, free: bool) {
        if let Some(behind) = self.behind(location, granules) {
            let header = self.header(behind);
            self.set_header(behind, header.with_before_free(free));
        }
    }
}
