//! From a datagram to the handler of each packet in it.

use super::NO_REQUEST;
use crate::app::App;
use crate::backend::{Route, RxBatch, RxPacket};
use crate::config::PREFETCH_PACKETS_MAX;
use crate::endpoint::Endpoint;
use crate::session::State;
use crate::time::Instant;
use crate::wire::{Packet, PacketType, SinglePacket, WireError, peek, split_first};
use trine_canary as canary;

/// A packet that belongs to a session: its route and checksum are right.
pub(crate) struct Received<'a> {
    pub(crate) now: Instant,
    pub(crate) packet: &'a Packet<'a>,
    pub(crate) session: u16,
    pub(crate) ecn: bool,
}

impl<R: Route> Endpoint<R> {
    /// Takes received datagrams in. Handlers and completions run in here.
    pub fn on_packets(&mut self, now: Instant, rx: &mut RxBatch<'_, R>, app: &mut impl App<R>) {
        let rx = std::mem::replace(rx, RxBatch::empty());
        for datagram in rx {
            self.on_datagram(now, &datagram, app);
        }
    }

    /// Cuts a datagram into packets.
    #[inline(always)]
    pub(crate) fn on_datagram(
        &mut self,
        now: Instant,
        datagram: &RxPacket<'_, R>,
        app: &mut impl App<R>,
    ) {
        let mut rest = datagram.bytes;
        if self.sessions.are_many() {
            self.fetch_ahead(rest);
        }
        while !rest.is_empty() {
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

    /// Takes in the first packet of `bytes`, of whatever kind it is. Returns what lies behind it, or
    /// nothing if it cannot be cut.
    #[inline(never)]
    fn on_first<'a>(
        &mut self,
        now: Instant,
        bytes: &'a [u8],
        datagram: &RxPacket<'_, R>,
        app: &mut impl App<R>,
    ) -> &'a [u8] {
        match split_first(bytes) {
            Ok((packet, after)) => {
                self.stats.packets_received += 1;
                self.on_packet(now, &packet, datagram.route, datagram.ecn, app);
                after
            }
            Err(error) => {
                let drops = &mut self.stats.drops;
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
        route: R,
        ecn: bool,
        app: &mut impl App<R>,
    ) {
        match packet.header.packet_type {
            PacketType::Connect => self.on_connect(now, packet, route),
            PacketType::Ping => self.on_ping(packet, route),
            PacketType::Disconnect => self.on_disconnect(packet, route),
            PacketType::Reset => self.on_reset(packet, route),
            _ => self.on_session_packet(now, packet, route, ecn, app),
        }
    }

    fn on_session_packet(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        route: R,
        ecn: bool,
        app: &mut impl App<R>,
    ) {
        let index = packet.header.session;
        let Some(session) = self.sessions.at(index) else {
            self.stats.drops.no_session += 1;
            return;
        };
        if session.route != route {
            self.stats.drops.wrong_route += 1;
            return;
        }
        if !packet.verify(session.seed) && !canary::planted("skipped checksum") {
            self.stats.drops.checksum += 1;
            return;
        }
        let rx = Received {
            now,
            packet,
            session: index,
            ecn,
        };
        match packet.header.packet_type {
            PacketType::Request => self.on_request(&rx, app),
            PacketType::Response => self.on_response(&rx, app),
            PacketType::CreditReturn => self.on_credit_return(&rx),
            PacketType::RequestForResponse => self.on_request_for_response(&rx),
            PacketType::Busy => self.on_busy(&rx),
            PacketType::Cookie => self.on_cookie(&rx),
            PacketType::Accept => self.on_accept(&rx),
            PacketType::Refuse => self.on_refuse(&rx),
            PacketType::Disconnected => self.on_disconnected(&rx),
            PacketType::Pong => self.on_pong(&rx),
            PacketType::Connect | PacketType::Ping | PacketType::Disconnect | PacketType::Reset => {
                unreachable!("dispatched above")
            }
        }
    }

    /// The request in flight that a server's packet answers; counts what answers none.
    pub(crate) fn answered_request(&mut self, rx: &Received<'_>) -> Option<u32> {
        let number = rx.packet.header.request;
        let session = &mut self.sessions[rx.session];
        let is_open = session.state == State::Open;
        let Some(client) = session.client().filter(|_| is_open) else {
            self.stats.drops.wrong_state += 1;
            return None;
        };
        let Some(slot) = client.slots.get(usize::from(number.slot())) else {
            self.stats.drops.bad_number += 1;
            return None;
        };
        let is_of_slot =
            slot.sequence == number.sequence() || canary::planted("response to a reused slot");
        if is_of_slot && slot.request != NO_REQUEST {
            return Some(slot.request);
        }
        if number.sequence() <= slot.sequence {
            self.stats.drops.past += 1;
        } else {
            self.stats.drops.bad_number += 1;
        }
        None
    }
}
