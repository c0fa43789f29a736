//! Packets of no request that wait to be sent.

use std::collections::VecDeque;

use crate::backend::{Route, TxBatch};
use crate::stats::Drops;
use crate::wire::{Body, Header, Seed};

/// A packet of a handshake, a teardown, a keepalive or a probe.
pub(crate) struct Control<R> {
    pub(crate) route: R,
    pub(crate) header: Header,
    pub(crate) seed: Seed,
    pub(crate) body: Option<Body>,
}

/// A bounded queue of control packets.
pub(crate) struct ControlQueue<R> {
    queue: VecDeque<Control<R>>,
    limit: usize,
}

/// Control packets for which there is room from the start.
const ROOM_AT_FIRST: usize = 256;

impl<R: Route> ControlQueue<R> {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            queue: VecDeque::with_capacity(limit.min(ROOM_AT_FIRST)),
            limit,
        }
    }

    /// Queues a control packet. A full queue loses it, as the wire might.
    pub(crate) fn push(&mut self, packet: Control<R>, drops: &mut Drops) {
        if self.queue.len() < self.limit {
            self.queue.push_back(packet);
        } else {
            drops.answers_full += 1;
        }
    }

    pub(crate) fn transmit(&mut self, tx: &mut TxBatch<R>) {
        while !tx.is_full() {
            let Some(packet) = self.queue.pop_front() else {
                return;
            };
            let body = packet.body.as_deref().unwrap_or(&[]);
            let header = &packet.header;
            let len = header.write_packet(packet.seed, None, body, tx.next_room());
            tx.push_written(packet.route, len);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}
