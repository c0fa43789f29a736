//! The packets of one queue that are in flight, and what went wrong with those that came back.
//!
//! A value without a clock and without ports. Packets have numbers in the order in which they are sent. At most a window of
//! them is under way, so none is lost for lack of room where the load is below capacity.

use super::samples::{NUMBER_BYTES, Samples};
use crate::config::PATIENCE_NS;

/// The queue of a packet, in its number.
const QUEUE_SHIFT: u32 = 48;

/// Counts of packets that went wrong.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Never came back by a port by which they should.
    pub lost: u64,
    /// Came back by the same port again.
    pub doubled: u64,
    /// Came back by a port by which they should not, or should have been dropped.
    pub misrouted: u64,
    /// Came back with other bytes.
    pub altered: u64,
    /// The generator did not send them just now.
    pub strange: u64,
}

impl Faults {
    /// How many there are.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.lost + self.doubled + self.misrouted + self.altered + self.strange
    }

    /// Adds those of another queue.
    pub fn add(&mut self, other: &Self) {
        self.lost += other.lost;
        self.doubled += other.doubled;
        self.misrouted += other.misrouted;
        self.altered += other.altered;
        self.strange += other.strange;
    }
}

/// A packet came back.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// As it must, this many nanoseconds after it was sent.
    Right(u64),
    /// With a fault, which is counted.
    Wrong,
}

#[derive(Copy, Clone, Default)]
struct SentPacket {
    sent_ns: u64,
    /// Ports by which it has not come yet.
    missing: u8,
}

/// The packets of one queue.
pub struct Ledger {
    queue: u64,
    slots: Vec<SentPacket>,
    /// The next number.
    next: u64,
    /// Everything before it is settled.
    oldest: u64,
    progress_ns: u64,
    faults: Faults,
}

impl Ledger {
    /// No packet is under way on this queue, and at most `window` will be.
    #[must_use]
    pub fn new(queue: u16, window: usize, now_ns: u64) -> Self {
        Self {
            queue: u64::from(queue & 0xff),
            slots: vec![SentPacket::default(); window],
            next: 0,
            oldest: 0,
            progress_ns: now_ns,
            faults: Faults::default(),
        }
    }

    /// How many packets may be sent now.
    #[must_use]
    pub fn room(&self) -> usize {
        self.slots.len() - (self.next - self.oldest) as usize
    }

    /// Packets that were sent.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.next
    }

    /// What went wrong.
    #[must_use]
    pub fn faults(&self) -> Faults {
        self.faults
    }

    /// Whether every packet that was sent is settled.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.oldest == self.next
    }

    /// The bytes of the next packet, which is sent now. There is room for it.
    pub fn write_next(&mut self, samples: &Samples, frame: &mut [u8], now_ns: u64) {
        assert!(self.room() > 0, "a window that is not full");
        let sample = samples.of(self.next);
        let (head, number) = frame.split_at_mut(sample.frame.len() - NUMBER_BYTES);
        head.copy_from_slice(&sample.frame[..head.len()]);
        number.copy_from_slice(&(self.queue << QUEUE_SHIFT | self.next).to_be_bytes());
        if self.is_settled() {
            self.progress_ns = now_ns;
        }
        *self.slot(self.next) = SentPacket {
            sent_ns: now_ns,
            missing: sample.expected.ports,
        };
        self.next += 1;
        self.settle();
    }

    /// The port did not take the last packets after all.
    pub fn take_back(&mut self, count: u64) {
        self.next -= count;
        self.oldest = self.oldest.min(self.next);
    }

    /// The queue that a frame says it was sent on.
    #[must_use]
    pub fn queue_of(frame: &[u8]) -> usize {
        let number = frame
            .last_chunk()
            .map_or(0, |bytes| u64::from_be_bytes(*bytes));
        (number >> QUEUE_SHIFT) as usize
    }

    /// The length of the next packet.
    #[must_use]
    pub fn next_length(&self, samples: &Samples) -> usize {
        samples.of(self.next).frame.len()
    }

    fn slot(&mut self, number: u64) -> &mut SentPacket {
        let window = self.slots.len() as u64;
        &mut self.slots[(number % window) as usize]
    }

    /// A packet came by this port.
    pub fn on_frame(&mut self, samples: &Samples, port: u8, frame: &[u8], now_ns: u64) -> Arrival {
        self.progress_ns = now_ns;
        let Some(number) = self.number_of(frame) else {
            self.faults.strange += 1;
            return Arrival::Wrong;
        };
        let expected = &samples.of(number).expected;
        let bit = 1_u8 << port;
        if expected.ports & bit == 0 {
            self.faults.misrouted += 1;
            return Arrival::Wrong;
        }
        // Settled packets have come by all their ports, or were given up as lost: either way this is one more.
        if number < self.oldest || self.slot(number).missing & bit == 0 {
            self.faults.doubled += 1;
            return Arrival::Wrong;
        }
        let slot = self.slot(number);
        slot.missing &= !bit;
        let sent_ns = slot.sent_ns;
        self.settle();
        if frame[..frame.len() - NUMBER_BYTES] != *expected.bytes {
            self.faults.altered += 1;
            return Arrival::Wrong;
        }
        Arrival::Right(now_ns.saturating_sub(sent_ns))
    }

    /// The number in a frame, if this queue has sent it.
    fn number_of(&self, frame: &[u8]) -> Option<u64> {
        let number = u64::from_be_bytes(*frame.last_chunk()?);
        let (queue, number) = (number >> QUEUE_SHIFT, number & ((1 << QUEUE_SHIFT) - 1));
        (queue == self.queue && number < self.next).then_some(number)
    }

    /// Goes past the packets that are settled.
    fn settle(&mut self) {
        while self.oldest < self.next && self.slot(self.oldest).missing == 0 {
            self.oldest += 1;
        }
    }

    /// Gives up what is under way if nothing has come for too long.
    pub fn on_time(&mut self, now_ns: u64) {
        if self.is_settled() || now_ns.saturating_sub(self.progress_ns) < PATIENCE_NS {
            return;
        }
        for number in self.oldest..self.next {
            let slot = self.slot(number);
            let missing = std::mem::take(&mut slot.missing);
            self.faults.lost += u64::from(missing.count_ones());
        }
        self.progress_ns = now_ns;
        self.settle();
    }
}

#[cfg(test)]
mod tests;
