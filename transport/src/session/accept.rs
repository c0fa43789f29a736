//! The server's side of the handshake: nothing is remembered before the cookie has come back.

use super::half_open::Wanted;
use super::names::ServerEndName;
use super::refuse::refuse;
use super::seal::Seal;
use super::secret::cookie_period;
use super::{
    ControlOutput, DownReason, Ended, Event, Handshake, Holder, Identity, Role, Session, SessionId,
    SessionInput, SessionState, Sessions, Terms,
};
use crate::backend::Route;
use crate::config::{MTU_MIN, SLOTS_MAX};
use crate::keys::KeyId;
use crate::rpc::ServerEnd;
use crate::time::Instant;
use crate::wire::{
    Accept, BadTerm, Connect, Cookie, Features, Header, Packet, PacketType, Probe, RefuseReason,
    RequestNumber, Seed, VERSION,
};

impl<R: Route> Sessions<R> {
    /// A peer wants a session. Returns the one that gave way to it.
    pub(crate) fn on_connect(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        route: R,
        holder_of: impl FnOnce(&R) -> Holder,
        admits: impl FnOnce(&KeyId) -> bool,
        out: &mut ControlOutput<'_, R>,
    ) -> Option<Ended> {
        let (connect, after) = self.wanted_session(now, packet, route, out)?;
        match self.consider_keys(now, route, &connect, after, admits, out) {
            Wanted::Done => None,
            Wanted::Unsealed => self.accept(now, route, &connect, holder_of(&route), out),
        }
    }

    /// The session that a CONNECT asks for, if it is to be made. All else is answered here.
    fn wanted_session<'a>(
        &mut self,
        now: Instant,
        packet: &Packet<'a>,
        route: R,
        out: &mut ControlOutput<'_, R>,
    ) -> Option<(Connect, &'a [u8])> {
        if !packet.verify(Seed::NONE) {
            out.stats.drops.checksum += 1;
            return None;
        }
        // A nonce of 0 names no session, so the answer could not be told from others.
        let connect = Connect::read(packet.payload);
        let connect = connect.filter(|(connect, _)| connect.nonce != 0);
        let Some((connect, after)) = connect else {
            out.stats.drops.handshake += 1;
            return None;
        };
        if packet.header.version != VERSION {
            out.stats.drops.version += 1;
            let version = u64::from(VERSION);
            refuse(route, &connect, RefuseReason::Version, version, out);
            return None;
        }
        self.table.ended.advance(cookie_period(now));
        if !self.secret.cookie_is_good(now, &route, &connect) {
            self.send_cookie(now, route, &connect, out);
            return None;
        }
        // After the cookie: the sender is where it says it is, and nobody else gets this answer.
        if let Some((term, nearest)) = bad_term(&connect) {
            out.stats.drops.handshake += 1;
            refuse(route, &connect, RefuseReason::Terms(term), nearest, out);
            return None;
        }
        let name = self.name_of(&connect);
        if name.is_sealed && self.accept_half_again(route, &connect, out) {
            return None;
        }
        if let Some(index) = self.table.named(name) {
            self.accept_again(index, route, &connect, out);
            return None;
        }
        if self.table.ended.contains(&name) {
            // A duplicate that comes after its session's end: the packets of that session would be
            // good again, and their requests would run again.
            out.stats.drops.handshake += 1;
            return None;
        }
        let (ours, theirs) = (self.identity.cluster, connect.cluster);
        if ours != 0 && theirs != 0 && ours != theirs {
            refuse(route, &connect, RefuseReason::Cluster, ours, out);
            return None;
        }
        Some((connect, after))
    }

    /// The name that a session has which a CONNECT asks for.
    fn name_of(&self, connect: &Connect) -> ServerEndName {
        ServerEndName {
            nonce: connect.nonce,
            is_sealed: self.has_keys() && connect.features.has(Features::SEALED),
        }
    }

    fn send_cookie(
        &mut self,
        now: Instant,
        route: R,
        connect: &Connect,
        out: &mut ControlOutput<'_, R>,
    ) {
        out.stats.drops.cookie += u64::from(connect.cookie != 0);
        let cookie = Cookie {
            cookie: self.secret.cookie(now, &route, connect),
        };
        let header = Header::new(PacketType::Cookie, connect.client_session);
        let seed = Seed::of_nonce(connect.nonce);
        out.send(route, header, seed, Some(cookie.write()));
    }

    fn accept(
        &mut self,
        now: Instant,
        route: R,
        connect: &Connect,
        holder: Holder,
        out: &mut ControlOutput<'_, R>,
    ) -> Option<Ended> {
        let terms = self.terms_for(now, &route, connect);
        let (ended, has_room) = self.make_room(now, &terms, holder, out);
        if !has_room {
            refuse(route, connect, RefuseReason::Full, 0, out);
            return ended;
        }
        let Some(id) = self.insert_server(now, now, route, connect, terms) else {
            return ended;
        };
        let opened = self.table[id.index].go(SessionInput::CookieReturned);
        assert!(opened, "a fresh session cannot open");
        self.table.name(id.index);
        self.enter(id.index, holder, out);
        self.send_accept(id, out);
        ended
    }

    /// Takes an index into use for a server end.
    pub(super) fn insert_server(
        &mut self,
        now: Instant,
        give_up_at: Instant,
        route: R,
        connect: &Connect,
        terms: Terms,
    ) -> Option<SessionId> {
        self.table.insert(|generation| Session {
            generation,
            state: SessionState::Free,
            is_counted: true,
            route,
            nonce: connect.nonce,
            seed: Seed::of_nonce(connect.nonce).agreed(terms.features),
            remote: connect.client_session,
            peer: Identity {
                cluster: connect.cluster,
                incarnation: connect.incarnation,
            },
            terms,
            heard_at: now,
            scanned_at: Instant::ZERO,
            probe: None,
            handshake: Handshake::begin(now, give_up_at, RequestNumber::default()),
            role: Role::Server(ServerEnd::new(&terms)),
            seal: Seal::Off,
        })
    }

    /// A server end is established: it counts, and the program hears of it.
    pub(super) fn enter(&mut self, index: u16, holder: Holder, out: &mut ControlOutput<'_, R>) {
        let holder = self.counted_as(holder);
        self.shares.add(index, holder);
        if let Role::Server(server) = self.table[index].role_mut() {
            server.count_for(holder, index);
        }
        out.stats.sessions_server += 1;
        self.rearm(index, out.stats);
        let session = &self.table[index];
        self.events.push_back(Event::Accepted {
            session: session.id(index),
            peer: session.peer_info(),
        });
    }

    /// Beyond the reserve a privileged caller is like any other of whom nothing is known.
    fn counted_as(&self, holder: Holder) -> Holder {
        match holder {
            Holder::Privileged if self.shares.privileged() >= self.settings.sessions_reserved => {
                Holder::Shared
            }
            holder => holder,
        }
    }

    /// Whether `holder` may have a session with these terms. If need be, another session gives way, which is returned.
    pub(super) fn make_room(
        &mut self,
        now: Instant,
        terms: &Terms,
        holder: Holder,
        out: &mut ControlOutput<'_, R>,
    ) -> (Option<Ended>, bool) {
        let holder = self.counted_as(holder);
        let events_have_room = self.events.len() < 2 * self.settings.sessions;
        if !self.has_credits_for(terms, out.stats) || !events_have_room {
            return (None, false);
        }
        let ended = match self.has_room_for(holder) {
            true => None,
            false => self.make_room_for(now, holder, out),
        };
        (ended, self.has_room_for(holder))
    }

    /// Whether `holder` may have another session: the reserve is not for everybody.
    fn has_room_for(&self, holder: Holder) -> bool {
        let reserved = self.settings.sessions_reserved;
        let may_have = match holder {
            Holder::Privileged => self.shares.privileged() < reserved,
            Holder::Identity(_) | Holder::Address(_) | Holder::Shared => {
                self.shares.common() < self.settings.sessions - reserved
            }
        };
        may_have && self.table.has_room()
    }

    /// Ends a session of the holder that has most of them.
    fn make_room_for(
        &mut self,
        now: Instant,
        holder: Holder,
        out: &mut ControlOutput<'_, R>,
    ) -> Option<Ended> {
        let index = self.shares.gives_way_to(holder)?;
        if !self.shares.may_push_out(now, holder) {
            return None;
        }
        self.give_way(index, out)
    }

    /// Ends a session whose holder has too much. Its peer is told once, and finds out by itself if it does not hear
    /// that: a caller that does not answer must not keep its place.
    pub(crate) fn give_way(&mut self, index: u16, out: &mut ControlOutput<'_, R>) -> Option<Ended> {
        let token = RequestNumber::token(self.secret.draw());
        let session = &mut self.table[index];
        let body = Probe {
            sender_session: index,
            nonce: session.nonce,
        };
        let header = Header {
            request: token,
            ..Header::new(PacketType::Disconnect, session.remote)
        };
        // Made now: with the session its keys go.
        let farewell = session.control(&header, &body.write());
        let ended = self.end(index, SessionInput::GiveWay, DownReason::GaveWay, out)?;
        out.stats.sessions_gave_way += 1;
        out.push(farewell);
        Some(ended)
    }

    /// The smaller of both wishes.
    pub(super) fn terms_for(&self, now: Instant, route: &R, connect: &Connect) -> Terms {
        let own = self.settings.terms;
        let credits = own.credits.min(connect.credits);
        // A request whose handler has not answered keeps a credit. With more slots than credits
        // such requests could take them all, and one that they wait for could never be sent.
        let slots_max = u8::try_from(credits).unwrap_or(u8::MAX);
        Terms {
            credits,
            slots: own.slots.min(connect.slots).min(slots_max),
            features: own.features.and(connect.features).without(Features::SEALED),
            mtu: self.packet_size(now, route).min(connect.mtu),
        }
    }

    /// A CONNECT whose ACCEPT was lost or is under way.
    fn accept_again(
        &mut self,
        index: u16,
        route: R,
        connect: &Connect,
        out: &mut ControlOutput<'_, R>,
    ) {
        let session = &self.table[index];
        let is_same = session.route == route && session.remote == connect.client_session;
        match session.state {
            // The client of a sealed session has its ACCEPT: it has sent a sealed packet.
            SessionState::Open if is_same && !session.is_sealed() => {
                self.send_accept(session.id(index), out);
            }
            _ => out.stats.drops.handshake += 1,
        }
    }

    fn send_accept(&mut self, id: SessionId, out: &mut ControlOutput<'_, R>) {
        let session = &self.table[id.index];
        let header = Header::new(PacketType::Accept, session.remote);
        let accept = self.accept_of(id);
        out.send(session.route, header, session.seed, Some(accept.write()));
    }

    /// The ACCEPT of a server end.
    pub(super) fn accept_of(&self, id: SessionId) -> Accept {
        let terms = self.table[id.index].terms;
        Accept {
            server_session: id.index,
            credits: terms.credits,
            slots: terms.slots,
            features: terms.features,
            mtu: terms.mtu,
            cluster: self.identity.cluster,
            incarnation: self.identity.incarnation,
        }
    }
}

/// The first wish that no session can have, and the nearest number that one can have.
fn bad_term(connect: &Connect) -> Option<(BadTerm, u64)> {
    let slots = usize::from(connect.slots);
    let wishes = [
        (
            BadTerm::Credits,
            usize::from(connect.credits),
            1..=usize::MAX,
        ),
        (BadTerm::Slots, slots, 1..=SLOTS_MAX),
        (BadTerm::Mtu, usize::from(connect.mtu), MTU_MIN..=usize::MAX),
    ];
    let bad = wishes
        .into_iter()
        .find(|(_, wish, allowed)| !allowed.contains(wish));
    bad.map(|(term, wish, allowed)| (term, wish.clamp(*allowed.start(), *allowed.end()) as u64))
}
