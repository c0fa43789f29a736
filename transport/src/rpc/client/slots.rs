//! The slots of a client end: which are free, which have a packet to send, and whose turn it is.

use super::request::NO_REQUEST;
use crate::config::SEQUENCES_MAX;
use crate::prefetch::prefetch;
use crate::wire::RequestNumber;

/// The slots of one client end.
#[repr(C)]
pub(super) struct Slots {
    slots: Box<[ClientSlot]>,
    /// A bit per slot without a request.
    free: u64,
    /// A bit per slot that has a packet to send.
    sendable: u64,
    /// Where the round over the slots goes on.
    next: u8,
}

/// Holds one request at a time.
#[derive(Copy, Clone, Debug)]
pub(crate) struct ClientSlot {
    /// Of the present request, or of the last one. Grows by one with each request.
    pub(super) sequence: u64,
    /// Index in the request table, or `NO_REQUEST`.
    pub(super) request: u32,
    /// A request was sent and given up, and none has been answered since. The server cannot take
    /// the next one for a proof that its last response has left its queue.
    pub(super) gave_up: bool,
}

impl Slots {
    pub(super) fn new(count: u8) -> Self {
        let slot = ClientSlot {
            sequence: 0,
            request: NO_REQUEST,
            gave_up: false,
        };
        Self {
            slots: vec![slot; usize::from(count)].into_boxed_slice(),
            free: u64::MAX >> (64 - count),
            sendable: 0,
            next: 0,
        }
    }

    /// Leaves only the first `count` slots, before the first request is in one.
    pub(super) fn shrink(&mut self, count: u8) {
        assert!(self.sendable == 0, "terms change under a request");
        self.slots = self.slots[..usize::from(count)].into();
        self.free = u64::MAX >> (64 - count);
    }

    pub(super) fn have_used_up_numbers(&self) -> bool {
        let mut slots = self.slots.iter();
        slots.any(|slot| slot.sequence > SEQUENCES_MAX)
    }

    #[inline]
    pub(super) fn get(&self, slot: u8) -> Option<&ClientSlot> {
        self.slots.get(usize::from(slot))
    }

    #[cfg(test)]
    pub(super) fn get_mut(&mut self, slot: u8) -> Option<&mut ClientSlot> {
        self.slots.get_mut(usize::from(slot))
    }

    /// A slot that holds a request.
    #[inline(always)]
    pub(super) fn entry(&self, slot: u8) -> &ClientSlot {
        &self.slots[usize::from(slot)]
    }

    /// Gives a request the lowest free slot and that slot's next sequence: few slots stay few and warm.
    #[inline(always)]
    pub(super) fn take(&mut self, request: u32) -> u8 {
        assert!(self.free != 0, "the caller has seen a free slot");
        let slot = self.free.trailing_zeros() as u8;
        self.free &= !(1 << slot);
        let entry = &mut self.slots[usize::from(slot)];
        entry.sequence += 1;
        assert!(
            entry.sequence <= RequestNumber::SEQUENCE_MAX,
            "a slot has used up its request numbers"
        );
        entry.request = request;
        self.sendable |= 1 << slot;
        slot
    }

    /// The slot's request is over, after it was sent and given up or not.
    #[inline(always)]
    pub(super) fn give_back(&mut self, slot: u8, gave_up: bool) {
        debug_assert!(self.free & (1 << slot) == 0, "a slot was given back twice");
        let entry = &mut self.slots[usize::from(slot)];
        entry.request = NO_REQUEST;
        entry.gave_up = gave_up;
        self.sendable &= !(1 << slot);
        self.free |= 1 << slot;
    }

    #[inline]
    pub(super) fn has_free(&self) -> bool {
        self.free != 0
    }

    /// Whether a slot has a packet to send.
    #[inline]
    pub(super) fn can_send(&self) -> bool {
        self.sendable != 0
    }

    /// Whether this slot has a packet to send, and no other has.
    #[inline(always)]
    pub(super) fn only_one_to_send(&self, slot: u8) -> bool {
        self.sendable == 1 << slot
    }

    pub(super) fn set_sendable(&mut self, slot: u8) {
        self.sendable |= 1 << slot;
    }

    #[inline(always)]
    pub(super) fn clear_sendable(&mut self, slot: u8) {
        self.sendable &= !(1 << slot);
    }

    #[inline(always)]
    pub(super) fn clear_all_sendable(&mut self) {
        self.sendable = 0;
    }

    /// The next slot in the round that has something to send.
    pub(super) fn next_sendable(&mut self) -> Option<u8> {
        if self.sendable == 0 {
            return None;
        }
        let ahead = self
            .sendable
            .rotate_right(u32::from(self.next))
            .trailing_zeros() as u8;
        let slot = (self.next + ahead) % 64;
        self.next = (slot + 1) % 64;
        Some(slot)
    }

    /// Slots with a request.
    pub(super) fn used(&self) -> u32 {
        self.slots.len() as u32 - self.free.count_ones()
    }

    #[inline]
    pub(super) fn prefetch(&self, slot: u8) {
        if let Some(slot) = self.get(slot) {
            prefetch::<_, 1>(slot);
        }
    }
}
