//! The client's side of the handshake: CONNECT, COOKIE, CONNECT again, ACCEPT or REFUSE.

use super::{
    ConnectError, ConnectParams, ConnectRefused, Event, Handshake, Identity, Input, PeerInfo, Role,
    Session, SessionId, State, Terms,
};
use crate::backend::Route;
use crate::config::{CREDITS_MAX, SLOTS_MAX, TIMER_MAX};
use crate::endpoint::Endpoint;
use crate::rpc::{ClientEnd, Received};
use crate::time::Instant;
use crate::wire::{
    Accept, Connect, Cookie, Header, NO_SESSION, PACKET_OVERHEAD, PacketType, Refuse, RefuseReason,
    RequestNumber, Seed,
};

impl<R: Route> Endpoint<R> {
    /// Starts to make a session with the endpoint at `route`. The result arrives as an event;
    /// requests may be enqueued at once and wait for it.
    pub fn connect(
        &mut self,
        now: Instant,
        route: R,
        params: ConnectParams,
    ) -> Result<SessionId, ConnectRefused> {
        let terms = Terms {
            credits: params.credits.unwrap_or(self.config.credits),
            slots: params.slots.unwrap_or(self.config.slots),
            ..self.own_terms()
        };
        let slots_are_good = (1..=SLOTS_MAX).contains(&usize::from(terms.slots));
        if !slots_are_good || !(1..=CREDITS_MAX).contains(&terms.credits) {
            return Err(ConnectRefused::BadParams);
        }
        if !self.sessions.has_room() {
            return Err(ConnectRefused::TooManySessions);
        }
        if !self.has_credits_for(&terms) {
            return Err(ConnectRefused::NoCredits);
        }
        let nonce = self.secret.draw();
        let handshake = Handshake {
            resend_at: now,
            give_up_at: now
                + params
                    .timeout
                    .unwrap_or(self.config.connect_timeout)
                    .min(TIMER_MAX),
            sent_at: now,
            attempts: 0,
            cookie: 0,
            token: RequestNumber::default(),
        };
        let role = Role::Client(ClientEnd::new(
            &terms,
            self.rto_limits,
            self.congestion.clone(),
        ));
        let id = self.sessions.insert(|generation| Session {
            generation,
            state: State::Free,
            route,
            nonce,
            seed: Seed::of_nonce(nonce),
            remote: NO_SESSION,
            peer: Identity::default(),
            terms,
            heard_at: now,
            probe: None,
            handshake,
            role,
        });
        let id = id.ok_or(ConnectRefused::TooManySessions)?;
        let begun = self.sessions[id.index].go(Input::Connect);
        assert!(begun, "a fresh session cannot connect");
        self.stats.sessions_client += 1;
        self.send_connect(now, id.index);
        Ok(id)
    }

    /// Sends CONNECT, with the cookie if there is one, and sets the timer for the next.
    pub(crate) fn send_connect(&mut self, now: Instant, index: u16) {
        let session = &mut self.sessions[index];
        let interval = self
            .rto_limits
            .initial
            .saturating_mul(1 << session.handshake.attempts.min(6));
        session.handshake.attempts = session.handshake.attempts.saturating_add(1);
        session.handshake.sent_at = now;
        session.handshake.resend_at = now + interval.min(self.rto_limits.max);
        let connect = Connect {
            client_session: index,
            credits: session.terms.credits,
            slots: session.terms.slots,
            features: session.terms.features,
            mtu: session.terms.mtu,
            nonce: session.nonce,
            cluster: self.identity.cluster,
            incarnation: self.identity.incarnation,
            cookie: session.handshake.cookie,
        };
        let (route, due) = (
            session.route,
            session
                .handshake
                .resend_at
                .min(session.handshake.give_up_at),
        );
        self.timers.set_if_sooner(u32::from(index), due);
        let header = Header::new(PacketType::Connect, NO_SESSION);
        self.send_control(route, header, Seed::NONE, Some(connect.write()));
    }

    /// The server wants to see that we receive what it sends to our address.
    pub(crate) fn on_cookie(&mut self, rx: &Received<'_>) {
        let Some(cookie) = Cookie::read(rx.packet.payload) else {
            self.stats.drops.handshake += 1;
            return;
        };
        let session = &mut self.sessions[rx.session];
        let is_first = session.state == State::Asking;
        let is_news = session.handshake.cookie != cookie.cookie;
        if !is_news || !session.go(Input::Cookie) {
            self.stats.drops.wrong_state += 1;
            return;
        }
        session.handshake.cookie = cookie.cookie;
        self.sample_handshake(rx);
        if is_first {
            self.sessions[rx.session].handshake.attempts = 0;
        }
        self.send_connect(rx.now, rx.session);
    }

    /// The session stands.
    pub(crate) fn on_accept(&mut self, rx: &Received<'_>) {
        let own = self.sessions[rx.session].terms;
        let Some(accept) =
            Accept::read(rx.packet.payload).filter(|accept| accept_fits(accept, &own))
        else {
            self.stats.drops.handshake += 1;
            return;
        };
        if !self.sessions[rx.session].go(Input::Accept) {
            self.stats.drops.wrong_state += 1;
            return;
        }
        self.sample_handshake(rx);
        let session = &mut self.sessions[rx.session];
        let terms = Terms {
            credits: accept.credits,
            slots: accept.slots,
            features: accept.features,
            mtu: accept.mtu,
        };
        session.terms = terms;
        session.seed = session.seed.agreed(terms.features);
        session.remote = accept.server_session;
        session.peer = Identity {
            cluster: accept.cluster,
            incarnation: accept.incarnation,
        };
        session.heard_at = rx.now;
        let peer = PeerInfo {
            route: session.route,
            identity: session.peer,
        };
        let generation = session.generation;
        if let Some(client) = session.client() {
            client.set_terms(&terms);
        }
        self.sessions.credits -= u64::from(own.credits - terms.credits);
        self.rearm(rx.session);
        self.events.push_back(Event::Connected {
            session: SessionId {
                index: rx.session,
                generation,
            },
            peer,
        });
        self.start_queued(rx.session);
    }

    /// The server will not have us.
    pub(crate) fn on_refuse(&mut self, rx: &Received<'_>) {
        let Some(refuse) = Refuse::read(rx.packet.payload) else {
            self.stats.drops.handshake += 1;
            return;
        };
        if !self.sessions[rx.session].go(Input::Refuse) {
            self.stats.drops.wrong_state += 1;
            return;
        }
        self.end_connect(
            rx.session,
            match refuse.reason {
                // The version has four bits on the wire.
                RefuseReason::Version => ConnectError::VersionMismatch {
                    theirs: refuse.detail as u8,
                },
                RefuseReason::Cluster => ConnectError::WrongCluster {
                    theirs: refuse.detail,
                },
                RefuseReason::Full => ConnectError::PeerFull,
            },
        );
    }

    /// Frees a session that never stood. Its state is `Free` already.
    pub(crate) fn end_connect(&mut self, index: u16, reason: ConnectError) {
        self.fail_requests(index);
        let session = &self.sessions[index];
        let id = SessionId {
            index,
            generation: session.generation,
        };
        let event = Event::ConnectFailed {
            session: id,
            route: session.route,
            reason,
        };
        self.stats.sessions_client -= 1;
        self.timers.remove(u32::from(index));
        self.sessions.release(index);
        self.events.push_back(event);
    }

    /// The first RTT sample, unless a retransmission makes it ambiguous.
    fn sample_handshake(&mut self, rx: &Received<'_>) {
        let session = &mut self.sessions[rx.session];
        let handshake = session.handshake;
        if let Some(client) = session.client()
            && handshake.attempts == 1
        {
            client
                .rtt
                .on_sample(rx.now.saturating_since(handshake.sent_at));
        }
    }
}

/// A server grants at most what was asked for, and something.
fn accept_fits(accept: &Accept, own: &Terms) -> bool {
    (1..=own.credits).contains(&accept.credits)
        && (1..=own.slots).contains(&accept.slots)
        && accept.features.and(own.features) == accept.features
        && usize::from(accept.mtu) > PACKET_OVERHEAD
        && (crate::config::MTU_MIN..=usize::from(own.mtu)).contains(&usize::from(accept.mtu))
}
