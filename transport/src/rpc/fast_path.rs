//! The fast path out: packets that are written the moment their cause arises, a request when it is
//! enqueued, a response when its handler returns. They wait in a batch of their own for the next `poll_transmit`.
//!
//! It takes only common packets: a message of one short packet, sent for the first time, with a credit at
//! hand and no rate to keep. Session and slot are in the processor's registers then; the list of ready
//! sessions and the queue of answers would only bring the sender back to them. Nothing refers to
//! the message's buffer, because short packets are copied.

use crate::backend::{Route, TxBatch};
use crate::session::peer::SessionPeer;
use crate::wire::{EXTENSION_BYTES, Header};

/// Packets that wait at most; those beyond go through the queues.
const WAITING_MAX: usize = 128;

/// The batch of packets that are written and not yet handed out.
pub(crate) struct FastPath<R> {
    waiting: TxBatch<R>,
    /// The number of them that have been handed out.
    taken: usize,
    /// Off without batched timestamps: a packet's time is then that of its transmission.
    is_on: bool,
}

impl<R: Route> FastPath<R> {
    pub(crate) fn new(is_on: bool) -> Self {
        Self {
            waiting: TxBatch::with_capacity(if is_on { WAITING_MAX } else { 0 }),
            taken: 0,
            is_on,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether a message of `bytes` can be written.
    #[inline]
    pub(crate) fn takes(&self, bytes: usize) -> bool {
        bytes <= TxBatch::<R>::COPY_MAX && self.is_on && !self.waiting.is_full()
    }

    /// Hands out the packets that wait, as far as they fit.
    pub(crate) fn transmit(&mut self, tx: &mut TxBatch<R>) {
        if self.waiting.is_empty() {
            return;
        }
        if self.taken == 0 && tx.is_empty() && tx.room() == self.waiting.capacity() {
            return std::mem::swap(&mut self.waiting, tx);
        }
        while let Some(item) = self.waiting.get(self.taken).filter(|_| !tx.is_full()) {
            tx.push_item(&item);
            self.taken += 1;
        }
        if self.taken == self.waiting.len() {
            self.waiting.clear();
            self.taken = 0;
        }
    }

    /// Writes a packet that is its whole message. The caller has asked whether there is room.
    #[inline(always)]
    pub(crate) fn write(
        &mut self,
        to: &SessionPeer<R>,
        header: &Header,
        extension: Option<[u8; EXTENSION_BYTES]>,
        message: &[u8],
    ) {
        let room = self.waiting.next_room();
        let len = header.write_packet(to.seed, extension, message, room);
        self.waiting.push_written(to.route, len, to.terms.mtu);
    }
}
