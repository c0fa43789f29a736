//! Packets of no request that wait to be sent.

use std::collections::VecDeque;

use crate::backend::{Route, TxBatch};
use crate::stats::Drops;
use crate::wire::{Header, Seed, seal_control};
use trine_seal::Sealer;

/// The longest packet of a handshake, a teardown, a keepalive or a probe: a sealed CONNECT with the longest key id.
const PACKET_BYTES_MAX: usize = 192;

/// A packet of a handshake, a teardown, a keepalive or a probe, as it will be sent.
pub(crate) struct Control<R> {
    route: R,
    /// Zero where nothing could be sealed, in a forked child.
    len: usize,
    bytes: [u8; PACKET_BYTES_MAX],
}

impl<R: Route> Control<R> {
    /// A packet with this header and body.
    pub(crate) fn new(route: R, header: &Header, seed: Seed, body: &[u8]) -> Self {
        let mut bytes = [0; PACKET_BYTES_MAX];
        let len = header.write_packet(seed, None, body, &mut bytes);
        Self { route, len, bytes }
    }

    /// The same, sealed.
    pub(crate) fn sealed(route: R, header: &Header, body: &[u8], sealer: &mut Sealer) -> Self {
        let mut bytes = [0; PACKET_BYTES_MAX];
        let len = seal_control(sealer, header, body, &mut bytes).unwrap_or(0);
        Self { route, len, bytes }
    }
}

/// A bounded queue of control packets.
pub(crate) struct ControlQueue<R> {
    queue: VecDeque<Control<R>>,
    limit: usize,
    /// Bytes of a datagram with such packets. Many of them belong to no session yet, or to none any more.
    datagram_max: u16,
}

/// Control packets for which there is room from the start.
const ROOM_AT_FIRST: usize = 64;

impl<R: Route> ControlQueue<R> {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            queue: VecDeque::with_capacity(limit.min(ROOM_AT_FIRST)),
            limit,
            datagram_max: 0,
        }
    }

    /// What a datagram may have on any route.
    pub(crate) fn set_datagram_max(&mut self, bytes: u16) {
        self.datagram_max = bytes;
    }

    /// Queues a control packet. A full queue loses it, as the wire might.
    pub(crate) fn push(&mut self, packet: Control<R>, drops: &mut Drops) {
        if packet.len == 0 {
            return;
        }
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
            let room = tx.next_room();
            room[..PACKET_BYTES_MAX].copy_from_slice(&packet.bytes);
            tx.push_written(packet.route, packet.len, self.datagram_max);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}
