//! Which slots of a connection its server looks at, and when.
//!
//! Mostly at one: that of the next sequence. A write that was lost leaves a hole there, and later packets are behind it. So
//! all slots are looked at when a datagram of the session has come, and in growing pauses while nothing comes.

use super::arrivals::Arrivals;
use super::slot::{Head, Slots, judge, slot_of};
use crate::config::{SCAN_FIRST, SCAN_PAUSE_MAX, SLOT_PACKET_MAX, SLOTS};
use crate::route::VerbsRoute;
use trine_transport::time::{Duration, Instant};

/// The server's place in the sequence of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    /// The first sequence that has not been read.
    next: u32,
    /// When all slots are looked at if nothing comes before.
    scan_at: Instant,
    /// They are looked at in any case.
    is_suspect: bool,
    /// The pause before that.
    pause: Duration,
    /// The packet that was read last says that its client fetches answers.
    is_fetched: bool,
}

/// What reading slots has cost and brought.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct SlotCounts {
    /// Packets read.
    pub(crate) packets: u64,
    /// Cache lines looked at.
    pub(crate) lines: u64,
    /// Looks at a slot that was not whole: half-written, or written over.
    pub(crate) torn: u64,
    /// Times that all slots of a connection were looked at.
    pub(crate) scans: u64,
}

/// The memory of one connection, and what packets in it belong to.
pub(super) struct ConnectionMemory<'a, S> {
    pub(super) slots: &'a S,
    pub(super) seed: u32,
    pub(super) route: VerbsRoute,
}

impl Window {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            next: 1,
            scan_at: now + SCAN_FIRST,
            is_suspect: false,
            pause: SCAN_FIRST,
            is_fetched: false,
        }
    }

    /// Whether the client fetches its answers.
    #[inline]
    pub(super) fn is_fetched(&self) -> bool {
        self.is_fetched
    }

    /// The client wants its answers as datagrams until it writes otherwise.
    #[inline]
    pub(super) fn wants_datagrams(&mut self) {
        self.is_fetched = false;
    }

    /// The first sequence that has not been read.
    pub(super) fn next(&self) -> u32 {
        self.next
    }

    /// Something says that a slot may have been missed.
    pub(super) fn suspect(&mut self) {
        self.is_suspect = true;
    }

    /// Reads what has come, as far as there is room.
    pub(super) fn poll<S: Slots>(
        &mut self,
        now: Instant,
        source: &ConnectionMemory<'_, S>,
        arrivals: &mut Arrivals,
        counts: &mut SlotCounts,
    ) {
        let before = arrivals.len();
        while arrivals.has_room() {
            counts.lines += 1;
            let head = self.ahead(source, slot_of(self.next));
            let Some(head) = head.filter(|head| head.sequence == self.next) else {
                // A later one in its place: the slot was written over.
                if head.is_some() {
                    self.suspect();
                }
                break;
            };
            if !self.take(head, source, arrivals, counts) {
                break;
            }
        }
        if arrivals.len() > before {
            self.pause = SCAN_FIRST;
            self.scan_at = now + SCAN_FIRST;
        }
        if self.is_suspect || now >= self.scan_at {
            self.scan(now, source, arrivals, counts);
        }
    }

    /// Looks at all slots, and reads the packets in them in the order in which they were written.
    #[cold]
    fn scan<S: Slots>(
        &mut self,
        now: Instant,
        source: &ConnectionMemory<'_, S>,
        arrivals: &mut Arrivals,
        counts: &mut SlotCounts,
    ) {
        self.is_suspect = false;
        counts.scans += 1;
        counts.lines += SLOTS as u64;
        let mut found: [Option<Head>; SLOTS] = std::array::from_fn(|slot| self.ahead(source, slot));
        found.sort_unstable_by_key(|head| head.map(|head| head.sequence.wrapping_sub(self.next)));
        let before = arrivals.len();
        for head in found.into_iter().flatten() {
            if arrivals.has_room() {
                self.take(head, source, arrivals, counts);
            }
        }
        self.pause = if arrivals.len() > before {
            SCAN_FIRST
        } else {
            (self.pause * 2).min(SCAN_PAUSE_MAX)
        };
        self.scan_at = now + self.pause;
    }

    /// The head of what a slot holds, if it is of no sequence that was read or passed over.
    #[inline]
    fn ahead<S: Slots>(&self, source: &ConnectionMemory<'_, S>, slot: usize) -> Option<Head> {
        let head = Head::read(source.slots.head(slot), SLOT_PACKET_MAX)?;
        let ahead = head.sequence.wrapping_sub(self.next);
        (ahead < 1 << 31 && slot_of(head.sequence) == slot).then_some(head)
    }

    /// Copies a slot and judges the copy. True if it is a packet.
    #[inline]
    fn take<S: Slots>(
        &mut self,
        head: Head,
        source: &ConnectionMemory<'_, S>,
        arrivals: &mut Arrivals,
        counts: &mut SlotCounts,
    ) -> bool {
        let copy = &mut arrivals.place()[..head.bytes];
        source.slots.copy(slot_of(head.sequence), copy);
        counts.lines += head.bytes.div_ceil(64) as u64 - 1;
        let Some(len) = judge(source.seed, head, copy) else {
            counts.torn += 1;
            return false;
        };
        arrivals.push(source.route, len);
        counts.packets += 1;
        self.next = head.sequence.wrapping_add(1);
        self.is_fetched = head.is_fetched;
        true
    }
}
