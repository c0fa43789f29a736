//! The client end of a session: slots, credits, the queue beyond the slots.

use super::request_table::{ClientRequest, NO_REQUEST, Place};
use crate::config::SEQUENCES_MAX;
use crate::congestion::{Congestion, Pacer};
use crate::session::{RtoLimits, Rtt, Terms};
use crate::time::Instant;
use crate::wire::RequestNumber;

/// State of a client end. Credits in use are always the sum over slots of packets sent less
/// packets answered. What every packet needs comes first.
#[repr(C)]
pub(crate) struct ClientEnd {
    pub(crate) slots: Box<[ClientSlot]>,
    /// A bit per slot without a request.
    free: u64,
    /// A bit per slot that has a packet to send.
    pub(crate) sendable: u64,
    /// Where the round over the slots goes on.
    next_slot: u8,
    /// True exactly while the session is in the endpoint's list of those that can send, or waits
    /// in the pacing wheel.
    pub(crate) is_ready: bool,
    /// Credits left.
    pub(crate) credits: u16,
    /// Requests that wait for a slot, linked through the request table.
    pub(crate) queue_first: u32,
    pub(crate) queue_last: u32,
    pub(crate) queued: u32,
    pub(crate) completed: u64,
    pub(crate) rtt: Rtt,
    pub(crate) congestion: Congestion,
    pub(crate) pacer: Pacer,
    pub(crate) retransmissions: u64,
    pub(crate) credit_stalls: u64,
    /// No queued request has an earlier deadline.
    pub(crate) queue_deadline: Instant,
    /// Entries of the queue whose requests have ended; `queued` counts the others.
    pub(crate) ended: u32,
}

/// A place for one request at a time.
#[derive(Copy, Clone, Debug)]
pub(crate) struct ClientSlot {
    /// Of the present request, or of the last one. Grows by one with each request.
    pub(crate) sequence: u64,
    /// Index in the request table, or `NO_REQUEST`.
    pub(crate) request: u32,
    /// A request was sent and given up, and none has been answered since: the server cannot take
    /// the next one for a proof that its last response has left its queue.
    pub(crate) gave_up: bool,
}

impl ClientEnd {
    pub(crate) fn new(terms: &Terms, rto: RtoLimits, congestion: Congestion) -> Self {
        let slots = usize::from(terms.slots);
        Self {
            slots: vec![
                ClientSlot {
                    sequence: 0,
                    request: NO_REQUEST,
                    gave_up: false,
                };
                slots
            ]
            .into_boxed_slice(),
            free: u64::MAX >> (64 - slots),
            sendable: 0,
            next_slot: 0,
            credits: terms.credits,
            is_ready: false,
            queue_first: NO_REQUEST,
            queue_last: NO_REQUEST,
            queued: 0,
            ended: 0,
            queue_deadline: Instant::FAR_FUTURE,
            rtt: Rtt::new(rto),
            congestion,
            pacer: Pacer::default(),
            retransmissions: 0,
            completed: 0,
            credit_stalls: 0,
        }
    }

    /// Fits the slots to what the server granted, before the first request is in a slot.
    pub(crate) fn set_terms(&mut self, terms: &Terms) {
        let slots = usize::from(terms.slots);
        assert!(self.sendable == 0, "terms change under a request");
        self.slots = self.slots[..slots].into();
        self.free = u64::MAX >> (64 - slots);
        self.credits = terms.credits;
        self.congestion
            .set_window(u64::from(terms.credits) * u64::from(terms.mtu));
    }

    /// Gives a request the lowest slot that is free, and the slot's next sequence.
    #[inline(always)]
    pub(crate) fn start(&mut self, index: u32, request: &mut ClientRequest, terms: &Terms) {
        let slot = self.take_slot().expect("the caller has seen a free slot");
        let place = &mut self.slots[usize::from(slot)];
        place.sequence += 1;
        assert!(
            place.sequence <= RequestNumber::SEQUENCE_MAX,
            "a slot has used up its request numbers"
        );
        place.request = index;
        self.sendable |= 1 << slot;
        request.slot = slot;
        request.place = Place::InSlot;
        request.next = NO_REQUEST;
        let request_bytes = request
            .buffers
            .as_ref()
            .map_or(0, |buffers| buffers.request.len());
        request.request_packets = terms.packets(request_bytes);
    }

    /// Whether a slot is near the end of its request numbers.
    pub(crate) fn has_used_up_numbers(&self) -> bool {
        let mut slots = self.slots.iter();
        slots.any(|slot| slot.sequence > SEQUENCES_MAX)
    }

    /// Whether the session is to be listed among those that can send. True only once.
    #[inline]
    pub(crate) fn becomes_ready(&mut self) -> bool {
        let becomes_ready = self.sendable != 0 && self.credits > 0 && !self.is_ready;
        self.is_ready |= becomes_ready;
        becomes_ready
    }

    /// Takes the lowest free slot: few slots stay few and warm.
    #[inline]
    pub(crate) fn take_slot(&mut self) -> Option<u8> {
        if self.free == 0 {
            return None;
        }
        let slot = self.free.trailing_zeros() as u8;
        self.free &= !(1 << slot);
        Some(slot)
    }

    #[inline]
    pub(crate) fn give_slot_back(&mut self, slot: u8) {
        debug_assert!(self.free & (1 << slot) == 0, "a slot was given back twice");
        self.slots[usize::from(slot)].request = NO_REQUEST;
        self.sendable &= !(1 << slot);
        self.free |= 1 << slot;
    }

    pub(crate) fn has_free_slot(&self) -> bool {
        self.free != 0
    }

    /// The next slot in the round that has something to send.
    pub(crate) fn next_sendable(&mut self) -> Option<u8> {
        if self.sendable == 0 {
            return None;
        }
        let ahead = self
            .sendable
            .rotate_right(u32::from(self.next_slot))
            .trailing_zeros() as u8;
        let slot = (self.next_slot + ahead) % 64;
        self.next_slot = (slot + 1) % 64;
        Some(slot)
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.slots.len() as u32 - self.free.count_ones()
    }
}
