//! The ordered index: whether there is one, and how far it is.
//!
//! The index is a tree of keys beside the hash table. It follows from the items, so no snapshot holds it. Whether there
//! is one is replicated state, and so is how far it is built. Its building goes through the order of reversed hashes in
//! slices of equal size, one with each log entry. So every replica has the whole of it at the same position, whatever
//! its table looks like, and nobody has to report.

use crate::codec::{DecodeError, Reader, Sink};
use crate::config::{FLUSH_SLICE_EXPIRIES, INDEX_STEP_KEYS};
use std::fmt;
use trine_index::KeyTree;

/// Whether a group keeps an ordered index.
#[derive(Copy, Clone, Eq, PartialEq, Default, Debug)]
pub enum Ordered {
    /// No.
    #[default]
    Off,
    /// It will: items are being added to the index.
    Building(Walk),
    /// Yes.
    On,
}

/// How far the building of an index is.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Walk {
    /// The order of hashes has 2 to this power slices.
    bits: u8,
    /// The slice that is due.
    next: u64,
}

/// More slices than items are never needed.
const SLICE_BITS_MAX: u8 = 48;

impl Walk {
    fn over(items: u64) -> Self {
        let slices = items.div_ceil(INDEX_STEP_KEYS).next_power_of_two();
        Self {
            bits: (slices.trailing_zeros() as u8).min(SLICE_BITS_MAX),
            next: 0,
        }
    }

    /// How many parts of a thousand are done.
    #[must_use]
    pub fn permille(&self) -> u64 {
        (self.next * 1_000) >> self.bits
    }
}

impl Ordered {
    /// What a snapshot and the state hash have of it: nothing if there is no index, as before there could be one.
    pub(crate) fn write(self, sink: &mut impl Sink) {
        match self {
            Self::Off => {}
            Self::Building(Walk { bits, next }) => {
                sink.put_u8(1);
                sink.put_u8(bits);
                sink.put_u64(next);
            }
            Self::On => sink.put_u8(2),
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        if reader.rest().is_empty() {
            return Ok(Self::Off);
        }
        let impossible = DecodeError::BadField { field: "ordered" };
        match reader.u8()? {
            1 => {
                let (bits, next) = (reader.u8()?, reader.u64()?);
                match bits <= SLICE_BITS_MAX && next < 1 << bits {
                    true => Ok(Self::Building(Walk { bits, next })),
                    false => Err(impossible),
                }
            }
            2 => Ok(Self::On),
            _ => Err(impossible),
        }
    }
}

impl fmt::Display for Ordered {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => write!(formatter, "off"),
            Self::Building(walk) => {
                let permille = walk.permille();
                write!(formatter, "building, {}.{} %", permille / 10, permille % 10)
            }
            Self::On => write!(formatter, "on"),
        }
    }
}

/// The keys of a store in their order. While it is being built, keys are missing.
#[derive(Debug)]
pub(crate) struct Index {
    keys: KeyTree,
    /// None once every key is there.
    walk: Option<Walk>,
}

impl Index {
    /// Of a store with so many items, none of which is in it yet.
    pub(crate) fn over(items: u64) -> Self {
        Self {
            keys: KeyTree::new(),
            walk: Some(Walk::over(items)),
        }
    }

    /// Of a store without items, in this state. None for [`Ordered::Off`].
    pub(crate) fn of_empty(state: Ordered) -> Option<Box<Self>> {
        let walk = match state {
            Ordered::Off => return None,
            Ordered::Building(walk) => Some(walk),
            Ordered::On => None,
        };
        let keys = KeyTree::new();
        Some(Box::new(Self { keys, walk }))
    }

    pub(crate) fn state(&self) -> Ordered {
        self.walk.map_or(Ordered::On, Ordered::Building)
    }

    /// Bytes that it has from the system.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.keys.memory().bytes as u64
    }

    /// Frees a slice of an index that is not used any more; true once nothing is left.
    pub(crate) fn free_slice(&mut self) -> bool {
        self.keys.free_some(FLUSH_SLICE_EXPIRIES as usize)
    }

    pub(crate) fn keys(&self) -> &KeyTree {
        &self.keys
    }

    pub(crate) fn add(&mut self, key: &[u8]) {
        self.keys.insert(key);
    }

    pub(crate) fn remove(&mut self, key: &[u8]) {
        self.keys.remove(key);
    }

    /// The least order of hashes in the slice that is due, and the greatest one. Counts the slice as done.
    pub(crate) fn next_slice(&mut self) -> Option<(u64, u64)> {
        let Walk { bits, next } = self.walk?;
        let shift = 64 - u32::from(bits);
        let first = next.checked_shl(shift).unwrap_or(0);
        let last = first | u64::MAX.checked_shr(bits.into()).unwrap_or(0);
        let next = next + 1;
        self.walk = (next < 1 << bits).then_some(Walk { bits, next });
        Some((first, last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_cover_every_hash_once() {
        for items in [0, 1, 256, 257, 3_000] {
            let mut index = Index::over(items);
            let mut expected = Some(0);
            while let Some((first, last)) = index.next_slice() {
                assert_eq!(expected, Some(first), "{items} items");
                expected = last.checked_add(1);
            }
            assert_eq!((expected, index.state()), (None, Ordered::On));
        }
    }

    #[test]
    fn every_state_survives_and_others_are_refused() {
        let building = Ordered::Building(Walk { bits: 4, next: 15 });
        for state in [Ordered::Off, building, Ordered::On] {
            let mut bytes = Vec::new();
            state.write(&mut bytes);
            assert_eq!(Ordered::read(&mut Reader::new(&bytes)), Ok(state));
        }
        assert_eq!(building.to_string(), "building, 93.7 %");
        for bad in [&[0][..], &[3], &[1, 4, 16, 0, 0, 0, 0, 0, 0, 0], &[1, 49]] {
            assert!(Ordered::read(&mut Reader::new(bad)).is_err(), "{bad:?}");
        }
    }
}
