//! Where the copies of packets from slots lie until the core has read them.

use super::slot::{ANSWER_BYTES, HEAD_BYTES, SLOT_BYTES};
use crate::route::VerbsRoute;
use trine_transport::backend::{RxBatch, RxSlot};

/// Packets of one burst.
const PLACES: usize = 32;
/// Room for any slot.
const PLACE_BYTES: usize = if ANSWER_BYTES > SLOT_BYTES {
    ANSWER_BYTES
} else {
    SLOT_BYTES
};

/// The burst that was read from slots last.
pub(crate) struct Arrivals {
    memory: Box<[[u8; PLACE_BYTES]; PLACES]>,
    packets: Vec<RxSlot<VerbsRoute>>,
}

impl Arrivals {
    pub(crate) fn new() -> Self {
        Self {
            memory: Box::new([[0; PLACE_BYTES]; PLACES]),
            packets: Vec::with_capacity(PLACES),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.packets.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.packets.len()
    }

    pub(crate) fn has_room(&self) -> bool {
        self.packets.len() < PLACES
    }

    /// Where the next slot is copied to.
    ///
    /// # Panics
    ///
    /// If there is no room.
    pub(super) fn place(&mut self) -> &mut [u8; PLACE_BYTES] {
        &mut self.memory[self.packets.len()]
    }

    /// The slot that was copied there holds a packet of `len` bytes from `route`.
    pub(super) fn push(&mut self, route: VerbsRoute, len: usize) {
        let start = self.packets.len() * PLACE_BYTES + HEAD_BYTES;
        self.packets.push(RxSlot {
            start: start as u32,
            len: len as u32,
            route,
            ecn: false,
        });
    }

    pub(crate) fn burst(&self) -> RxBatch<'_, VerbsRoute> {
        RxBatch::from_slots(self.memory.as_flattened(), &self.packets)
    }
}
