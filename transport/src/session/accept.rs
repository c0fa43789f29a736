//! The server's side of the handshake: nothing is remembered before the cookie has come back.

use super::{Event, Handshake, Identity, Input, PeerInfo, Role, Session, SessionId, State, Terms};
use crate::backend::Route;
use crate::config::{MTU_MIN, SLOTS_MAX};
use crate::endpoint::Endpoint;
use crate::rpc::ServerEnd;
use crate::time::Instant;
use crate::wire::{
    Accept, Connect, Cookie, Header, Packet, PacketType, Refuse, RefuseReason, RequestNumber, Seed,
    VERSION,
};

impl<R: Route> Endpoint<R> {
    /// Somebody wants a session.
    pub(crate) fn on_connect(&mut self, now: Instant, packet: &Packet<'_>, route: R) {
        if !packet.verify(Seed::NONE) {
            self.stats.drops.checksum += 1;
            return;
        }
        let Some(connect) = Connect::read(packet.payload).filter(is_sane) else {
            self.stats.drops.handshake += 1;
            return;
        };
        if packet.header.version != VERSION {
            self.stats.drops.version += 1;
            return self.refuse(route, &connect, RefuseReason::Version, u64::from(VERSION));
        }
        if !self.secret.cookie_is_good(now, &route, &connect) {
            self.stats.drops.cookie += u64::from(connect.cookie != 0);
            let cookie = Cookie {
                cookie: self.secret.cookie(now, &route, &connect),
            };
            let header = Header::new(PacketType::Cookie, connect.client_session);
            return self.send_control(
                route,
                header,
                Seed::of_nonce(connect.nonce),
                Some(cookie.write()),
            );
        }
        if let Some(&index) = self.sessions.by_nonce.get(&connect.nonce) {
            return self.accept_again(index, route, &connect);
        }
        if self.sessions.ended_nonces.contains(&connect.nonce) {
            // A duplicate that comes after its session's end: the packets of that session would be
            // good again, and their requests would run again.
            self.stats.drops.handshake += 1;
            return;
        }
        let (ours, theirs) = (self.identity.cluster, connect.cluster);
        if ours != 0 && theirs != 0 && ours != theirs {
            return self.refuse(route, &connect, RefuseReason::Cluster, ours);
        }
        self.accept(now, route, &connect);
    }

    fn accept(&mut self, now: Instant, route: R, connect: &Connect) {
        let own = self.own_terms();
        let credits = own.credits.min(connect.credits);
        // A request whose handler has not answered keeps a credit. With more slots than credits
        // such requests could take them all, and one that they wait for could never be sent.
        let slots_max = u8::try_from(credits).unwrap_or(u8::MAX);
        let terms = Terms {
            credits,
            slots: own.slots.min(connect.slots).min(slots_max),
            features: own.features.and(connect.features),
            mtu: own.mtu.min(connect.mtu),
        };
        let events_have_room = self.events.len() < 2 * self.config.sessions;
        if !self.sessions.has_room() || !self.has_credits_for(&terms) || !events_have_room {
            return self.refuse(route, connect, RefuseReason::Full, 0);
        }
        let peer = Identity {
            cluster: connect.cluster,
            incarnation: connect.incarnation,
        };
        let id = self.sessions.insert(|generation| Session {
            generation,
            state: State::Free,
            route,
            nonce: connect.nonce,
            seed: Seed::of_nonce(connect.nonce).agreed(terms.features),
            remote: connect.client_session,
            peer,
            terms,
            heard_at: now,
            probe: None,
            handshake: Handshake {
                resend_at: now,
                give_up_at: now,
                sent_at: now,
                attempts: 0,
                cookie: 0,
                token: RequestNumber::default(),
            },
            role: Role::Server(ServerEnd::new(&terms)),
        });
        let Some(id) = id else { return };
        let opened = self.sessions[id.index].go(Input::CookieReturned);
        assert!(opened, "a fresh session cannot open");
        self.sessions.by_nonce.insert(connect.nonce, id.index);
        self.stats.sessions_server += 1;
        self.rearm(id.index);
        self.events.push_back(Event::Accepted {
            session: id,
            peer: PeerInfo {
                route,
                identity: peer,
            },
        });
        self.send_accept(id);
    }

    /// A CONNECT whose ACCEPT was lost or is under way.
    fn accept_again(&mut self, index: u16, route: R, connect: &Connect) {
        let session = &self.sessions[index];
        if session.route != route
            || session.remote != connect.client_session
            || session.state != State::Open
        {
            self.stats.drops.handshake += 1;
            return;
        }
        self.send_accept(SessionId {
            index,
            generation: session.generation,
        });
    }

    fn send_accept(&mut self, id: SessionId) {
        let session = &self.sessions[id.index];
        let terms = session.terms;
        let accept = Accept {
            server_session: id.index,
            credits: terms.credits,
            slots: terms.slots,
            features: terms.features,
            mtu: terms.mtu,
            cluster: self.identity.cluster,
            incarnation: self.identity.incarnation,
        };
        let header = Header::new(PacketType::Accept, session.remote);
        let (route, seed) = (session.route, session.seed);
        self.send_control(route, header, seed, Some(accept.write()));
    }

    fn refuse(&mut self, route: R, connect: &Connect, reason: RefuseReason, detail: u64) {
        let header = Header::new(PacketType::Refuse, connect.client_session);
        let body = Refuse { reason, detail }.write();
        self.send_control(route, header, Seed::of_nonce(connect.nonce), Some(body));
    }
}

fn is_sane(connect: &Connect) -> bool {
    connect.credits >= 1
        && (1..=SLOTS_MAX).contains(&usize::from(connect.slots))
        && usize::from(connect.mtu) >= MTU_MIN
        && connect.nonce != 0
}
