//! Answers that the server ends must send: one entry per received packet, in order.

use std::collections::VecDeque;

use crate::session::api::SessionId;
use crate::time::Instant;

/// A packet to send in answer to a received one. Resolved against its slot when it is sent.
#[derive(Copy, Clone, Debug)]
pub(crate) struct ReplyPacket {
    pub(crate) session: SessionId,
    pub(super) slot: u8,
    /// The round of the packet that is answered.
    pub(super) round: u8,
    /// That packet carried a congestion mark.
    pub(super) ecn: bool,
    pub(super) sequence: u64,
    /// When that packet came. Of merged credit returns, when the last of theirs did.
    pub(super) arrived_at: Instant,
    pub(super) what: ReplyKind,
}

/// Kinds of answers.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum ReplyKind {
    /// Request packets up to this number have arrived.
    CreditReturn(u16),
    /// The same, in answer to a packet that had arrived before.
    CreditReturnAgain(u16),
    /// This request packet is missing.
    Gap(u16),
    /// The handler runs.
    Busy,
    /// These response packets.
    Response { first: u16, count: u16 },
}

/// A bounded queue whose entries have lasting positions, so that a credit return can still be changed.
pub(super) struct AnswerQueue {
    queue: VecDeque<ReplyPacket>,
    /// The position of the queue's first entry.
    first_position: u64,
    limit: usize,
}

impl AnswerQueue {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            queue: VecDeque::with_capacity(limit),
            first_position: 0,
            limit,
        }
    }

    /// False if there is no room: the client will ask again.
    #[must_use]
    #[inline]
    pub(super) fn push(&mut self, answer: ReplyPacket) -> bool {
        let has_room = self.queue.len() < self.limit;
        if has_room {
            self.queue.push_back(answer);
        }
        has_room
    }

    /// The position of the entry that was pushed last.
    pub(super) fn last_position(&self) -> u64 {
        (self.first_position + self.queue.len() as u64).wrapping_sub(1)
    }

    /// The entry at a position, unless it has been sent.
    pub(super) fn at_position(&mut self, position: u64) -> Option<&mut ReplyPacket> {
        let index = position.checked_sub(self.first_position)?;
        self.queue.get_mut(usize::try_from(index).ok()?)
    }

    pub(super) fn front(&self) -> Option<ReplyPacket> {
        self.queue.front().copied()
    }

    /// Only this part of the first entry is left.
    pub(super) fn set_front(&mut self, what: ReplyKind) {
        if let Some(front) = self.queue.front_mut() {
            front.what = what;
        }
    }

    pub(super) fn pop_front(&mut self) {
        if self.queue.pop_front().is_some() {
            self.first_position += 1;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}
