//! The pool of nodes.
//!
//! From regions, which the pool asks for one at a time. A region's memory is zero and untouched until its nodes are
//! used. A freed node is used again; regions stay until the tree is dropped.

use super::page::{NodeBytes, View};
use crate::config::{PAGE_BYTES, REGION_PAGES};

/// The nodes, by number.
#[derive(Default)]
pub(super) struct Pool {
    regions: Vec<Box<[NodeBytes]>>,
    /// Numbers below this one have been used.
    used: u32,
    free: Vec<u32>,
}

impl Pool {
    /// Keeps `page` and gives its number.
    pub(super) fn add(&mut self, page: &NodeBytes) -> u32 {
        let id = self.free.pop().unwrap_or_else(|| self.fresh());
        *self.get_mut(id) = *page;
        id
    }

    fn fresh(&mut self) -> u32 {
        let id = self.used;
        if id as usize == self.regions.len() * REGION_PAGES {
            self.regions
                .push(vec![[0; PAGE_BYTES]; REGION_PAGES].into_boxed_slice());
        }
        self.used = id.checked_add(1).expect("fewer nodes than numbers");
        id
    }

    /// Frees a region of a tree that is not used any more; true once there is none.
    pub(super) fn drop_region(&mut self) -> bool {
        let is_empty = self.regions.pop().is_none();
        self.free = Vec::new();
        let left = u32::try_from(self.regions.len() * REGION_PAGES).unwrap_or(u32::MAX);
        self.used = self.used.min(left);
        is_empty
    }

    pub(super) fn remove(&mut self, id: u32) {
        self.free.push(id);
    }

    pub(super) fn get(&self, id: u32) -> View<'_> {
        View(&self.regions[id as usize / REGION_PAGES][id as usize % REGION_PAGES])
    }

    pub(super) fn get_mut(&mut self, id: u32) -> &mut NodeBytes {
        &mut self.regions[id as usize / REGION_PAGES][id as usize % REGION_PAGES]
    }

    /// Nodes in use.
    pub(super) fn count(&self) -> usize {
        self.used as usize - self.free.len()
    }

    /// Nodes that were used and are free.
    pub(super) fn count_free(&self) -> usize {
        self.free.len()
    }

    /// Bytes of the nodes that were ever used, and of the tables that find them.
    pub(super) fn memory(&self) -> usize {
        self.used as usize * PAGE_BYTES
            + self.regions.capacity() * size_of::<Box<[NodeBytes]>>()
            + self.free.capacity() * 4
    }
}
