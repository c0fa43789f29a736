//! Packets that a client end sends: request packets, requests for response packets, probes.

use super::busy::probe_interval;
use super::request::ClientRequest;
use super::send_state::NextPacket;
use super::slots::ClientSlot;
use super::{ClientEnd, Listing, Requests};
use crate::backend::{Route, TxBatch};
use crate::rpc::FastPath;
use crate::rpc::packet::push_data;
use crate::session::peer::SessionPeer;
use crate::stats::EndpointStats;
use crate::time::{Clock, Duration, Instant};
use crate::wire::{
    EXTENSION_BYTES, Features, Flags, HEADER_BYTES, Header, PacketType, RequestNumber,
    deadline_extension,
};

impl ClientEnd {
    /// Writes the one packet of a request that has just got a slot, if it may go: false, and nothing
    /// done, if it must wait for its turn.
    #[inline(always)]
    pub(super) fn send_single<R: Route>(
        &mut self,
        now: Instant,
        to: &SessionPeer<R>,
        request: &mut ClientRequest,
        fast_path: &mut FastPath<R>,
    ) -> bool {
        let slot = request.slot;
        let Some(buffers) = &request.buffers else {
            return false;
        };
        let data = &buffers.request;
        // Behind another slot's packet, this one waits for its turn.
        let is_alone = self.slots.only_one_to_send(slot) && self.listing == Listing::No;
        let may_go =
            self.credits.left > self.credits.reserve && self.congestion.pacing_rate().is_none();
        if !fast_path.takes(data.len()) || !is_alone || !may_go {
            return false;
        }
        let entry = self.slots.entry(slot);
        let header = Header {
            kind: request.kind,
            message_bytes: data.len() as u32,
            request: RequestNumber::new(slot, entry.sequence),
            flags: Flags::default().with_if(entry.gave_up, Flags::GAP),
            ..Header::new(PacketType::Request, to.remote)
        };
        let left = request
            .deadline
            .map(|deadline| deadline.saturating_since(now));
        let extension = left.map(|left| deadline_extension(left.as_nanos()));
        fast_path.write(to, &header, extension, data);
        // The slot was the only one.
        self.slots.clear_all_sendable();
        self.credits.left -= 1;
        self.congestion.on_sent(HEADER_BYTES + data.len());
        request.send.on_sent_single(now, now + self.rtt.rto(0));
        true
    }

    /// Sends as many packets as credits, rate and batch allow, a packet a slot in turn.
    pub(crate) fn transmit<R: Route>(
        &mut self,
        clock: &impl Clock,
        to: &SessionPeer<R>,
        epoch: u64,
        requests: &mut Requests,
        stats: &mut EndpointStats,
        tx: &mut TxBatch<R>,
    ) {
        if self.listing == Listing::No {
            // The list's entry is of an earlier session at this index.
            return;
        }
        self.listing = Listing::No;
        let rate = self.congestion.pacing_rate();
        if rate.is_some() {
            self.pacer.begin(clock.now());
        }
        let (kept_back, drained_until) = self.kept_back(clock, to.terms.credits);
        while self.credits.left > kept_back && self.slots.can_send() && !tx.is_full() {
            let now = clock.now();
            if rate.is_some() && self.pacer.departure() > now {
                self.pacer.wait();
                self.listing = Listing::Ready;
                requests.ready.depart_at(to.index, self.pacer.departure());
                return;
            }
            let Some(slot) = self.slots.next_sendable() else {
                break;
            };
            // At least one.
            let usable = self.credits.left - kept_back;
            let bytes = self.transmit_slot(now, to, slot, usable, epoch, requests, stats, tx);
            self.congestion.on_sent(bytes);
            if let Some(rate) = rate {
                self.pacer.on_sent(bytes, rate);
            }
        }
        if self.slots.can_send() && self.credits.left <= kept_back {
            // The next answer, or a timeout, lists the session again.
            self.note_blocked(stats);
            if let Some(until) = drained_until.filter(|_| self.credits.may_send()) {
                // So does the end of a drain slot: the answer may have to wait for its handler.
                self.listing = Listing::Drains;
                requests.ready.depart_at(to.index, until);
            }
            return;
        }
        self.mark_ready(to.index, requests);
    }

    /// Credits that cannot be used now, and until when they are more than the window says. Of one under way at least there
    /// is an answer or a timeout to wait for.
    fn kept_back(&mut self, clock: &impl Clock, granted: u16) -> (u16, Option<Instant>) {
        if !self.congestion.keeps_credits_back() {
            // And does not look at the clock.
            return (0, None);
        }
        if self.credits.left == granted && self.congestion.on_wake(clock.now()) {
            self.credits.reserve = self.congestion.reserve();
        }
        if self.credits.reserve > 0
            && let Some(until) = self.congestion.drained_until(clock.now())
        {
            return (self.credits.kept_back_but_one(granted), Some(until));
        }
        (self.credits.kept_back(), None)
    }

    /// Something is to be sent, and no credit is there for it.
    fn note_blocked(&mut self, stats: &mut EndpointStats) {
        self.congestion.on_blocked();
        if self.credits.left == 0 {
            self.credit_stalls += 1;
            stats.credit_stalls += 1;
        }
    }

    /// Sends the next packet of a slot's request, or asks for up to `usable` packets of its response. Returns the bytes that
    /// it makes the network carry: responses are paced by their requests. The first response packet is missing there: its
    /// size is known when it has come.
    #[allow(clippy::too_many_arguments)]
    fn transmit_slot<R: Route>(
        &mut self,
        now: Instant,
        to: &SessionPeer<R>,
        slot: u8,
        usable: u16,
        epoch: u64,
        requests: &mut Requests,
        stats: &mut EndpointStats,
        tx: &mut TxBatch<R>,
    ) -> usize {
        let ClientSlot {
            sequence,
            request: index,
            gave_up,
        } = *self.slots.entry(slot);
        let name = RequestNumber::new(slot, sequence);
        let request = &mut requests.table[index];
        let is_retransmission = request.send.next_is_retransmission();
        let (count, bytes) = match request.send.next_packet() {
            NextPacket::Request { number } => {
                let bytes = push_request(now, to, request, name, number, gave_up, tx);
                if is_retransmission {
                    request.send.note_retransmitted(epoch);
                }
                (1, bytes)
            }
            NextPacket::RequestForResponse { first, wanted } => {
                let may_ask_for_many = to.terms.features.has(Features::CUMULATIVE_CREDITS);
                let count = if may_ask_for_many {
                    wanted.min(u32::from(usable))
                } else {
                    1
                };
                let round = request.send.round();
                push_request_for_response(to, name, round, first, count, tx);
                (
                    count,
                    request.response_bytes(&to.terms, first..first + count),
                )
            }
        };
        if is_retransmission {
            self.retransmissions += 1;
            stats.retransmissions += 1;
        }
        let rto = self.rtt.rto(request.send.attempts());
        request
            .send
            .on_sent(now, count, to.terms.credits, now + rto);
        // `count` is at most the credits left.
        self.credits.left -= count as u16;
        if !request.send.has_more_to_send() {
            self.slots.clear_sendable(slot);
        }
        let due = request.send.due();
        requests.table.watch_at(index, due);
        bytes
    }

    /// Asks for the first response packet of a request that executes. Costs no credit: the last
    /// request packet's is still in use. The caller sends the packet with this header.
    pub(super) fn probe_busy<R: Route>(
        &mut self,
        now: Instant,
        index: u32,
        to: &SessionPeer<R>,
        interval_max: Duration,
        requests: &mut Requests,
    ) -> Header {
        let slot = requests.table[index].slot;
        let send = &mut requests.table[index].send;
        send.on_attempt(now);
        let interval = probe_interval(&self.rtt, send, now, interval_max);
        send.probe_at(now + interval);
        let header = Header {
            request: RequestNumber::new(slot, self.slots.entry(slot).sequence),
            message_bytes: 1,
            flags: Flags::of_round(send.round()),
            ..Header::new(PacketType::RequestForResponse, to.remote)
        };
        let due = send.due();
        requests.table.watch_at(index, due);
        header
    }
}

/// Returns the packet's size in bytes.
fn push_request<R: Route>(
    now: Instant,
    to: &SessionPeer<R>,
    request: &ClientRequest,
    name: RequestNumber,
    number: u32,
    gave_up: bool,
    tx: &mut TxBatch<R>,
) -> usize {
    let Some(buffers) = &request.buffers else {
        unreachable!("a request in a slot has its buffers")
    };
    let data = &buffers.request;
    let range = to.terms.data_range(data.len(), number);
    let header = Header {
        kind: request.kind,
        message_bytes: data.len() as u32,
        packet_number: number as u16,
        request: name,
        flags: Flags::of_round(request.send.round()).with_if(gave_up, Flags::GAP),
        ..Header::new(PacketType::Request, to.remote)
    };
    let extension = request
        .deadline
        .filter(|_| number == 0)
        .map(|deadline| deadline_extension(deadline.saturating_since(now).as_nanos()));
    let extension_bytes = extension.as_ref().map_or(0, |_| EXTENSION_BYTES);
    let bytes = HEADER_BYTES + extension_bytes + range.len();
    push_data(tx, to, &header, extension, data, range);
    bytes
}

fn push_request_for_response<R: Route>(
    to: &SessionPeer<R>,
    name: RequestNumber,
    round: u8,
    first: u32,
    count: u32,
    tx: &mut TxBatch<R>,
) {
    let header = Header {
        message_bytes: count,
        packet_number: first as u16,
        request: name,
        flags: Flags::of_round(round),
        ..Header::new(PacketType::RequestForResponse, to.remote)
    };
    let len = header.write_packet(to.seed, None, &[], tx.next_room());
    tx.push_written(to.route, len, to.terms.mtu);
}
