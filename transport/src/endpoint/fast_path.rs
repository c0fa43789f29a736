//! The fast path in: a request of one packet answered by a response of one packet, nothing lost.
//!
//! The session and its slot are found once, and then the handler or the completion is called, as in
//! the paper's section 5.2. The rare cases are left to the general way (`receive`), which takes every
//! packet that is not taken here. Datagrams whose time of arrival is known are such a case.

use super::Endpoint;
use super::responses::handle_of;
use crate::app::App;
use crate::backend::{Route, RxPacket};
use crate::exchange::Request;
use crate::session::Role;
use crate::time::Instant;
use crate::wire::SinglePacket;

impl<R: Route> Endpoint<R> {
    /// Takes a packet that is its whole message. False, and nothing is changed, if it must go the general way.
    #[inline(always)]
    pub(super) fn on_single(
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

    /// A new request of a slot that is not in the middle of receiving another one.
    #[inline(always)]
    fn on_single_request(
        &mut self,
        now: Instant,
        packet: &SinglePacket<'_>,
        datagram: &RxPacket<'_, R>,
        app: &mut impl App<R>,
    ) -> bool {
        let index = packet.header.session();
        let Some(session) = self.sessions.established_at(index) else {
            return false;
        };
        let (from, id) = (session.peer_of(index), session.id(index));
        let Role::Server(server) = session.role_mut() else {
            return false;
        };
        if from.route != datagram.route {
            return false;
        }
        if !server.takes_single(packet, &from, &self.responses) {
            return false;
        }
        let deadline = server.on_single_request(now, packet, datagram.ecn, &mut self.memory);
        session.prove_alive(now);
        self.counters.stats.packets_received += 1;
        let handle = handle_of(id, packet.header.request());
        let request = Request {
            session: id,
            kind: packet.header.kind(),
            data: packet.payload,
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
        let index = packet.header.session();
        let Some(session) = self.sessions.established_at(index) else {
            return false;
        };
        let from = session.peer_of(index);
        let Role::Client(client) = session.role_mut() else {
            return false;
        };
        if from.route != datagram.route {
            return false;
        }
        let (requests, counters) = (&mut self.requests, &mut self.counters);
        let Some(request) = client.single_answered(packet, &from, requests) else {
            return false;
        };
        let ecn = datagram.ecn;
        let finished =
            client.on_single_response(now, packet, ecn, request, &from, requests, counters);
        session.prove_alive(now);
        self.counters.stats.packets_received += 1;
        self.deliver(now, finished, app);
        true
    }
}
