//! The circular log: items one behind the other, the oldest overwritten by the newest.
//!
//! ```text
//! word 0    bits 0..17 key length, 17..38 value length, 38..59 size in granules of 16 bytes
//! then      key, value
//! ```
//!
//! A position counts granules since the beginning and never repeats. An item is live while less
//! than the capacity was written since. No item wraps: one that does not fit before the end of the
//! memory begins at its start, and the rest at the end is skipped.

use crate::arena::Location;
use crate::machine::prefetch_at;
use crate::memory::{HUGE_PAGE_BYTES, Region};

const GRANULE_BYTES: usize = 16;
const HEADER_BYTES: usize = 8;
const KEY_BITS: u32 = 17;
const VALUE_BITS: u32 = 21;
const SIZE_SHIFT: u32 = KEY_BITS + VALUE_BITS;

/// The index keeps this many bits of a position.
const POSITION_BITS: u32 = 48;

/// Granules written before an item.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(super) struct LogPosition(u64);

impl LogPosition {
    pub(super) fn as_u48(self) -> u64 {
        self.0 & ((1 << POSITION_BITS) - 1)
    }
}

#[derive(Debug)]
pub(super) struct CacheLog {
    memory: Region<u8>,
    capacity: u64,
    /// Granules written, including those skipped at the end.
    head: u64,
}

impl CacheLog {
    pub(super) fn new(bytes: usize) -> Self {
        let bytes = bytes.next_multiple_of(HUGE_PAGE_BYTES);
        let mut memory = Region::empty();
        memory.grow_to(bytes);
        Self {
            memory,
            capacity: (bytes / GRANULE_BYTES) as u64,
            head: 0,
        }
    }

    /// Times that the log has begun again at its start.
    pub(super) fn rounds(&self) -> u64 {
        self.head / self.capacity
    }

    /// The position that an index entry means, if its item was not overwritten.
    #[inline(always)]
    pub(super) fn live(&self, stored: Location) -> Option<LogPosition> {
        let age = self.head.wrapping_sub(stored.as_u48()) & ((1 << POSITION_BITS) - 1);
        (age != 0 && age <= self.capacity && age <= self.head).then(|| LogPosition(self.head - age))
    }

    /// Granules written since the item.
    pub(super) fn age(&self, position: LogPosition) -> u64 {
        self.head - position.0
    }

    #[inline(always)]
    pub(super) fn first_byte(&self, position: LogPosition) -> &u8 {
        &self.memory[self.offset(position)]
    }

    #[inline(always)]
    pub(super) fn prefetch_second_line(&self, position: LogPosition) {
        prefetch_at(&self.memory[self.offset(position)..], 64);
    }

    #[inline(always)]
    pub(super) fn has_key(&self, position: LogPosition, key: &[u8]) -> bool {
        let bytes = &self.memory[self.offset(position)..];
        let header = header(bytes);
        let length = (header & ((1 << KEY_BITS) - 1)) as usize;
        length == key.len() && bytes[HEADER_BYTES..][..length] == *key
    }

    #[inline(always)]
    pub(super) fn value(&self, position: LogPosition) -> &[u8] {
        let bytes = &self.memory[self.offset(position)..];
        let header = header(bytes);
        let key_length = (header & ((1 << KEY_BITS) - 1)) as usize;
        let value_length = (header >> KEY_BITS & ((1 << VALUE_BITS) - 1)) as usize;
        &bytes[HEADER_BYTES + key_length..][..value_length]
    }

    /// Writes a new value over a live item's old one if it takes as many granules.
    pub(super) fn overwrite(&mut self, position: LogPosition, key: &[u8], value: &[u8]) -> bool {
        let offset = self.offset(position);
        let granules = granules_for(key, value);
        if header(&self.memory[offset..]) >> SIZE_SHIFT != granules {
            return false;
        }
        self.write(offset, granules, key, value);
        true
    }

    /// Writes an item behind the newest one.
    pub(super) fn append(&mut self, key: &[u8], value: &[u8]) -> LogPosition {
        let granules = granules_for(key, value);
        let left = self.capacity - self.head % self.capacity;
        if granules > left {
            self.head += left;
        }
        let position = LogPosition(self.head);
        self.write(self.offset(position), granules, key, value);
        self.head += granules;
        position
    }

    fn write(&mut self, offset: usize, granules: u64, key: &[u8], value: &[u8]) {
        let header = key.len() as u64 | (value.len() as u64) << KEY_BITS | granules << SIZE_SHIFT;
        let bytes = &mut self.memory[offset..][..HEADER_BYTES + key.len() + value.len()];
        bytes[..HEADER_BYTES].copy_from_slice(&header.to_le_bytes());
        bytes[HEADER_BYTES..][..key.len()].copy_from_slice(key);
        bytes[HEADER_BYTES + key.len()..].copy_from_slice(value);
    }

    #[inline(always)]
    fn offset(&self, position: LogPosition) -> usize {
        (position.0 % self.capacity) as usize * GRANULE_BYTES
    }
}

#[inline(always)]
fn header(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(
        bytes[..HEADER_BYTES]
            .try_into()
            .expect("the range has eight bytes"),
    )
}

fn granules_for(key: &[u8], value: &[u8]) -> u64 {
    (HEADER_BYTES + key.len() + value.len()).div_ceil(GRANULE_BYTES) as u64
}
