//! What goes out, in this order: control packets, the server ends' answers, the client ends' packets.

use std::ops::Range;

use super::{Answer, ClientEnd, ClientRequest, Control, ServerSlotState, What};
use crate::backend::{Body as TxBody, Route, TxBatch};
use crate::buf::MsgBuf;
use crate::endpoint::Endpoint;
use crate::session::{Role, Session, State};
use crate::stats::EndpointStats;
use crate::time::{Clock, Instant};
use crate::wire::{
    Body, EXTENSION_BYTES, Features, Flags, Header, Held, PacketType, RequestNumber, Seed,
    deadline_extension,
};

impl<R: Route> Endpoint<R> {
    /// Queues a control packet. A full queue loses it, as the wire might.
    pub(crate) fn send_control(
        &mut self,
        route: R,
        header: Header,
        seed: Seed,
        body: Option<Body>,
    ) {
        let packet = Control {
            route,
            header,
            seed,
            body,
        };
        self.control.push(packet, &mut self.stats.drops);
    }

    pub(crate) fn transmit_answers(&mut self, clock: &impl Clock, tx: &mut TxBatch<R>) {
        while !tx.is_full() {
            let Some(answer) = self.answers.front() else {
                return;
            };
            let answer = *answer;
            match self.transmit_answer(clock, &answer, tx) {
                None => self.answers.pop_front(),
                // The batch is full in the middle of a range.
                Some(rest) => {
                    if let Some(front) = self.answers.front() {
                        front.what = rest;
                    }
                }
            }
        }
    }

    /// Sends an answer. Returns what is left of it.
    fn transmit_answer(
        &mut self,
        clock: &impl Clock,
        answer: &Answer,
        tx: &mut TxBatch<R>,
    ) -> Option<What> {
        let session = self.sessions.at(answer.session)?;
        if session.generation != answer.generation || session.state != State::Open {
            return None;
        }
        let flags = Flags::of_round(answer.round).with_if(answer.ecn, Flags::ECN_ECHO);
        let header = |packet_type, number, flags| Header {
            packet_number: number,
            flags,
            request: RequestNumber::new(answer.slot, answer.sequence),
            ..Header::new(packet_type, session.remote)
        };
        let header = match answer.what {
            What::CreditReturn(number) => header(PacketType::CreditReturn, number, flags),
            What::Gap(number) => header(PacketType::CreditReturn, number, flags.with(Flags::GAP)),
            What::Busy => {
                self.stats.busy_sent += 1;
                header(PacketType::Busy, 0, flags)
            }
            What::Response { first, count } => {
                let header = header(PacketType::Response, first, flags);
                return self.transmit_response(clock, answer, header, count, tx);
            }
        };
        let len = header.write_packet(session.seed, None, &[], tx.next_room());
        tx.push_written(session.route, len);
        None
    }

    /// Sends `count` response packets beginning with the header's. Returns those that are left.
    fn transmit_response(
        &mut self,
        clock: &impl Clock,
        answer: &Answer,
        mut header: Header,
        count: u16,
        tx: &mut TxBatch<R>,
    ) -> Option<What> {
        let session = &mut self.sessions[answer.session];
        let (terms, seed, route) = (session.terms, session.seed, session.route);
        let slot = session.server()?.slots.get_mut(usize::from(answer.slot))?;
        if slot.sequence != answer.sequence || slot.state != ServerSlotState::Answered {
            return None;
        }
        let response = slot.response.as_ref()?;
        header.message_bytes = response.len() as u32;
        let end = header.packet_number.saturating_add(count);
        while header.packet_number < end {
            if tx.is_full() {
                let (first, count) = (header.packet_number, end - header.packet_number);
                return Some(What::Response { first, count });
            }
            let number = u32::from(header.packet_number);
            let range = terms.data_range(response.len(), number);
            header.held = match number {
                0 => Held::from_duration(clock.now().saturating_since(slot.arrived_at)),
                _ => Held::NOT_HELD,
            };
            if number < slot.sent_max {
                slot.resent_in = self.memory.epoch();
                self.stats.retransmissions += 1;
            }
            slot.sent_max = slot.sent_max.max(number + 1);
            push_data(tx, route, &header, seed, None, response, range);
            header.packet_number += 1;
        }
        None
    }

    pub(crate) fn transmit_requests(&mut self, clock: &impl Clock, tx: &mut TxBatch<R>) {
        while !tx.is_full() {
            let Some(index) = self.ready.pop() else {
                return;
            };
            self.transmit_session(clock, index, tx);
        }
    }

    /// Sends what a session's credits, its rate and the batch allow, a packet a slot in turn.
    fn transmit_session(&mut self, clock: &impl Clock, index: u16, tx: &mut TxBatch<R>) {
        let session = &mut self.sessions[index];
        let wire = Wire::of(session);
        let Role::Client(client) = &mut session.role else {
            return;
        };
        if !client.is_ready {
            // The list's entry is of an earlier session at this index.
            return;
        }
        client.is_ready = false;
        let rate = client.congestion.pacing_rate();
        if rate.is_some() {
            client.pacer.begin(clock.now());
        }
        while client.credits > 0 && client.sendable != 0 && !tx.is_full() {
            let now = clock.now();
            if rate.is_some() && client.pacer.departure() > now {
                client.pacer.is_waiting = true;
                client.is_ready = true;
                self.ready.depart_at(index, client.pacer.departure());
                return;
            }
            let Some(slot) = client.next_sendable() else {
                break;
            };
            let place = client.slots[usize::from(slot)];
            let request = &mut self.requests[place.request];
            let number = RequestNumber::new(slot, place.sequence);
            let bytes = wire.transmit(
                now,
                client,
                request,
                number,
                self.memory.epoch(),
                &mut self.stats,
                tx,
            );
            if let Some(rate) = rate {
                client.pacer.on_sent(bytes, rate);
            }
            if !request.has_more_to_send() {
                client.sendable &= !(1 << slot);
            }
            let due = request.due;
            self.requests.watch(place.request, due);
        }
        if client.sendable != 0 && client.credits == 0 {
            client.credit_stalls += 1;
            self.stats.credit_stalls += 1;
        }
        self.mark_ready(index);
    }
}

/// What all packets of a session have in common.
struct Wire<R> {
    route: R,
    seed: Seed,
    remote: u16,
    terms: crate::session::Terms,
}

impl<R: Route> Wire<R> {
    fn of(session: &Session<R>) -> Self {
        Self {
            route: session.route,
            seed: session.seed,
            remote: session.remote,
            terms: session.terms,
        }
    }

    /// Sends a request's next packet: request data first, then requests for response packets.
    /// Returns the bytes that it makes the network carry: responses are paced by their requests.
    #[allow(clippy::too_many_arguments)]
    fn transmit(
        &self,
        now: Instant,
        client: &mut ClientEnd,
        request: &mut ClientRequest,
        name: RequestNumber,
        epoch: u64,
        stats: &mut EndpointStats,
        tx: &mut TxBatch<R>,
    ) -> usize {
        let number = request.sent;
        let count = if number < request.request_packets {
            let gave_up = client.slots[usize::from(name.slot())].gave_up;
            self.push_request(now, request, name, gave_up, tx);
            if number < request.sent_max {
                request.resent_in = epoch;
            }
            1
        } else {
            let wanted = request.packets() - number;
            let may_ask_for_many = self.terms.features.has(Features::CUMULATIVE_CREDITS);
            let count = if may_ask_for_many {
                wanted.min(u32::from(client.credits))
            } else {
                1
            };
            self.push_request_for_response(request, name, count, tx);
            count
        };
        if number < request.sent_max {
            client.retransmissions += 1;
            stats.retransmissions += 1;
        }
        if request.in_flight() == 0 {
            request.due = now + client.rtt.rto(request.attempts);
        }
        for number in number..number + count {
            request.stamp(number, now);
        }
        request.sent_at = now;
        request.sent += count;
        request.sent_max = request.sent_max.max(request.sent);
        // `count` is at most the credits left.
        client.credits -= count as u16;
        count as usize * usize::from(self.terms.mtu)
    }

    fn push_request(
        &self,
        now: Instant,
        request: &ClientRequest,
        name: RequestNumber,
        gave_up: bool,
        tx: &mut TxBatch<R>,
    ) {
        let Some(buffers) = &request.buffers else {
            unreachable!("a request in a slot has its buffers")
        };
        let data = &buffers.request;
        let range = self.terms.data_range(data.len(), request.sent);
        let header = Header {
            kind: request.kind,
            message_bytes: data.len() as u32,
            packet_number: request.sent as u16,
            request: name,
            flags: Flags::of_round(request.round).with_if(gave_up, Flags::GAP),
            ..Header::new(PacketType::Request, self.remote)
        };
        let extension = request
            .deadline
            .filter(|_| request.sent == 0)
            .map(|deadline| deadline_extension(deadline.saturating_since(now).as_nanos()));
        push_data(tx, self.route, &header, self.seed, extension, data, range);
    }

    fn push_request_for_response(
        &self,
        request: &ClientRequest,
        name: RequestNumber,
        count: u32,
        tx: &mut TxBatch<R>,
    ) {
        let header = Header {
            message_bytes: count,
            packet_number: (request.sent - request.request_packets + 1) as u16,
            request: name,
            flags: Flags::of_round(request.round),
            ..Header::new(PacketType::RequestForResponse, self.remote)
        };
        let len = header.write_packet(self.seed, None, &[], tx.next_room());
        tx.push_written(self.route, len);
    }
}

/// Adds a packet with a part of a message: written into the batch if it is short, else referred to.
#[inline(always)]
fn push_data<R: Route>(
    tx: &mut TxBatch<R>,
    route: R,
    header: &Header,
    seed: Seed,
    extension: Option<[u8; EXTENSION_BYTES]>,
    message: &MsgBuf,
    range: Range<usize>,
) {
    if range.len() <= TxBatch::<R>::COPY_MAX {
        let len = header.write_packet(seed, extension, &message[range], tx.next_room());
        return tx.push_written(route, len);
    }
    let head = header.write(seed, extension, &message[range.clone()]);
    tx.push(route, &head, TxBody::Message(message, range));
}
