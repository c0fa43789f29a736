//! REQUEST: a part of a request, received by the server end. The handler runs when it is complete.

use std::cmp::Ordering;

use super::server_end::MOVED;
use super::{Answer, Received, ServerSlotState, What};
use crate::app::App;
use crate::backend::Route;
use crate::endpoint::Endpoint;
use crate::exchange::{Request, ResponseHandle};
use crate::session::{SessionId, State, Terms};
use crate::time::{Duration, Instant};
use crate::wire::{Features, Flags, Packet};
use trine_canary as canary;

impl<R: Route> Endpoint<R> {
    pub(crate) fn on_request(&mut self, rx: &Received<'_>, app: &mut impl App<R>) {
        let header = &rx.packet.header;
        let limit = self.config.message_bytes;
        let session = &mut self.sessions[rx.session];
        let (terms, is_open) = (session.terms, session.state == State::Open);
        let Some(server) = session.server().filter(|_| is_open) else {
            self.stats.drops.wrong_state += 1;
            return;
        };
        let Some(packets) = packets_if_sane(rx.packet, &terms, limit) else {
            let is_too_large = header.message_bytes as usize > limit;
            self.stats.drops.too_large += u64::from(is_too_large);
            self.stats.drops.bad_number += u64::from(!is_too_large);
            return self.violation(rx.session);
        };
        let slot = &mut server.slots[usize::from(header.request.slot())];
        match header.request.sequence().cmp(&slot.sequence) {
            Ordering::Less => {
                self.stats.drops.past += 1;
                return;
            }
            // The client says with a new request that it is done with the slot's previous one, and
            // unless it gave that up, that the response has come.
            Ordering::Greater => {
                self.memory.end_assembly(slot.assembly.take().as_ref());
                let is_proof = !header.flags.has(Flags::GAP) || slot.sent_max == 0;
                let (response, resent_in) =
                    slot.begin(header.request, header.kind, header.message_bytes, packets);
                let epoch = if is_proof {
                    resent_in
                } else {
                    self.memory.epoch()
                };
                self.memory.retire(response, epoch);
            }
            Ordering::Equal if !slot.agrees_with(header) => {
                self.stats.drops.bad_number += 1;
                return self.violation(rx.session);
            }
            Ordering::Equal => {}
        }
        let Some(slot) = self.sessions.server_slot(rx.session, header.request.slot()) else {
            return;
        };
        match slot.state {
            ServerSlotState::Receiving if packets == 1 => {
                slot.received = 1;
                slot.deadline = deadline_of(rx);
                self.execute(rx, app);
            }
            ServerSlotState::Receiving => self.receive_part(rx, app),
            ServerSlotState::Answered if packets == 1 && canary::planted("handler run twice") => {
                self.execute(rx, app);
            }
            ServerSlotState::Executing | ServerSlotState::Answered => self.on_duplicate(rx),
            ServerSlotState::Expired => self.stats.drops.past += 1,
            ServerSlotState::GivenUp => self.violation(rx.session),
        }
    }

    /// Takes a part of a request of several packets, if it is the next one.
    fn receive_part(&mut self, rx: &Received<'_>, app: &mut impl App<R>) {
        let header = &rx.packet.header;
        let number = u32::from(header.packet_number);
        let Some(slot) = self.sessions.server_slot(rx.session, header.request.slot()) else {
            return;
        };
        let (received, packets) = (slot.received, slot.request_packets);
        if number > received {
            self.stats.drops.reordered += 1;
            // Numbers up to the 16-bit packet number.
            return self.answer(rx, What::Gap(received as u16));
        }
        if number < received {
            self.stats.drops.past += 1;
            return self.answer(rx, What::CreditReturn(received as u16 - 1));
        }
        if number == 0 {
            slot.deadline = deadline_of(rx);
        }
        if !self.store_part(rx) {
            self.stats.drops.no_memory += 1;
            self.memory
                .note_shortage(rx.now, self.config.hold_timeout * 2);
            return;
        }
        if received + 1 < packets {
            return self.return_credit(rx);
        }
        self.execute(rx, app);
    }

    /// Copies a part of a larger request to its place. False if there is no memory for the whole.
    fn store_part(&mut self, rx: &Received<'_>) -> bool {
        let header = &rx.packet.header;
        let bytes = header.message_bytes as usize;
        let terms = self.sessions[rx.session].terms;
        let Some(slot) = self.sessions.server_slot(rx.session, header.request.slot()) else {
            return false;
        };
        if slot.assembly.is_none() {
            slot.assembly = self.memory.begin_assembly(bytes);
        }
        let Some(assembly) = &mut slot.assembly else {
            return false;
        };
        let range = terms.data_range(bytes, u32::from(header.packet_number));
        assembly[range].copy_from_slice(rx.packet.payload);
        slot.received += 1;
        self.hold(rx.now, rx.session);
        self.sessions[rx.session].prove_alive(rx.now);
        true
    }

    /// All of the request is here: the one call of its handler.
    fn execute(&mut self, rx: &Received<'_>, app: &mut impl App<R>) {
        let header = &rx.packet.header;
        let session = &mut self.sessions[rx.session];
        session.prove_alive(rx.now);
        let generation = session.generation;
        let Some(slot) = self.sessions.server_slot(rx.session, header.request.slot()) else {
            return;
        };
        slot.arrived_at = rx.now;
        slot.round = header.flags.round();
        slot.ecn = rx.ecn;
        let (kind, deadline, assembly) = (slot.kind, slot.deadline, slot.assembly.take());
        slot.state = ServerSlotState::Executing;
        slot.seen_at_look = MOVED;
        if let Some(assembly) = &assembly {
            self.memory.end_assembly(Some(assembly));
            self.finished_what_it_began(rx.session);
        }
        let session = SessionId {
            index: rx.session,
            generation,
        };
        let handle = ResponseHandle {
            session,
            slot: header.request.slot(),
            sequence: header.request.sequence(),
        };
        let data = assembly.as_deref().unwrap_or(rx.packet.payload);
        let request = Request {
            session,
            kind,
            data,
            handle,
            deadline,
        };
        self.call_handler(rx.now, request, app);
    }

    /// Nobody waits any more for the answer to a request that is complete.
    pub(crate) fn expire(&mut self, session: u16, slot: u8) {
        self.stats.requests_expired += 1;
        if let Some(slot) = self.sessions.server_slot(session, slot) {
            slot.state = ServerSlotState::Expired;
        }
    }

    /// A packet of a request that is complete: something that we sent was lost, or it came twice.
    fn on_duplicate(&mut self, rx: &Received<'_>) {
        let header = &rx.packet.header;
        let Some(slot) = self.sessions.server_slot(rx.session, header.request.slot()) else {
            return;
        };
        let last = slot.request_packets - 1;
        self.stats.drops.past += 1;
        if u32::from(header.packet_number) < last {
            return self.answer(rx, What::CreditReturn(last as u16 - 1));
        }
        if slot.round != header.flags.round() {
            // The holding time counts from the transmission that the answer's round names.
            slot.round = header.flags.round();
            slot.arrived_at = rx.now;
        }
        match slot.state {
            ServerSlotState::Executing => self.answer(rx, What::Busy),
            _ => {
                slot.seen_at_look = MOVED;
                self.answer(rx, What::Response { first: 0, count: 1 });
            }
        }
    }

    /// Returns the credit of a request packet that is not the last. With cumulative returns a
    /// return that still waits to be sent is raised instead.
    fn return_credit(&mut self, rx: &Received<'_>) {
        let header = &rx.packet.header;
        let what = What::CreditReturn(header.packet_number);
        let session = &self.sessions[rx.session];
        let (generation, features) = (session.generation, session.terms.features);
        let Some(slot) = self.sessions.server_slot(rx.session, header.request.slot()) else {
            return;
        };
        if features.has(Features::CUMULATIVE_CREDITS)
            && let Some(waiting) = self.answers.at_place(slot.credit_return)
            && matches!(waiting.what, What::CreditReturn(_))
            && waiting.session == rx.session
            && waiting.generation == generation
            && waiting.slot == header.request.slot()
            && waiting.sequence == header.request.sequence()
        {
            waiting.what = what;
            waiting.round = header.flags.round();
            waiting.ecn |= rx.ecn;
            return;
        }
        self.answer(rx, what);
        let place = self.answers.last_place();
        if let Some(slot) = self.sessions.server_slot(rx.session, header.request.slot()) {
            slot.credit_return = place;
        }
    }

    /// Queues the answer to a packet.
    pub(crate) fn answer(&mut self, rx: &Received<'_>, what: What) {
        let header = &rx.packet.header;
        let answer = Answer {
            session: rx.session,
            generation: self.sessions[rx.session].generation,
            slot: header.request.slot(),
            round: header.flags.round(),
            ecn: rx.ecn,
            sequence: header.request.sequence(),
            what,
        };
        if !self.answers.push(answer) {
            self.stats.drops.answers_full += 1;
        }
    }
}

/// The request's packets, if this one keeps to the session's terms and the limits. A peer that
/// does not loses its session.
#[inline]
fn packets_if_sane(packet: &Packet<'_>, terms: &Terms, limit: usize) -> Option<u32> {
    let header = &packet.header;
    let (bytes, number) = (
        header.message_bytes as usize,
        u32::from(header.packet_number),
    );
    let packets = terms.packets(bytes);
    let is_sane = bytes <= limit
        && header.request.slot() < terms.slots
        && header.request.sequence() > 0
        && number < packets
        && terms.data_range(bytes, number).len() == packet.payload.len();
    is_sane.then_some(packets)
}

fn deadline_of(rx: &Received<'_>) -> Option<Instant> {
    let left = rx.packet.deadline_ns?;
    Some(rx.now.saturating_add(Duration::from_nanos(left)))
}
