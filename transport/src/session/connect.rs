//! The client's side of the handshake: CONNECT, COOKIE, CONNECT again, ACCEPT or REFUSE.

use super::seal::{Attempt, Seal, Sealed};
use super::{
    ConnectError, ConnectParams, ConnectRefused, ControlOutput, Ended, Event, Handshake, Identity,
    KeyObstacle, Received, Role, Session, SessionId, SessionInput, SessionState, Sessions, Terms,
};
use crate::backend::Route;
use crate::config::{CREDITS_MAX, MTU_MIN, SLOTS_MAX, TIMER_MAX};
use crate::keys::{OwnKey, Stage};
use crate::rpc::ClientEnd;
use crate::time::Instant;
use crate::wire::{
    Accept, Connect, Cookie, Features, Header, NO_SESSION, PACKET_OVERHEAD, PacketType, Refuse,
    RefuseReason, RequestNumber, Seed,
};

impl<R: Route> Sessions<R> {
    /// Starts to make a session with the endpoint at `route`.
    pub(crate) fn connect(
        &mut self,
        now: Instant,
        route: R,
        params: ConnectParams,
        out: &mut ControlOutput<'_, R>,
    ) -> Result<SessionId, ConnectRefused> {
        let own = self.settings.terms;
        let congestion = self.congestion(&route);
        let terms = Terms {
            credits: params.credits.unwrap_or(own.credits),
            slots: params.slots.unwrap_or(own.slots),
            mtu: self.packet_size(now, &route),
            features: self.features(&congestion),
        };
        let slots_are_good = (1..=SLOTS_MAX).contains(&usize::from(terms.slots));
        if !slots_are_good || !(1..=CREDITS_MAX).contains(&terms.credits) {
            return Err(ConnectRefused::BadParams);
        }
        if !self.table.has_room() {
            return Err(ConnectRefused::TooManySessions);
        }
        if !self.has_credits_for(&terms, out.stats) {
            return Err(ConnectRefused::NoCredits);
        }
        let timeout = params.timeout.unwrap_or(self.settings.connect_timeout);
        let nonce = self.secret.draw();
        let own_key = self.trust.as_ref().and_then(|trust| trust.keys.own.clone());
        let rto_limits = self.settings.rto_limits;
        let id = self.table.insert(|generation| Session {
            generation,
            state: SessionState::Free,
            is_counted: true,
            route,
            nonce,
            seed: Seed::of_nonce(nonce),
            remote: NO_SESSION,
            peer: Identity::default(),
            terms,
            heard_at: now,
            scanned_at: Instant::ZERO,
            probe: None,
            handshake: Handshake::begin(
                now,
                now + timeout.min(TIMER_MAX),
                RequestNumber::default(),
            ),
            role: Role::Client(ClientEnd::new(&terms, rto_limits, congestion)),
            seal: Seal::Off,
        });
        let id = id.ok_or(ConnectRefused::TooManySessions)?;
        let begun = self.table[id.index].go(SessionInput::Connect);
        assert!(begun, "a fresh session cannot connect");
        if let Some(own) = own_key {
            self.begin_handshake(id.index, &own, params.intended);
        }
        out.stats.sessions_client += 1;
        self.send_connect(now, id.index, out);
        Ok(id)
    }

    /// Sends CONNECT, with the cookie if there is one, and sets the timer for the next.
    pub(super) fn send_connect(
        &mut self,
        now: Instant,
        index: u16,
        out: &mut ControlOutput<'_, R>,
    ) {
        let session = &mut self.table[index];
        session.handshake.sent_at = now;
        let due = session.handshake.on_sent(now, &self.settings.rto_limits);
        let cookie = session.handshake.cookie;
        let body = match &session.seal {
            Seal::Asked(attempt) if session.state == SessionState::Returning => {
                attempt.body(cookie)
            }
            Seal::Asked(attempt) => attempt.question(),
            _ => connect_of(index, session, self.identity).write().to_vec(),
        };
        self.timers.set_if_sooner(u32::from(index), due);
        let header = Header::new(PacketType::Connect, NO_SESSION);
        out.send_bytes(session.route, &header, Seed::NONE, &body);
    }

    /// The session is to be sealed. Its first message is made now, and repeated as it is.
    fn begin_handshake(&mut self, index: u16, own: &OwnKey, intended: u64) {
        let Some(trust) = &mut self.trust else {
            return;
        };
        let session = &mut self.table[index];
        session.terms.features = session.terms.features.with_if(true, Features::SEALED);
        let connect = connect_of(index, session, self.identity);
        let attempt = Attempt::begin(own, &connect, intended, &mut trust.rng);
        session.seal = Seal::Asked(Box::new(attempt));
    }

    /// The server wants a proof that we receive its packets at our address.
    pub(crate) fn on_cookie(&mut self, rx: &Received<'_>, out: &mut ControlOutput<'_, R>) {
        let Some(cookie) = Cookie::read(rx.packet.payload) else {
            out.stats.drops.handshake += 1;
            return;
        };
        let session = &mut self.table[rx.session.index];
        let is_first = session.state == SessionState::Asking;
        let is_news = session.handshake.cookie != cookie.cookie;
        if !is_news || !session.go(SessionInput::Cookie) {
            out.stats.drops.wrong_state += 1;
            return;
        }
        session.handshake.cookie = cookie.cookie;
        session.sample_handshake(rx.now);
        if is_first {
            session.handshake.attempts = 0;
        }
        self.send_connect(rx.now, rx.session.index, out);
    }

    /// The session is established. False if the packet does not belong here.
    pub(crate) fn on_accept(&mut self, rx: &Received<'_>, out: &mut ControlOutput<'_, R>) -> bool {
        let accept = Accept::read(rx.packet.payload);
        let fitting = accept.filter(|(accept, _)| accept_fits(accept, &rx.terms));
        let Some((accept, message)) = fitting else {
            out.stats.drops.handshake += 1;
            return false;
        };
        let index = rx.session.index;
        if self.table[index]
            .state
            .after(SessionInput::Accept)
            .is_none()
        {
            out.stats.drops.wrong_state += 1;
            return false;
        }
        let Some((sealed, accept)) = self.believed(rx.now, index, accept, message) else {
            out.stats.drops.handshake += 1;
            return false;
        };
        if !accept_fits(&accept, &rx.terms) {
            out.stats.drops.handshake += 1;
            return false;
        }
        let opened = self.table[index].go(SessionInput::Accept);
        assert!(opened, "asked above");
        let terms = Terms {
            credits: accept.credits,
            slots: accept.slots,
            features: accept.features,
            mtu: accept.mtu,
        };
        self.table.set_terms(index, terms);
        let session = &mut self.table[index];
        session.sample_handshake(rx.now);
        session.seed = session.seed.agreed(terms.features);
        session.remote = accept.server_session;
        session.peer = Identity {
            cluster: accept.cluster,
            incarnation: accept.incarnation,
        };
        session.heard_at = rx.now;
        if let Some(client) = session.client() {
            client.set_terms(&terms);
        }
        session.seal = Seal::Off;
        if let Some(sealed) = sealed {
            session.seal(index, sealed);
            self.log_secrets(index);
            // The server believes the handshake once a sealed packet has come.
            self.ping(rx.now, index, out);
        }
        let peer = self.table[index].peer_info();
        self.rearm(index, out.stats);
        self.events.push_back(Event::Connected {
            session: rx.session,
            peer,
        });
        true
    }

    /// What is to be believed of an ACCEPT, and the keys that it brings if the session is to be sealed. `None` if nothing is.
    fn believed(
        &mut self,
        now: Instant,
        index: u16,
        accept: Accept,
        message: &[u8],
    ) -> Option<(Option<Sealed>, Accept)> {
        let session = &mut self.table[index];
        if let Seal::Asked(attempt) = &mut session.seal
            && accept.features.has(Features::SEALED)
        {
            let (sealed, accept) = attempt.finish(now, message).ok()?;
            return Some((Some(sealed), accept));
        }
        let stage = self.trust.as_ref().map(|trust| trust.keys.stage);
        if stage == Some(Stage::Require) {
            if let Seal::Asked(attempt) = &mut session.seal {
                attempt.obstacle = Some(ConnectError::Key(KeyObstacle::NotTaken));
            }
            return None;
        }
        Some((None, accept))
    }

    /// The server will not have us.
    pub(crate) fn on_refuse(
        &mut self,
        rx: &Received<'_>,
        out: &mut ControlOutput<'_, R>,
    ) -> Option<Ended> {
        let Some(refuse) = Refuse::read(rx.packet.payload) else {
            out.stats.drops.handshake += 1;
            return None;
        };
        let reason = match refuse.reason {
            // The version has four bits on the wire.
            RefuseReason::Version => ConnectError::VersionMismatch {
                theirs: refuse.detail as u8,
            },
            RefuseReason::Cluster => ConnectError::WrongCluster {
                theirs: refuse.detail,
            },
            RefuseReason::Full => ConnectError::PeerFull,
            RefuseReason::Terms(term) => ConnectError::BadTerms {
                term,
                nearest: refuse.detail,
            },
            RefuseReason::KeyRequired => ConnectError::Key(KeyObstacle::Required),
            RefuseReason::KeyUnknown => ConnectError::Key(KeyObstacle::Unknown),
            RefuseReason::KeyWrong => ConnectError::Key(KeyObstacle::Wrong),
            RefuseReason::Unknown(code) => ConnectError::OtherReason { code },
        };
        let session = &mut self.table[rx.session.index];
        if let Seal::Asked(attempt) = &mut session.seal {
            // Nothing authenticates a REFUSE: it ends no attempt that may succeed, and explains one that does not.
            attempt.obstacle = Some(reason);
            return None;
        }
        if !session.go(SessionInput::Refuse) {
            out.stats.drops.wrong_state += 1;
            return None;
        }
        Some(self.end_connect(rx.session.index, reason, out))
    }

    /// Frees a session that was never established. Its state is `Free` already.
    pub(super) fn end_connect(
        &mut self,
        index: u16,
        reason: ConnectError,
        out: &mut ControlOutput<'_, R>,
    ) -> Ended {
        let session = &self.table[index];
        self.events.push_back(Event::ConnectFailed {
            session: session.id(index),
            route: session.route,
            reason,
        });
        out.stats.sessions_client -= 1;
        self.timers.remove(u32::from(index));
        self.table.release(index)
    }
}

impl<R> Session<R> {
    /// The first RTT sample, unless a retransmission makes it ambiguous.
    fn sample_handshake(&mut self, now: Instant) {
        let handshake = self.handshake;
        if let Some(client) = self.client()
            && handshake.attempts == 1
        {
            client.on_handshake_rtt(now, now.saturating_since(handshake.sent_at));
        }
    }
}

/// The wish for a session.
fn connect_of<R>(index: u16, session: &Session<R>, identity: Identity) -> Connect {
    Connect {
        client_session: index,
        credits: session.terms.credits,
        slots: session.terms.slots,
        features: session.terms.features,
        mtu: session.terms.mtu,
        nonce: session.nonce,
        cluster: identity.cluster,
        incarnation: identity.incarnation,
        cookie: session.handshake.cookie,
    }
}

/// A server grants at most the request, and more than nothing.
fn accept_fits(accept: &Accept, own: &Terms) -> bool {
    (1..=own.credits).contains(&accept.credits)
        && (1..=own.slots).contains(&accept.slots)
        && accept.features.and(own.features) == accept.features
        && usize::from(accept.mtu) > PACKET_OVERHEAD
        && (MTU_MIN..=usize::from(own.mtu)).contains(&usize::from(accept.mtu))
}
