//! What a live block holds.
//!
//! ```text
//! word 0    block header with the key and value lengths
//! word 1    version
//! word 2    expiry in nanoseconds of group time, only if the header says so
//! then      key, value
//! ```

use super::fit::granules_for;
use super::{Arena, Location};
use crate::machine::prefetch_at;
use crate::position::Position;

/// Bytes that the block of an item takes at least.
pub(crate) const fn item_bytes(key: usize, value: usize, expires: bool) -> usize {
    16 + if expires { 8 } else { 0 } + key + value
}

/// When an item was changed and when it goes.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) struct Stamp {
    pub(crate) version: Position,
    /// Group time; 0 if it does not expire.
    pub(crate) expiry_ns: u64,
}

/// An item where it lies.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Item<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    pub(crate) stamp: Stamp,
}

impl Arena {
    /// A new block with this item.
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8], stamp: Stamp) -> Location {
        let location = self.allocate(item_bytes(key.len(), value.len(), stamp.expiry_ns != 0));
        self.fill(location, key, value, stamp);
        location
    }

    /// Ends an item.
    pub(crate) fn remove(&mut self, location: Location) {
        self.release(location);
    }

    /// Writes a new value over an item's old one if its block is large enough.
    pub(crate) fn overwrite(
        &mut self,
        location: Location,
        key: &[u8],
        value: &[u8],
        stamp: Stamp,
    ) -> bool {
        let bytes = item_bytes(key.len(), value.len(), stamp.expiry_ns != 0);
        if granules_for(bytes) > self.header(location).granules() {
            return false;
        }
        self.trim(location, bytes);
        self.fill(location, key, value, stamp);
        true
    }

    fn fill(&mut self, location: Location, key: &[u8], value: &[u8], stamp: Stamp) {
        let expires = stamp.expiry_ns != 0;
        let header = self
            .header(location)
            .with_item(key.len(), value.len(), expires);
        let bytes = &mut self.bytes_mut(location)[..item_bytes(key.len(), value.len(), expires)];
        bytes[..8].copy_from_slice(&header.bits().to_le_bytes());
        bytes[8..16].copy_from_slice(&stamp.version.as_u64().to_le_bytes());
        let mut at = 16;
        if expires {
            bytes[16..24].copy_from_slice(&stamp.expiry_ns.to_le_bytes());
            at = 24;
        }
        bytes[at..at + key.len()].copy_from_slice(key);
        bytes[at + key.len()..].copy_from_slice(value);
    }

    #[inline(always)]
    pub(crate) fn item(&self, location: Location) -> Item<'_> {
        let bytes = self.bytes(location);
        let header = self.header(location);
        let (key_at, expiry_ns) = if header.expires() {
            (24, word(bytes, 16))
        } else {
            (16, 0)
        };
        let (key, rest) = bytes[key_at..].split_at(header.key_len());
        let version = Position::from_u64(word(bytes, 8));
        Item {
            key,
            value: &rest[..header.value_len()],
            stamp: Stamp { version, expiry_ns },
        }
    }

    pub(crate) fn set_shadow(&mut self, location: Location, shadow: bool) {
        let header = self.header(location);
        self.set_header(location, header.with_shadow(shadow));
    }

    /// The first byte of an item's block, to prefetch its line.
    #[inline(always)]
    pub(crate) fn first_byte(&self, location: Location) -> &u8 {
        &self.bytes(location)[0]
    }

    /// Starts to load the line behind the item's first one, where most small values end.
    #[inline(always)]
    pub(crate) fn prefetch_second_line(&self, location: Location) {
        prefetch_at(self.bytes(location), 64);
    }

    /// Whether this is the current item of the key.
    #[inline(always)]
    pub(crate) fn is_current(&self, location: Location, key: &[u8]) -> bool {
        let header = self.header(location);
        let bytes = self.bytes(location);
        let key_at = if header.expires() { 24 } else { 16 };
        header.key_len() == key.len()
            && same(&bytes[key_at..key_at + key.len()], key)
            && !header.shadow()
    }

    /// Whether the item is kept only for the running snapshot.
    pub(crate) fn is_shadowed(&self, location: Location) -> bool {
        self.header(location).shadow()
    }

    /// Whether this item of the key is kept only for the running snapshot.
    pub(crate) fn is_shadow(&self, location: Location, key: &[u8]) -> bool {
        self.header(location).shadow() && self.item(location).key == key
    }

    /// Bytes of the item's block.
    pub(crate) fn block_bytes(&self, location: Location) -> u64 {
        self.header(location).granules() * super::GRANULE_BYTES as u64
    }
}

#[inline(always)]
fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(
        bytes[at..at + 8]
            .try_into()
            .expect("the range has eight bytes"),
    )
}

/// Equality without a call for the common short keys. The lengths are equal.
#[inline(always)]
fn same(left: &[u8], right: &[u8]) -> bool {
    let length = left.len();
    if (8..=16).contains(&length) && right.len() == length {
        return word(left, 0) == word(right, 0)
            && word(left, length - 8) == word(right, length - 8);
    }
    left == right
}
