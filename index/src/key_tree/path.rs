//! The way from the root to a leaf.

use super::KeyTree;
use crate::config::LEVELS_MAX;

/// The nodes on the way, and the entry that was taken in each.
#[derive(Copy, Clone)]
pub(super) struct Path {
    pages: [u32; LEVELS_MAX],
    entries: [u16; LEVELS_MAX],
    /// Nodes on the way, the leaf among them.
    length: usize,
}

impl Path {
    pub(super) fn new() -> Self {
        Self {
            pages: [0; LEVELS_MAX],
            entries: [0; LEVELS_MAX],
            length: 0,
        }
    }

    pub(super) fn push(&mut self, page: u32, entry: usize) {
        self.pages[self.length] = page;
        self.entries[self.length] = u16::try_from(entry).expect("an entry of a node");
        self.length += 1;
    }

    /// Takes the last node from the way.
    pub(super) fn pop(&mut self) -> Option<(u32, usize)> {
        self.length = self.length.checked_sub(1)?;
        Some(self.at(self.length))
    }

    /// The node at a depth, and the entry taken there.
    pub(super) fn at(&self, depth: usize) -> (u32, usize) {
        (self.pages[depth], usize::from(self.entries[depth]))
    }

    /// The depth of the leaf.
    pub(super) fn leaf(&self) -> usize {
        self.length - 1
    }
}

impl KeyTree {
    /// The way to a key, or to the place where it belongs. Tells whether it is there.
    pub(super) fn path_to(&self, key: &[u8]) -> (Path, bool) {
        let mut path = Path::new();
        let mut page = self.root;
        loop {
            let view = self.pool.get(page);
            if view.level() == 0 {
                let found = view.find(key, &self.long_keys);
                path.push(page, found.unwrap_or_else(|place| place));
                return (path, found.is_ok());
            }
            let index = view.child_for(key, &self.long_keys);
            path.push(page, index);
            page = view.link(index).child;
        }
    }
}
