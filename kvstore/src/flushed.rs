//! What a flush leaves behind: index, item memory and expiries of items that are no more. They are freed slice by slice,
//! because giving gigabytes back takes the system longer than a group may stand still.

use crate::arena::Arena;
use crate::config::{FLUSH_SLICE_BYTES, FLUSH_SLICE_EXPIRIES, FLUSHED_STORES_MAX};
use crate::expiry::Expiries;
use crate::ordered::Index;
use crate::table::Table;
use std::collections::VecDeque;

const _: () = assert!(
    FLUSH_SLICE_BYTES == crate::arena::REGION_BYTES,
    "a slice of item memory is a region"
);

/// The remains of flushes, oldest first.
#[derive(Default, Debug)]
pub(crate) struct Flushed {
    old: VecDeque<Old>,
}

/// The remains of one flush.
#[derive(Debug)]
pub(crate) struct Old {
    arena: Arena,
    table: Table,
    expiries: Expiries,
    index: Option<Box<Index>>,
}

impl Old {
    pub(crate) fn new(
        arena: Arena,
        table: Table,
        expiries: Expiries,
        index: Option<Box<Index>>,
    ) -> Self {
        Self {
            arena,
            table,
            expiries,
            index,
        }
    }

    /// Frees a slice; true once nothing is left.
    fn free_slice(&mut self) -> bool {
        self.arena.give_back_last()
            && self.table.give_back(FLUSH_SLICE_BYTES)
            && self.expiries.forget_some(FLUSH_SLICE_EXPIRIES)
            && self.index.as_mut().is_none_or(|index| index.free_slice())
    }
}

impl Flushed {
    /// Takes the remains of a flush.
    pub(crate) fn add(&mut self, old: Old) {
        // Otherwise small stores that are flushed again and again would pile up.
        if self.old.len() < FLUSHED_STORES_MAX {
            self.old.push_back(old);
        }
    }

    /// Frees a slice; true once nothing is left.
    pub(crate) fn free_slice(&mut self) -> bool {
        if self.old.front_mut().is_some_and(Old::free_slice) {
            self.old.pop_front();
        }
        self.old.is_empty()
    }

    /// Bytes of item memory and of indexes that are not given back yet.
    pub(crate) fn memory_bytes(&self) -> (u64, u64) {
        self.old.iter().fold((0, 0), |(arena, table), old| {
            (
                arena + old.arena.usage().region_bytes,
                table + old.table.memory_bytes(),
            )
        })
    }
}
