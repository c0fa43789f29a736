//! What the server ends have to send: one entry per received packet, in order.

use std::collections::VecDeque;

/// A packet to send in answer to a received one. Resolved against its slot when it is sent.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) session: u16,
    pub(crate) generation: u32,
    pub(crate) slot: u8,
    /// The round of the packet that is answered.
    pub(crate) round: u8,
    /// That packet carried a congestion mark.
    pub(crate) ecn: bool,
    pub(crate) sequence: u64,
    pub(crate) what: What,
}

/// Kinds of answers.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum What {
    /// Request packets up to this number have arrived.
    CreditReturn(u16),
    /// This request packet is missing.
    Gap(u16),
    /// The handler runs.
    Busy,
    /// These response packets.
    Response { first: u16, count: u16 },
}

/// A bounded queue whose entries have lasting places, so that a credit return can still be changed.
pub(crate) struct AnswerQueue {
    queue: VecDeque<Answer>,
    /// The place of the queue's first entry.
    first_place: u64,
    limit: usize,
}

impl AnswerQueue {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            queue: VecDeque::with_capacity(limit),
            first_place: 0,
            limit,
        }
    }

    /// False if there is no room: the client will ask again.
    #[must_use]
    #[inline]
    pub(crate) fn push(&mut self, answer: Answer) -> bool {
        let has_room = self.queue.len() < self.limit;
        if has_room {
            self.queue.push_back(answer);
        }
        has_room
    }

    /// The place of the entry that was pushed last.
    pub(crate) fn last_place(&self) -> u64 {
        (self.first_place + self.queue.len() as u64).wrapping_sub(1)
    }

    /// The entry at a place, unless it has been sent.
    pub(crate) fn at_place(&mut self, place: u64) -> Option<&mut Answer> {
        let index = place.checked_sub(self.first_place)?;
        self.queue.get_mut(usize::try_from(index).ok()?)
    }

    pub(crate) fn front(&mut self) -> Option<&mut Answer> {
        self.queue.front_mut()
    }

    pub(crate) fn pop_front(&mut self) {
        if self.queue.pop_front().is_some() {
            self.first_place += 1;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}
