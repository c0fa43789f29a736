//! The contents of a live block.
//!
//! ```text
//! word 0    block header with the key and value lengths
//! word 1    version
//! then      key, value, and only if the header says so the expiry in nanoseconds of group time
//! ```

use super::block::BlockHeader;
use super::fit::granules_for;
use super::{Arena, Location};
use crate::machine::prefetch_at;
use crate::position::Position;

/// Bytes that the block of an item takes at least.
pub(crate) const fn item_bytes(key: usize, value: usize, expires: bool) -> usize {
    16 + if expires { 8 } else { 0 } + key + value
}

/// Where the key begins.
const KEY_AT: usize = 16;

/// When an item was changed and when it goes.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) struct Stamp {
    pub(crate) version: Position,
    /// Group time; 0 if it does not expire.
    pub(crate) expiry_ns: u64,
}

/// An item in its block.
#[derive(Copy, Clone, Debug)]
pub(crate) struct ItemView<'a> {
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
        let (head, body) = bytes.split_at_mut(KEY_AT);
        head[..8].copy_from_slice(&header.bits().to_le_bytes());
        head[8..].copy_from_slice(&stamp.version.as_u64().to_le_bytes());
        let (key_bytes, rest) = body.split_at_mut(key.len());
        key_bytes.copy_from_slice(key);
        let (value_bytes, expiry) = rest.split_at_mut(value.len());
        value_bytes.copy_from_slice(value);
        if expires {
            expiry.copy_from_slice(&stamp.expiry_ns.to_le_bytes());
        }
    }

    #[inline(always)]
    pub(crate) fn item(&self, location: Location) -> ItemView<'_> {
        let bytes = self.bytes(location);
        let header = BlockHeader::from_bits(word(bytes, 0));
        view(bytes, header, header.key_len())
    }

    /// The item, if it is the current one of this key.
    #[inline(always)]
    pub(crate) fn current(&self, location: Location, key: &[u8]) -> Option<ItemView<'_>> {
        let bytes = self.bytes(location);
        let header = BlockHeader::from_bits(word(bytes, 0));
        if !header.is_current_with(key.len()) || !same(&bytes[KEY_AT..][..key.len()], key) {
            return None;
        }
        Some(view(bytes, header, key.len()))
    }

    /// Whether this is the current item of the key.
    #[inline(always)]
    pub(crate) fn is_current(&self, location: Location, key: &[u8]) -> bool {
        self.current(location, key).is_some()
    }

    /// Starts to load the first two lines of a block.
    pub(crate) fn prefetch_block(&self, location: Location) {
        prefetch_at(self.bytes(location), 0);
        prefetch_at(self.bytes(location), 64);
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

    /// The version word of a block. That of a shadow holds something else.
    #[inline(always)]
    pub(crate) fn version(&self, location: Location) -> Position {
        Position::from_u64(self.word(location, 1))
    }

    pub(crate) fn set_version(&mut self, location: Location, version: Position) {
        self.set_word(location, 1, version.as_u64());
    }

    pub(crate) fn set_shadow(&mut self, location: Location, shadow: bool) {
        let header = self.header(location);
        self.set_header(location, header.with_shadow(shadow));
    }

    /// Whether the block is kept only for a snapshot or a pin.
    pub(crate) fn is_shadowed(&self, location: Location) -> bool {
        self.header(location).shadow()
    }

    /// Whether this block of the key is kept only for a snapshot or a pin.
    pub(crate) fn is_shadow(&self, location: Location, key: &[u8]) -> bool {
        self.header(location).shadow() && self.item(location).key == key
    }

    pub(crate) fn block_bytes(&self, location: Location) -> u64 {
        self.header(location).granules() * super::GRANULE_BYTES as u64
    }
}

/// The item whose block begins with `bytes`.
#[inline(always)]
fn view(bytes: &[u8], header: BlockHeader, key_length: usize) -> ItemView<'_> {
    let (key, rest) = bytes[KEY_AT..].split_at(key_length);
    let (value, rest) = rest.split_at(header.value_len());
    let expiry_ns = if header.expires() { word(rest, 0) } else { 0 };
    let version = Position::from_u64(word(bytes, 8));
    ItemView {
        key,
        value,
        stamp: Stamp { version, expiry_ns },
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
