//! How a session ends: DISCONNECT from either side, silence, reset, violation.

use super::{ConnectError, DownReason, Event, Handshake, Input, Role, SessionId, State};
use crate::backend::Route;
use crate::config::ENDED_NONCES_MAX;
use crate::endpoint::Endpoint;
use crate::rpc::Received;
use crate::time::Instant;
use crate::wire::{Header, Packet, PacketType, Probe, RequestNumber, Seed};

impl<R: Route> Endpoint<R> {
    /// Ends a session of either mode. Pending requests complete with an error: in the next `on_timeout`, or in
    /// a later one where the backend must flush first. `Down` is among the events at once, and so may come
    /// before them. The peer is told; nothing waits for its answer.
    pub fn disconnect(&mut self, now: Instant, session: SessionId) {
        self.close(now, session, DownReason::Disconnected);
    }

    /// As `disconnect`, for this reason.
    pub(crate) fn close(&mut self, now: Instant, session: SessionId, reason: DownReason) {
        let Some(entry) = self.sessions.get_mut(session) else {
            return;
        };
        if !entry.go(Input::Close) {
            return;
        }
        if entry.state == State::Free {
            return self.end_connect(session.index, ConnectError::Cancelled);
        }
        entry.handshake = Handshake {
            resend_at: now,
            give_up_at: now + self.config.failure_timeout,
            sent_at: now,
            attempts: 0,
            cookie: 0,
            token: RequestNumber::token(self.secret.draw()),
        };
        entry.probe = None;
        self.fail_requests(session.index);
        self.drop_server_slots(session.index);
        self.events.push_back(Event::Down { session, reason });
        self.send_disconnect(now, session.index);
    }

    /// Sends DISCONNECT and sets the timer for the next.
    pub(crate) fn send_disconnect(&mut self, now: Instant, index: u16) {
        let session = &mut self.sessions[index];
        let interval = self
            .rto_limits
            .initial
            .saturating_mul(1 << session.handshake.attempts.min(6));
        session.handshake.attempts = session.handshake.attempts.saturating_add(1);
        session.handshake.resend_at = now + interval.min(self.rto_limits.max);
        let body = Probe {
            sender_session: index,
            nonce: session.nonce,
        }
        .write();
        let header = Header {
            request: session.handshake.token,
            ..Header::new(PacketType::Disconnect, session.remote)
        };
        let (route, due) = (
            session.route,
            session
                .handshake
                .resend_at
                .min(session.handshake.give_up_at),
        );
        self.timers.set_if_sooner(u32::from(index), due);
        self.send_control(route, header, Seed::NONE, Some(body));
    }

    /// The peer ends the session.
    pub(crate) fn on_disconnect(&mut self, packet: &Packet<'_>, route: R) {
        let Some(probe) = self.read_probe(packet) else {
            return;
        };
        let (index, token) = (packet.header.session, packet.header.request);
        let known = self
            .sessions
            .at(index)
            .filter(|s| s.nonce == probe.nonce && s.route == route);
        let Some(seed) = known.map(|session| session.seed) else {
            return self.reset(route, probe.sender_session, token);
        };
        if !self.end_session(index, Input::PeerClosed, DownReason::PeerDisconnected) {
            self.stats.drops.wrong_state += 1;
            return;
        }
        let header = Header {
            request: token,
            ..Header::new(PacketType::Disconnected, probe.sender_session)
        };
        self.send_control(route, header, seed, None);
    }

    /// The peer knows that the session is over.
    pub(crate) fn on_disconnected(&mut self, rx: &Received<'_>) {
        let session = &self.sessions[rx.session];
        let is_ours =
            session.state == State::Closing && session.handshake.token == rx.packet.header.request;
        if !is_ours {
            self.stats.drops.wrong_state += 1;
            return;
        }
        self.end_session(rx.session, Input::CloseConfirmed, DownReason::Disconnected);
    }

    /// The peer broke the protocol: it loses its session, nobody else anything.
    pub(crate) fn violation(&mut self, index: u16) {
        let ended = self.end_session(index, Input::Violation, DownReason::Violation);
        self.stats.sessions_violated += u64::from(ended);
    }

    /// No later CONNECT with this nonce makes a session. What is forgotten for want of room takes the
    /// cookies with it that could bring it back.
    fn remember_ended(&mut self, nonce: u64) {
        let ended = &mut self.sessions.ended_nonces;
        if ended.len() >= ENDED_NONCES_MAX {
            ended.clear();
            self.secret.renew_cookies();
        }
        ended.insert(nonce);
    }

    /// Frees a session. False if the input does not end it in its present state.
    pub(crate) fn end_session(&mut self, index: u16, input: Input, reason: DownReason) -> bool {
        let session = &mut self.sessions[index];
        let was_closing = session.state == State::Closing;
        if session.state.after(input) != Some(State::Free) || !session.go(input) {
            return false;
        }
        let id = SessionId {
            index,
            generation: session.generation,
        };
        let nonce = session.nonce;
        match session.role {
            Role::Client(_) => self.stats.sessions_client -= 1,
            Role::Server(_) => {
                self.stats.sessions_server -= 1;
                self.remember_ended(nonce);
            }
        }
        self.fail_requests(index);
        self.drop_server_slots(index);
        self.timers.remove(u32::from(index));
        self.ready.cancel_departure(index);
        self.sessions.release(index);
        if !was_closing {
            // `disconnect` has told already.
            self.events.push_back(Event::Down {
                session: id,
                reason,
            });
        }
        true
    }
}
