//! Packets that are written the moment their cause arises: a request when it is enqueued, a response
//! when its handler returns. They wait in a batch of their own for the next `poll_transmit`.
//!
//! Only for what is common: a message of one short packet, sent for the first time, with a credit at
//! hand and no rate to keep. Session and slot are in the processor's registers then; the list of ready
//! sessions and the queue of answers would only bring the sender back to them. Nothing refers to
//! the message's buffer, because short packets are copied.

use super::{ClientEnd, ClientRequest};
use crate::backend::{Route, TxBatch};
use crate::config::Config;
use crate::session::Session;
use crate::time::Instant;
use crate::wire::{Flags, Header, Held, PacketType, RequestNumber, Seed, deadline_extension};

/// Packets that wait at most; what comes then goes the general way.
const WAITING_MAX: usize = 128;

/// The batch of packets that are written and not yet handed out.
pub(crate) struct FastPath<R> {
    waiting: TxBatch<R>,
    /// So many of them have been handed out.
    taken: usize,
    /// Off without batched timestamps: a packet's time is then that of its transmission.
    is_on: bool,
}

impl<R: Route> FastPath<R> {
    pub(crate) fn new(config: &Config) -> Self {
        let is_on = config.congestion.batched_timestamps;
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

    /// Hands out what waits, as far as it fits.
    pub(crate) fn transmit(&mut self, tx: &mut TxBatch<R>) {
        if self.waiting.is_empty() {
            return;
        }
        if self.taken == 0 && tx.is_empty() && tx.capacity() == self.waiting.capacity() {
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

    /// Writes the response of a slot whose handler has just answered.
    #[inline(always)]
    pub(crate) fn write_response(
        &mut self,
        to: &Peer<R>,
        request: RequestNumber,
        flags: Flags,
        held: Held,
        response: &[u8],
    ) {
        let header = Header {
            flags,
            request,
            held,
            message_bytes: response.len() as u32,
            ..Header::new(PacketType::Response, to.remote)
        };
        let room = self.waiting.next_room();
        let len = header.write_packet(to.seed, None, response, room);
        self.waiting.push_written(to.route, len);
    }

    /// Writes the one packet of a request that has just got a slot, if it may go: false, and nothing
    /// done, if it must wait for its turn.
    #[inline(always)]
    pub(crate) fn send_request(
        &mut self,
        now: Instant,
        to: &Peer<R>,
        client: &mut ClientEnd,
        request: &mut ClientRequest,
    ) -> bool {
        let slot = request.slot;
        let Some(buffers) = &request.buffers else {
            return false;
        };
        let data = &buffers.request;
        // With another slot's packet to be sent first this one takes its place behind it.
        let is_alone = client.sendable == 1 << slot && !client.is_ready;
        let may_go = client.credits > 0 && client.congestion.pacing_rate().is_none();
        if !self.takes(data.len()) || !is_alone || !may_go {
            return false;
        }
        let place = &client.slots[usize::from(slot)];
        let header = Header {
            kind: request.kind,
            message_bytes: data.len() as u32,
            request: RequestNumber::new(slot, place.sequence),
            flags: Flags::default().with_if(place.gave_up, Flags::GAP),
            ..Header::new(PacketType::Request, to.remote)
        };
        let left = request
            .deadline
            .map(|deadline| deadline.saturating_since(now));
        let extension = left.map(|left| deadline_extension(left.as_nanos()));
        let room = self.waiting.next_room();
        let len = header.write_packet(to.seed, extension, data, room);
        self.waiting.push_written(to.route, len);
        client.sendable = 0;
        client.credits -= 1;
        request.stamp(0, now);
        request.sent_at = now;
        request.due = now + client.rtt.rto(0);
        request.sent = 1;
        request.sent_max = 1;
        true
    }
}

/// Where the packets of a session go.
pub(crate) struct Peer<R> {
    route: R,
    seed: Seed,
    remote: u16,
}

impl<R: Route> Peer<R> {
    #[inline(always)]
    pub(crate) fn of(session: &Session<R>) -> Self {
        Self {
            route: session.route,
            seed: session.seed,
            remote: session.remote,
        }
    }
}
