//! Memory that is still to be freed. A flush leaves the index, the item memory and the expiries of its items, and the
//! records of what pins and snapshots had kept. A group that gives up its ordered index leaves that one. All of it is freed
//! slice by slice: to give back gigabytes takes the system longer than a group may stand still.

use crate::arena::Arena;
use crate::config::{
    FLUSH_BEHIND_SLICES, FLUSH_SLICE_BYTES, FLUSH_SLICE_EXPIRIES, FLUSH_SLICE_INDEX_BYTES,
    FLUSHED_STORES_MAX,
};
use crate::expiry::Expiries;
use crate::ordered::Index;
use crate::shadows::Shadows;
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

/// The remains of one flush, of an index, or of shadows.
#[derive(Default, Debug)]
pub(crate) struct Old {
    items: Option<OldItems>,
    index: Option<Box<Index>>,
    shadows: Option<Shadows>,
}

#[derive(Debug)]
struct OldItems {
    arena: Arena,
    table: Table,
    expiries: Expiries,
}

/// Bytes that remains have from the system.
#[derive(Copy, Clone, Default, Debug)]
pub(crate) struct Remains {
    pub(crate) arena: u64,
    pub(crate) table: u64,
    pub(crate) ordered: u64,
}

impl OldItems {
    /// Frees a slice; true once nothing is left.
    fn free_slice(&mut self) -> bool {
        self.arena.give_back_last()
            && self.table.give_back(FLUSH_SLICE_BYTES)
            && self.expiries.forget_some(FLUSH_SLICE_EXPIRIES)
    }
}

impl Old {
    /// All that a store had.
    pub(crate) fn new(
        arena: Arena,
        table: Table,
        expiries: Expiries,
        index: Option<Box<Index>>,
    ) -> Self {
        let items = OldItems {
            arena,
            table,
            expiries,
        };
        Self {
            items: Some(items),
            index,
            shadows: None,
        }
    }

    /// An ordered index alone.
    pub(crate) fn of_index(index: Box<Index>) -> Self {
        Self {
            index: Some(index),
            ..Self::default()
        }
    }

    /// Records and ghosts alone, without the blocks.
    pub(crate) fn of_shadows(shadows: Shadows) -> Self {
        Self {
            shadows: Some(shadows),
            ..Self::default()
        }
    }

    /// Frees a slice; true once nothing is left.
    fn free_slice(&mut self) -> bool {
        self.items.as_mut().is_none_or(OldItems::free_slice)
            && self.index.as_mut().is_none_or(|index| index.free_slice())
            && self.shadows.as_mut().is_none_or(Shadows::free_slice)
    }

    fn remains(&self) -> Remains {
        let items = self.items.as_ref();
        Remains {
            arena: items.map_or(0, |items| items.arena.usage().region_bytes),
            table: items.map_or(0, |items| items.table.memory_bytes()),
            ordered: self.index.as_ref().map_or(0, |index| index.memory_bytes())
                + self.shadows.as_ref().map_or(0, Shadows::room_bytes),
        }
    }

    /// Whether no part of it is more than a slice.
    fn is_small(&self) -> bool {
        let Remains {
            arena,
            table,
            ordered,
        } = self.remains();
        let expiries = self.items.as_ref().map_or(0, |old| old.expiries.count());
        arena.max(table) <= FLUSH_SLICE_BYTES as u64
            && expiries <= u64::from(FLUSH_SLICE_EXPIRIES)
            && ordered <= FLUSH_SLICE_INDEX_BYTES
    }
}

impl Flushed {
    /// Takes remains. Small ones are freed at once: those of little stores that are flushed again and again would pile
    /// up.
    pub(crate) fn add(&mut self, old: Old) {
        if old.is_small() {
            return;
        }
        self.old.push_back(old);
        if self.old.len() > FLUSHED_STORES_MAX {
            for _ in 0..FLUSH_BEHIND_SLICES {
                self.free_slice();
            }
        }
    }

    /// Frees a slice; true once nothing is left.
    pub(crate) fn free_slice(&mut self) -> bool {
        if self.old.front_mut().is_some_and(Old::free_slice) {
            self.old.pop_front();
        }
        self.old.is_empty()
    }

    /// Bytes that are not given back yet.
    pub(crate) fn remains(&self) -> Remains {
        let all = self.old.iter().map(Old::remains);
        all.fold(Remains::default(), |sum, old| Remains {
            arena: sum.arena + old.arena,
            table: sum.table + old.table,
            ordered: sum.ordered + old.ordered,
        })
    }
}
