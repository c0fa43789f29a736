//! Keys that are too long for their node.
//!
//! Each has an allocation of its own and a number. A node keeps the number. Separators of inner nodes have their own
//! copies.

/// The keys, by number.
#[derive(Default)]
pub(super) struct LongKeys {
    keys: Vec<Box<[u8]>>,
    /// Numbers that are free.
    free: Vec<u32>,
    bytes: usize,
}

impl LongKeys {
    pub(super) fn add(&mut self, key: &[u8]) -> u32 {
        self.bytes += key.len();
        if let Some(id) = self.free.pop() {
            self.keys[id as usize] = key.into();
            return id;
        }
        self.keys.push(key.into());
        u32::try_from(self.keys.len() - 1).expect("fewer long keys than numbers")
    }

    pub(super) fn get(&self, id: u32) -> &[u8] {
        &self.keys[id as usize]
    }

    pub(super) fn remove(&mut self, id: u32) {
        let key = std::mem::take(&mut self.keys[id as usize]);
        self.bytes -= key.len();
        self.free.push(id);
    }

    /// Frees so many keys of a tree that is not used any more; true once there is none.
    pub(super) fn drop_some(&mut self, count: usize) -> bool {
        let left = self.keys.len().saturating_sub(count);
        self.bytes -= self.keys.drain(left..).map(|key| key.len()).sum::<usize>();
        if left == 0 {
            *self = Self::default();
        }
        left == 0
    }

    /// Bytes of the keys, and of the tables that find them.
    pub(super) fn memory(&self) -> usize {
        self.bytes + self.keys.capacity() * size_of::<Box<[u8]>>() + self.free.capacity() * 4
    }

    pub(super) fn count(&self) -> usize {
        self.keys.len() - self.free.len()
    }
}
