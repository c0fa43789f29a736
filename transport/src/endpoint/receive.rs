//! From a datagram to the handler of each packet in it.

use super::Endpoint;
use super::responses::handle_of;
use crate::app::{App, Cx};
use crate::backend::{Route, RxBatch, RxPacket, likely_arrival};
use crate::config::PREFETCH_PACKETS_MAX;
use crate::exchange::Request;
use crate::keys::KeyId;
use crate::rpc::{SlotId, Then, Whole};
use crate::session::{ControlOutput, Received};
use crate::time::Duration;
use crate::time::Instant;
use crate::wire::{Features, Packet, PacketType, Seed, SinglePacket, WireError, peek, split_first};
use trine_canary as canary;

/// How long after the last suspicion of a queue the backend looks at the arrival of packets.
const ARRIVALS_FOR: Duration = Duration::from_secs(10);

impl<R: Route> Endpoint<R> {
    /// Takes received datagrams in. Handlers and completions run in here.
    pub fn on_packets(&mut self, now: Instant, rx: &mut RxBatch<'_, R>, app: &mut impl App<R>) {
        if !rx.arrivals().is_empty() {
            return self.on_timed_packets(now, rx, app);
        }
        let rx = std::mem::replace(rx, RxBatch::empty());
        for datagram in rx {
            self.on_datagram(now, &datagram, app);
        }
    }

    /// The same for datagrams whose times of arrival are known. They all go the general way, so that the fast path pays
    /// nothing for this.
    #[inline(never)]
    fn on_timed_packets(&mut self, now: Instant, rx: &mut RxBatch<'_, R>, app: &mut impl App<R>) {
        let mut arrivals = rx.arrivals().iter();
        for datagram in rx {
            let arrived_ns = arrivals.next().copied().unwrap_or(0);
            self.arrived_at = Some(likely_arrival(arrived_ns, now));
            let mut rest = datagram.bytes;
            while !rest.is_empty() {
                let sealed = match self.sessions.has_keys() {
                    true => self.on_sealed(now, rest, &datagram, app),
                    false => None,
                };
                rest = match sealed {
                    Some(after) => after,
                    None => self.on_first(now, rest, &datagram, app),
                };
            }
        }
        self.arrived_at = None;
    }

    /// Cuts a datagram into packets.
    #[inline(always)]
    fn on_datagram(&mut self, now: Instant, datagram: &RxPacket<'_, R>, app: &mut impl App<R>) {
        let mut rest = datagram.bytes;
        if self.sessions.are_many() {
            self.fetch_ahead(rest);
        }
        while !rest.is_empty() {
            if self.sessions.has_keys()
                && let Some(after) = self.on_sealed(now, rest, datagram, app)
            {
                rest = after;
                continue;
            }
            rest = match SinglePacket::cut(rest) {
                Some((packet, after)) if self.on_single(now, &packet, datagram, app) => after,
                _ => self.on_first(now, rest, datagram, app),
            };
        }
    }

    /// Begins to fetch the sessions that a datagram's packets name, then their slots: the memory's
    /// answers overlap instead of being waited for one after the other.
    #[inline(never)]
    fn fetch_ahead(&self, datagram: &[u8]) {
        let mut rest = datagram;
        for _ in 0..PREFETCH_PACKETS_MAX {
            let Some((session, _, after)) = peek(rest) else {
                break;
            };
            self.sessions.prefetch(session);
            rest = after;
        }
        rest = datagram;
        for _ in 0..PREFETCH_PACKETS_MAX {
            let Some((session, slot, after)) = peek(rest) else {
                break;
            };
            self.sessions.prefetch_slot(session, slot);
            rest = after;
        }
    }

    /// Takes in the first packet of `bytes`, of whatever kind it is. Returns the bytes after it, or
    /// nothing if it cannot be cut.
    #[inline(never)]
    fn on_first<'a>(
        &mut self,
        now: Instant,
        bytes: &'a [u8],
        datagram: &RxPacket<'_, R>,
        app: &mut impl App<R>,
    ) -> &'a [u8] {
        self.on_cut(now, split_first(bytes), datagram, app)
    }

    /// Takes in a packet, and returns the bytes after it. If it could not be cut, it is counted, and the rest is lost.
    pub(super) fn on_cut<'a>(
        &mut self,
        now: Instant,
        cut: Result<(Packet<'a>, &'a [u8]), WireError>,
        datagram: &RxPacket<'_, R>,
        app: &mut impl App<R>,
    ) -> &'a [u8] {
        match cut {
            Ok((packet, after)) => {
                self.counters.stats.packets_received += 1;
                self.on_packet(now, &packet, datagram, app);
                after
            }
            Err(error) => {
                let drops = &mut self.counters.stats.drops;
                *match error {
                    WireError::Truncated => &mut drops.truncated,
                    WireError::Version => &mut drops.version,
                    WireError::UnknownType => &mut drops.unknown_type,
                    WireError::Unsupported => &mut drops.unsupported,
                } += 1;
                &[]
            }
        }
    }

    fn on_packet(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        datagram: &RxPacket<'_, R>,
        app: &mut impl App<R>,
    ) {
        let route = datagram.route;
        let out = &mut ControlOutput::new(&mut self.control, &mut self.counters.stats);
        let ended = match packet.header.packet_type {
            // Those come unsealed. What is in them is authenticated otherwise, or not at all.
            PacketType::Notice
            | PacketType::Connect
            | PacketType::Cookie
            | PacketType::Accept
            | PacketType::Refuse
            | PacketType::Reset
                if packet.is_opened() =>
            {
                return self.end_for_violation(packet.header.session);
            }
            PacketType::Connect => {
                let holder_of = |route: &R| app.holder(route);
                let admits = |key: &KeyId| app.admits(key);
                self.sessions
                    .on_connect(now, packet, route, holder_of, admits, out)
            }
            PacketType::Notice => return self.on_notice(now, packet, app),
            PacketType::Ping => return self.sessions.on_ping(packet, route, out),
            PacketType::Disconnect => self.sessions.on_disconnect(packet, route, out),
            PacketType::Reset => self.sessions.on_reset(now, packet, route, out),
            _ => return self.on_session_packet(now, packet, datagram, app),
        };
        self.discard(ended);
    }

    /// Anybody can send it: the program judges by its body.
    fn on_notice(&mut self, now: Instant, packet: &Packet<'_>, app: &mut impl App<R>) {
        if !packet.verify(Seed::NONE) {
            self.counters.stats.drops.checksum += 1;
            return;
        }
        let (kind, body) = (packet.header.kind, packet.payload);
        if !app.on_notice(&mut Cx::new(self, now), kind, body) {
            self.counters.stats.drops.unknown_type += 1;
        }
    }

    fn on_session_packet(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        datagram: &RxPacket<'_, R>,
        app: &mut impl App<R>,
    ) {
        let (index, drops) = (packet.header.session, &mut self.counters.stats.drops);
        let Some(session) = self.sessions.at(index) else {
            drops.no_session += 1;
            return;
        };
        let peer = session.peer_of(index);
        if peer.route != datagram.route {
            drops.wrong_route += 1;
            return;
        }
        if !packet.verify(peer.seed) && !canary::planted("skipped checksum") {
            drops.checksum += 1;
            return;
        }
        let rx = Received {
            now,
            arrived_at: self.arrived_at.unwrap_or(now),
            packet,
            session: session.id(index),
            terms: peer.terms,
            ecn: datagram.ecn,
        };
        match packet.header.packet_type {
            PacketType::Request | PacketType::RequestForResponse => self.on_server_packet(&rx, app),
            PacketType::Response | PacketType::CreditReturn | PacketType::Busy => {
                self.on_client_packet(&rx, app);
            }
            _ => self.on_handshake_packet(&rx),
        }
    }

    /// A packet of a handshake, a keepalive or a teardown.
    fn on_handshake_packet(&mut self, rx: &Received<'_>) {
        let out = &mut ControlOutput::new(&mut self.control, &mut self.counters.stats);
        let ended = match rx.packet.header.packet_type {
            PacketType::Cookie => return self.sessions.on_cookie(rx, out),
            PacketType::Pong => return self.sessions.on_pong(rx, out),
            PacketType::Accept => {
                if self.sessions.on_accept(rx, out) {
                    self.start_queued(rx.session.index);
                }
                return;
            }
            PacketType::Refuse => self.sessions.on_refuse(rx, out),
            PacketType::Disconnected => self.sessions.on_disconnected(rx, out),
            _ => unreachable!("dispatched by the caller"),
        };
        self.discard(ended);
    }

    /// A packet for the client end of a session.
    fn on_client_packet(&mut self, rx: &Received<'_>, app: &mut impl App<R>) {
        let session = self.sessions.entry(rx.session.index);
        let is_open = session.is_open();
        let Some(client) = session.client().filter(|_| is_open) else {
            self.counters.stats.drops.wrong_state += 1;
            return;
        };
        let (requests, counters) = (&mut self.requests, &mut self.counters);
        let outcome = match rx.packet.header.packet_type {
            PacketType::Response => client.on_response(rx, requests, counters),
            PacketType::CreditReturn => client.on_credit_return(rx, requests, counters),
            _ => client.on_busy(rx, self.config.probe_interval_max, requests, counters),
        };
        if client.is_suspicious() {
            self.arrivals_until = rx.now + ARRIVALS_FOR;
        }
        if outcome.is_progress {
            session.prove_alive(rx.now);
        }
        if let Some(ended) = outcome.ended {
            self.complete(rx.now, rx.session.index, ended, app);
        }
    }

    /// A packet for the server end of a session.
    fn on_server_packet(&mut self, rx: &Received<'_>, app: &mut impl App<R>) {
        while let Some(place) = self.take_server_packet(rx, app) {
            self.give_way(place);
        }
    }

    /// Takes a packet for the server end of a session. Some, and nothing has happened, if its request has room only
    /// when this place has given its memory up.
    fn take_server_packet(&mut self, rx: &Received<'_>, app: &mut impl App<R>) -> Option<SlotId> {
        let index = rx.session.index;
        let stats = &mut self.counters.stats;
        let session = self.sessions.entry(index);
        let is_open = session.is_open();
        let Some(server) = session.server().filter(|_| is_open) else {
            stats.drops.wrong_state += 1;
            return None;
        };
        // The client looks for queues, and its message is long enough to make one.
        if rx.terms.features.has(Features::ANSWER_TIMES)
            && (rx.packet.header.message_bytes as usize > rx.terms.data_bytes()
                || rx.packet.header.packet_type == PacketType::RequestForResponse)
        {
            self.arrivals_until = rx.now + ARRIVALS_FOR;
        }
        let responses = &mut self.responses;
        let outcome = match rx.packet.header.packet_type {
            PacketType::Request => server.on_request(rx, &mut self.memory, responses, stats),
            _ => server.on_request_for_response(rx, responses, &mut stats.drops),
        };
        if outcome.is_progress {
            session.prove_alive(rx.now);
        }
        if let Some(at) = outcome.scan_at {
            self.sessions.wake_at(index, at);
        }
        match outcome.then {
            Then::Nothing => {}
            Then::EndSession(reason) => self.end_for(reason, index),
            Then::MakeRoom(place) => return Some(place),
            Then::Call(whole) => self.call_handler_of(rx, &whole, app),
        }
        None
    }

    /// Calls the handler of a request that this packet has completed.
    fn call_handler_of(&mut self, rx: &Received<'_>, whole: &Whole, app: &mut impl App<R>) {
        let request = Request {
            session: rx.session,
            kind: whole.kind,
            data: whole.assembly.as_deref().unwrap_or(rx.packet.payload),
            handle: handle_of(rx.session, rx.packet.header.request),
            deadline: whole.deadline,
        };
        self.call_handler(rx.now, request, app);
    }
}
