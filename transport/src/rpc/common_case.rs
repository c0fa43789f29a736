//! The common case: a request of one packet answered by a response of one packet, nothing lost.
//!
//! One look at the session and its slot, then the call of the handler or of the completion, as in
//! the paper's section 5.2: what is rare is left to the general way (`receive`), which takes every
//! packet that is not taken here. Nothing has been changed when a function says so; what it does
//! otherwise is what the general way would do.

use super::{NO_REQUEST, ServerSlotState};
use crate::app::{App, Cx};
use crate::backend::{Route, RxPacket};
use crate::endpoint::Endpoint;
use crate::exchange::{Reply, Request, ResponseHandle};
use crate::session::{Role, SessionId, State};
use crate::time::{Duration, Instant};
use crate::wire::{Flags, SinglePacket};

impl<R: Route> Endpoint<R> {
    /// Takes a packet that is its whole message. False if it must go the general way.
    #[inline(always)]
    pub(crate) fn on_single(
        &mut self,
        now: Instant,
        packet: &SinglePacket<'_>,
        datagram: &RxPacket<'_, R>,
        app: &mut impl App<R>,
    ) -> bool {
        if packet.is_request() {
            self.on_single_request(now, packet, datagram, app)
        } else {
            self.on_single_response(now, packet, datagram, app)
        }
    }

    /// Calls the handler of a request that is complete, unless nobody waits for its answer any more.
    #[inline(always)]
    pub(crate) fn call_handler(
        &mut self,
        now: Instant,
        request: Request<'_>,
        app: &mut impl App<R>,
    ) {
        let handle = request.handle;
        if request.deadline.is_some_and(|deadline| deadline <= now) {
            return self.expire(handle.session.index, handle.slot);
        }
        self.stats.requests_executed += 1;
        let cx = &mut Cx {
            endpoint: self,
            now,
        };
        match app.on_request(cx, request) {
            // The handler may have ended the session; then nobody wants the response.
            Reply::Now(response) => drop(self.enqueue_response(now, handle, response)),
            Reply::Later => {}
        }
    }

    /// A new request of a slot that is not in the middle of receiving another one.
    #[inline(always)]
    fn on_single_request(
        &mut self,
        now: Instant,
        packet: &SinglePacket<'_>,
        datagram: &RxPacket<'_, R>,
        app: &mut impl App<R>,
    ) -> bool {
        let (number, payload) = (packet.request(), packet.payload);
        let Some(session) = self.sessions.at(packet.session()) else {
            return false;
        };
        let Role::Server(server) = &mut session.role else {
            return false;
        };
        let Some(slot) = server.slots.get_mut(usize::from(number.slot())) else {
            return false;
        };
        let fits = payload.len() <= session.terms.data_bytes().min(self.config.message_bytes);
        if session.state != State::Open
            || session.route != datagram.route
            || number.sequence() <= slot.sequence
            || slot.assembly.is_some()
            || !fits
            || !packet.verify(session.seed)
        {
            return false;
        }
        self.stats.packets_received += 1;
        session.heard_at = now;
        session.probe = None;
        let flags = packet.flags();
        let is_proof = !flags.has(Flags::GAP) || slot.sent_max == 0;
        let (previous, resent_in) = slot.begin(number, packet.kind(), payload.len() as u32, 1);
        slot.received = 1;
        slot.arrived_at = now;
        slot.round = flags.round();
        slot.ecn = datagram.ecn;
        let left = packet.deadline_ns();
        slot.deadline = left.map(|left| now.saturating_add(Duration::from_nanos(left)));
        slot.state = ServerSlotState::Executing;
        let deadline = slot.deadline;
        let session = SessionId {
            index: packet.session(),
            generation: session.generation,
        };
        let epoch = if is_proof {
            resent_in
        } else {
            self.memory.epoch()
        };
        self.memory.retire(previous, epoch);
        let handle = ResponseHandle {
            session,
            slot: number.slot(),
            sequence: number.sequence(),
        };
        let request = Request {
            session,
            kind: packet.kind(),
            data: payload,
            handle,
            deadline,
        };
        self.call_handler(now, request, app);
        true
    }

    /// The answer to a request of one packet that was sent once.
    #[inline(always)]
    fn on_single_response(
        &mut self,
        now: Instant,
        packet: &SinglePacket<'_>,
        datagram: &RxPacket<'_, R>,
        app: &mut impl App<R>,
    ) -> bool {
        let (number, payload) = (packet.request(), packet.payload);
        let Some(session) = self.sessions.at(packet.session()) else {
            return false;
        };
        let Role::Client(client) = &mut session.role else {
            return false;
        };
        let Some(slot) = client.slots.get_mut(usize::from(number.slot())) else {
            return false;
        };
        if slot.sequence != number.sequence() || slot.request == NO_REQUEST {
            return false;
        }
        let index = slot.request;
        let request = &mut self.requests[index];
        let is_single = request.is_single_in_flight();
        let Some(buffers) = &mut request.buffers else {
            return false;
        };
        if session.state != State::Open
            || session.route != datagram.route
            || !is_single
            || payload.len() > session.terms.data_bytes().min(buffers.response.capacity())
            || !packet.verify(session.seed)
        {
            return false;
        }
        self.stats.packets_received += 1;
        session.heard_at = now;
        session.probe = None;
        slot.gave_up = false;
        buffers.response.resize(payload.len());
        buffers.response.copy_from_slice(payload);
        let is_marked = datagram.ecn || packet.flags().has(Flags::ECN_ECHO);
        let is_this_round = packet.flags().round() == request.round & 0x0f;
        let sent_at = is_this_round.then_some(request.sent_at);
        client.sample_rtt(now, sent_at, packet.held(), is_marked, &mut self.rtts);
        client.completed += 1;
        client.credits += 1;
        client.give_slot_back(number.slot());
        let tag = request.tag;
        let buffers = request.buffers.take().expect("seen above");
        self.stats.requests_completed += 1;
        self.requests.release(index);
        if client.queue_first != NO_REQUEST {
            self.start_queued(packet.session());
        } else if client.becomes_ready() {
            self.ready.push(packet.session());
        }
        let cx = &mut Cx {
            endpoint: self,
            now,
        };
        app.on_completion(cx, tag, buffers.into_completion(Ok(())));
        true
    }
}
