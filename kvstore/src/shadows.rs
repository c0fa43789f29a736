//! What this replica keeps of the state at earlier positions.
//!
//! A block that a change would overwrite or remove becomes a *shadow* if a snapshot or a pin still needs it. It stays in
//! index and arena, and no command finds it. Its record has what the block had in its version word, which holds the
//! number of the record instead: the version, and the end, which is the position that replaced it. A read at position P
//! takes the block with version <= P < end.
//!
//! None of this is replicated state. A replica that came out of a snapshot has no shadows from before, and one that kept
//! too much gives its oldest pins up. Then it alone cannot serve those pins.

use crate::config::{FLUSH_SLICE_EXPIRIES, FLUSH_SLICE_INDEX_BYTES};
use crate::hash::KeyHash;
use crate::limits::ordered_charge;
use crate::position::Position;
use std::collections::VecDeque;
use trine_index::KeyTree;

/// A shadow's version and end, and who needs it.
#[derive(Copy, Clone, Debug)]
pub(crate) struct ShadowRecord {
    pub(crate) version: Position,
    pub(crate) end: Position,
    pub(crate) hash: KeyHash,
    pub(crate) for_pins: bool,
    pub(crate) for_snapshot: bool,
}

impl ShadowRecord {
    /// Whether this is the state of its key at a position.
    pub(crate) fn is_of(&self, position: Position) -> bool {
        self.version <= position && position < self.end
    }
}

/// The number of a record.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) struct ShadowId(u32);

impl ShadowId {
    /// The number as the version word of a shadow's block holds it.
    pub(crate) fn as_word(self) -> Position {
        Position::from_u64(self.0.into())
    }

    pub(crate) fn from_word(word: Position) -> Self {
        Self(u32::try_from(word.as_u64()).expect("a shadow's version word is a number of records"))
    }
}

/// The shadows of a store, and the pins that this replica keeps them for.
#[derive(Default, Debug)]
pub(crate) struct Shadows {
    records: Vec<Option<ShadowRecord>>,
    unused: Vec<u32>,
    /// Pins whose state this replica has, oldest first.
    served: Vec<Position>,
    /// Shadows that pins needed when they were made, in the order of their ends.
    queue: VecDeque<ShadowId>,
    /// Bytes of those, and what the ghosts take.
    pinned_bytes: u64,
    /// Bytes of the blocks of all shadows.
    block_bytes: u64,
    /// Keys that are not there any more, and have a shadow that pins need. A key that was written again may be in it.
    ghosts: KeyTree,
}

/// Bytes that a record counts beside its block.
const RECORD_BYTES: u64 = (size_of::<Option<ShadowRecord>>() + size_of::<ShadowId>()) as u64;

impl Shadows {
    pub(crate) fn add(&mut self, record: ShadowRecord, block_bytes: u64) -> ShadowId {
        let id = match self.unused.pop() {
            Some(number) => {
                self.records[number as usize] = Some(record);
                ShadowId(number)
            }
            None => {
                self.records.push(Some(record));
                ShadowId(self.records.len() as u32 - 1)
            }
        };
        self.block_bytes += block_bytes;
        if record.for_pins {
            self.queue.push_back(id);
            self.pinned_bytes += block_bytes + RECORD_BYTES;
        }
        id
    }

    pub(crate) fn get(&self, id: ShadowId) -> &ShadowRecord {
        self.records[id.0 as usize]
            .as_ref()
            .expect("a shadow's block has the number of its record")
    }

    /// The snapshot needs it no more.
    pub(crate) fn release_from_snapshot(&mut self, id: ShadowId) {
        if let Some(record) = &mut self.records[id.0 as usize] {
            record.for_snapshot = false;
        }
    }

    /// Pins need it no more. It is the front of the queue, or, if its change is undone, near the back.
    pub(crate) fn release_from_pins(&mut self, id: ShadowId, block_bytes: u64) {
        let Some(record) = &mut self.records[id.0 as usize] else {
            return;
        };
        if !std::mem::take(&mut record.for_pins) {
            return;
        }
        self.pinned_bytes -= block_bytes + RECORD_BYTES;
        if self.queue.front() == Some(&id) {
            self.queue.pop_front();
        } else if let Some(place) = self.queue.iter().rposition(|other| *other == id) {
            self.queue.remove(place);
        }
    }

    /// The block is no shadow any more.
    pub(crate) fn forget(&mut self, id: ShadowId, block_bytes: u64) {
        let record = self.records[id.0 as usize].take();
        debug_assert!(record.is_some_and(|record| !record.for_pins && !record.for_snapshot));
        self.unused.push(id.0);
        self.block_bytes -= block_bytes;
    }

    /// The room of many shadows, once none of them is left. It goes back to the system slice by slice.
    pub(crate) fn take_room(&mut self) -> Option<Self> {
        if self.unused.len() < self.records.len() || !self.ghosts.is_empty() {
            return None;
        }
        if self.room_bytes() <= FLUSH_SLICE_INDEX_BYTES {
            (self.records, self.unused) = (Vec::new(), Vec::new());
            return None;
        }
        debug_assert!(self.queue.is_empty() && self.pinned_bytes == 0 && self.block_bytes == 0);
        let fresh = Self {
            served: std::mem::take(&mut self.served),
            ..Self::default()
        };
        Some(std::mem::replace(self, fresh))
    }

    /// Bytes that records and ghosts have from the system. The blocks are the arena's.
    pub(crate) fn room_bytes(&self) -> u64 {
        let records = self.records.capacity() * size_of::<Option<ShadowRecord>>();
        let numbers = (self.unused.capacity() + self.queue.capacity()) * size_of::<u32>();
        (records + numbers + self.ghosts.memory().bytes) as u64
    }

    /// Frees a slice of shadows that are not used any more; true once nothing is left.
    pub(crate) fn free_slice(&mut self) -> bool {
        if !self.ghosts.free_some(FLUSH_SLICE_EXPIRIES as usize) {
            return false;
        }
        (self.unused, self.queue) = (Vec::new(), VecDeque::new());
        let records = FLUSH_SLICE_INDEX_BYTES as usize / size_of::<Option<ShadowRecord>>();
        let left = self.records.len().saturating_sub(records);
        self.records.truncate(left);
        self.records.shrink_to_fit();
        left == 0
    }

    /// A shadow lies in another block now, which may be a granule larger.
    pub(crate) fn moved(&mut self, record: &ShadowRecord, from_bytes: u64, to_bytes: u64) {
        self.block_bytes = self.block_bytes - from_bytes + to_bytes;
        if record.for_pins {
            self.pinned_bytes = self.pinned_bytes - from_bytes + to_bytes;
        }
    }

    /// From here on the state at this position is kept. It is the newest.
    pub(crate) fn serve(&mut self, position: Position) {
        debug_assert!(self.newest() < Some(position));
        self.served.push(position);
    }

    /// Keeps no pin but these.
    pub(crate) fn retain(&mut self, mut lives: impl FnMut(Position) -> bool) {
        self.served.retain(|position| lives(*position));
    }

    /// Keeps the oldest pin no more.
    pub(crate) fn give_up_oldest(&mut self) {
        self.served.remove(0);
    }

    /// Keeps no pin any more.
    pub(crate) fn give_up_all(&mut self) {
        self.served.clear();
    }

    /// Whether the state of this pin is kept.
    pub(crate) fn serves(&self, position: Position) -> bool {
        self.served.binary_search(&position).is_ok()
    }

    pub(crate) fn is_serving(&self) -> bool {
        !self.served.is_empty()
    }

    pub(crate) fn newest(&self) -> Option<Position> {
        self.served.last().copied()
    }

    /// The oldest shadow that no pin needs any more.
    pub(crate) fn due(&self) -> Option<ShadowId> {
        let front = *self.queue.front()?;
        let is_due = self
            .served
            .first()
            .is_none_or(|oldest| self.get(front).end <= *oldest);
        is_due.then_some(front)
    }

    /// Bytes of the blocks of all shadows.
    pub(crate) fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    /// Bytes of the shadows that were made for pins, and of the ghosts.
    pub(crate) fn pinned_bytes(&self) -> u64 {
        self.pinned_bytes
    }

    /// How many shadows were made for pins and are still there.
    pub(crate) fn pinned(&self) -> usize {
        self.queue.len()
    }

    /// Whether there is no shadow.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.queue.is_empty()
    }

    pub(crate) fn ghosts(&self) -> &KeyTree {
        &self.ghosts
    }

    pub(crate) fn add_ghost(&mut self, key: &[u8]) {
        if self.ghosts.insert(key) {
            self.pinned_bytes += ordered_charge(key.len());
        }
    }

    pub(crate) fn remove_ghost(&mut self, key: &[u8]) {
        if self.ghosts.remove(key) {
            self.pinned_bytes -= ordered_charge(key.len());
        }
    }
}
