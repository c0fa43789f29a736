//! How a session ends: DISCONNECT from either side, silence, reset, violation.

use super::keepalive::{read_probe, reset};
use super::names::ServerEndName;
use super::{
    ConnectError, ControlOutput, DownReason, Ended, Event, Handshake, Received, Role, SessionId,
    SessionInput, SessionState, Sessions,
};
use crate::backend::Route;
use crate::time::Instant;
use crate::wire::{Header, Packet, PacketType, Probe, RequestNumber};

/// The result of closing a session.
#[must_use]
#[allow(clippy::large_enum_variant)] // a session ends once
pub(crate) enum Closed {
    /// It is not here, or is closing already.
    Not,
    /// It waits for the peer's answer. Its end has nothing to do any more.
    Closing,
    /// It was never established, and is over.
    Ended(Ended),
}

impl<R: Route> Sessions<R> {
    /// Ends a session of either mode for this reason. The peer is told; nothing waits for its answer.
    pub(crate) fn close(
        &mut self,
        now: Instant,
        id: SessionId,
        reason: DownReason,
        out: &mut ControlOutput<'_, R>,
    ) -> Closed {
        let Some(session) = self.table.get_mut(id) else {
            return Closed::Not;
        };
        if !session.go(SessionInput::Close) {
            return Closed::Not;
        }
        if session.state == SessionState::Free {
            return Closed::Ended(self.end_connect(id.index, ConnectError::Cancelled, out));
        }
        let token = RequestNumber::token(self.secret.draw());
        let give_up_at = now + self.settings.failure_timeout;
        session.handshake = Handshake::begin(now, give_up_at, token);
        session.probe = None;
        self.events.push_back(Event::Down {
            session: id,
            reason,
        });
        self.send_disconnect(now, id.index, out);
        Closed::Closing
    }

    /// Sends DISCONNECT and sets the timer for the next.
    pub(super) fn send_disconnect(
        &mut self,
        now: Instant,
        index: u16,
        out: &mut ControlOutput<'_, R>,
    ) {
        let session = &mut self.table[index];
        let due = session.handshake.on_sent(now, &self.settings.rto_limits);
        let body = Probe {
            sender_session: index,
            nonce: session.nonce,
        }
        .write();
        let header = Header {
            request: session.handshake.token,
            ..Header::new(PacketType::Disconnect, session.remote)
        };
        self.timers.set_if_sooner(u32::from(index), due);
        out.push(session.control(&header, &body));
    }

    /// The peer ends the session.
    pub(crate) fn on_disconnect(
        &mut self,
        packet: &Packet<'_>,
        route: R,
        out: &mut ControlOutput<'_, R>,
    ) -> Option<Ended> {
        let probe = read_probe(packet, out.stats)?;
        let (index, token) = (packet.header.session, packet.header.request);
        let known = self
            .table
            .at(index)
            .filter(|s| s.nonce == probe.nonce && s.route == route);
        let Some(session) = known else {
            reset(route, probe.sender_session, token, out);
            return None;
        };
        if session.is_sealed() && !packet.is_opened() {
            out.stats.drops.forged += 1;
            return None;
        }
        let header = Header {
            request: token,
            ..Header::new(PacketType::Disconnected, probe.sender_session)
        };
        // Made now: with the session its keys go.
        let answer = session.control(&header, &[]);
        let ended = self.end(
            index,
            SessionInput::PeerClosed,
            DownReason::PeerDisconnected,
            out,
        );
        if ended.is_none() {
            out.stats.drops.wrong_state += 1;
            return None;
        }
        out.push(answer);
        ended
    }

    /// The peer knows that the session is over.
    pub(crate) fn on_disconnected(
        &mut self,
        rx: &Received<'_>,
        out: &mut ControlOutput<'_, R>,
    ) -> Option<Ended> {
        let (index, token) = (rx.session.index, rx.packet.header.request);
        let session = &self.table[index];
        let is_ours = session.state == SessionState::Closing && session.handshake.token == token;
        if !is_ours {
            out.stats.drops.wrong_state += 1;
            return None;
        }
        self.end(
            index,
            SessionInput::CloseConfirmed,
            DownReason::Disconnected,
            out,
        )
    }

    /// The peer broke the protocol: it loses its session, and no other peer is affected.
    pub(crate) fn on_violation(
        &mut self,
        index: u16,
        out: &mut ControlOutput<'_, R>,
    ) -> Option<Ended> {
        let ended = self.end(index, SessionInput::Violation, DownReason::Violation, out);
        out.stats.sessions_violated += u64::from(ended.is_some());
        ended
    }

    /// No later CONNECT with this nonce makes a session. Nonces that are forgotten while their cookies are good take
    /// all cookies so far with them.
    fn remember_ended(&mut self, name: ServerEndName) {
        if self.table.ended.insert(name) {
            self.secret.renew_cookies();
        }
    }

    /// Frees a session, if the input ends it in its present state.
    pub(super) fn end(
        &mut self,
        index: u16,
        input: SessionInput,
        reason: DownReason,
        out: &mut ControlOutput<'_, R>,
    ) -> Option<Ended> {
        let session = &mut self.table[index];
        let was_closing = session.state == SessionState::Closing;
        if session.state.after(input) != Some(SessionState::Free) || !session.go(input) {
            return None;
        }
        let (id, name) = (session.id(index), session.name());
        match session.role {
            Role::Client(_) => out.stats.sessions_client -= 1,
            Role::Server(_) => {
                out.stats.sessions_server -= 1;
                self.shares.remove(index);
                self.remember_ended(name);
            }
        }
        self.timers.remove(u32::from(index));
        let ended = self.table.release(index);
        if !was_closing {
            // `close` has told already.
            self.events.push_back(Event::Down {
                session: id,
                reason,
            });
        }
        Some(ended)
    }
}
