//! REQUEST: a part of a request, received by the server end. The handler runs when it is complete.

use std::cmp::Ordering;

use super::{Answer, Received, ServerSlotState, What};
use crate::app::{App, Cx, Reply, Request, ResponseHandle};
use crate::backend::Route;
use crate::buf::MsgBuf;
use crate::endpoint::Endpoint;
use crate::session::{SessionId, State};
use crate::time::Duration;
use crate::wire::Features;

impl<R: Route> Endpoint<R> {
    pub(crate) fn on_request(&mut self, rx: &Received<'_>, app: &mut impl App<R>) {
        if !self.request_is_sane(rx) {
            return;
        }
        let header = &rx.packet.header;
        let sequence = header.request.sequence();
        let Some(slot) = self.sessions.server_slot(rx.session, header.request.slot()) else {
            return;
        };
        match sequence.cmp(&slot.sequence) {
            Ordering::Less => {
                self.stats.drops.past += 1;
                return;
            }
            Ordering::Equal => {}
            Ordering::Greater => self.begin_request(rx),
        }
        let Some(slot) = self.sessions.server_slot(rx.session, header.request.slot()) else {
            return;
        };
        if slot.message_bytes != header.message_bytes || slot.kind != header.kind {
            self.stats.drops.bad_number += 1;
            return self.violation(rx.session);
        }
        match slot.state {
            ServerSlotState::Receiving => self.receive_request(rx, app),
            ServerSlotState::Executing | ServerSlotState::Answered => self.on_duplicate(rx),
            ServerSlotState::Expired => self.stats.drops.past += 1,
        }
    }

    /// Checks a packet against limits and terms. A peer that breaks them loses its session.
    fn request_is_sane(&mut self, rx: &Received<'_>) -> bool {
        let header = &rx.packet.header;
        let (bytes, number) = (
            header.message_bytes as usize,
            u32::from(header.packet_number),
        );
        let limit = self.config.message_bytes;
        let session = &mut self.sessions[rx.session];
        let terms = session.terms;
        let is_open = session.state == State::Open;
        if !is_open || session.server().is_none() {
            self.stats.drops.wrong_state += 1;
            return false;
        }
        if bytes > limit {
            self.stats.drops.too_large += 1;
            self.violation(rx.session);
            return false;
        }
        let fits = header.request.slot() < terms.slots
            && header.request.sequence() > 0
            && number < terms.packets(bytes)
            && terms.data_range(bytes, number).len() == rx.packet.payload.len();
        if !fits {
            self.stats.drops.bad_number += 1;
            self.violation(rx.session);
        }
        fits
    }

    /// A new request takes the slot; with it the client says that it is done with the previous one.
    fn begin_request(&mut self, rx: &Received<'_>) {
        let header = &rx.packet.header;
        let terms = self.sessions[rx.session].terms;
        let Some(slot) = self.sessions.server_slot(rx.session, header.request.slot()) else {
            return;
        };
        let resent_in = slot.resent_in;
        let (assembly, response) = slot.begin(header.request.sequence());
        slot.kind = header.kind;
        slot.message_bytes = header.message_bytes;
        slot.request_packets = terms.packets(header.message_bytes as usize);
        self.assembly_bytes -= assembly.map_or(0, |buffer| buffer.len());
        self.retire(response, resent_in);
    }

    fn receive_request(&mut self, rx: &Received<'_>, app: &mut impl App<R>) {
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
            slot.deadline = rx
                .packet
                .deadline_ns
                .map(|left| rx.now.saturating_add(Duration::from_nanos(left)));
        }
        if packets > 1 && !self.store_part(rx) {
            self.stats.drops.no_memory += 1;
            return;
        }
        let Some(slot) = self.sessions.server_slot(rx.session, header.request.slot()) else {
            return;
        };
        slot.received += 1;
        if slot.received < packets {
            return self.return_credit(rx);
        }
        self.execute(rx, app);
    }

    /// Copies a part of a larger request to its place. False if there is no memory for the whole.
    fn store_part(&mut self, rx: &Received<'_>) -> bool {
        let header = &rx.packet.header;
        let bytes = header.message_bytes as usize;
        let (pool, budget) = (
            self.pool.clone(),
            self.config.assembly_bytes - self.assembly_bytes,
        );
        let terms = self.sessions[rx.session].terms;
        let Some(slot) = self.sessions.server_slot(rx.session, header.request.slot()) else {
            return false;
        };
        if slot.assembly.is_none() {
            slot.assembly = if bytes <= budget {
                pool.alloc(bytes)
            } else {
                None
            };
            self.assembly_bytes += if slot.assembly.is_some() { bytes } else { 0 };
        }
        let range = terms.data_range(bytes, u32::from(header.packet_number));
        if let Some(assembly) = &mut slot.assembly {
            assembly[range].copy_from_slice(rx.packet.payload);
        }
        slot.assembly.is_some()
    }

    /// All of the request is here: the one call of its handler.
    fn execute(&mut self, rx: &Received<'_>, app: &mut impl App<R>) {
        let header = &rx.packet.header;
        let generation = self.sessions[rx.session].generation;
        let Some(slot) = self.sessions.server_slot(rx.session, header.request.slot()) else {
            return;
        };
        slot.arrived_at = rx.now;
        slot.round = header.flags.round();
        slot.ecn = rx.ecn;
        let (kind, deadline, assembly) = (slot.kind, slot.deadline, slot.assembly.take());
        self.assembly_bytes -= assembly.as_ref().map_or(0, |buffer| buffer.len());
        if deadline.is_some_and(|deadline| deadline <= rx.now) {
            slot.state = ServerSlotState::Expired;
            self.stats.requests_expired += 1;
            return;
        }
        slot.state = ServerSlotState::Executing;
        self.stats.requests_executed += 1;
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
        match app.on_request(
            &mut Cx {
                endpoint: self,
                now: rx.now,
            },
            request,
        ) {
            // The handler may have ended the session; then nobody wants the response.
            Reply::Now(response) => drop(self.enqueue_response(rx.now, handle, response)),
            Reply::Later => {}
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
            _ => self.answer(rx, What::Response { first: 0, count: 1 }),
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

    /// Keeps a response's memory until no transmission refers to it.
    pub(crate) fn retire(&mut self, response: Option<MsgBuf>, resent_in: u64) {
        if let Some(response) = response
            && !self.tx_copies
            && resent_in > self.flushed_epoch
        {
            self.retired.push((response, resent_in));
        }
    }
}
