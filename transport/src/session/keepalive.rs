//! Is the peer there? PING, PONG, and RESET from one who does not know us.
//!
//! A session is down when a PING and its repetitions stayed unanswered, and no request moved on, for
//! the failure timeout. What else comes may be the replay of a dead peer's packets. Slow answers never count. A process that was paused asks again first.

use super::{DownReason, Input, Probing, Role, State};
use crate::backend::Route;
use crate::config::KEEPALIVES_PER_SECOND;
use crate::endpoint::Endpoint;
use crate::rpc::Received;
use crate::time::{Duration, Instant};
use crate::wire::{Header, Packet, PacketType, Probe, RequestNumber, Seed};

impl<R: Route> Endpoint<R> {
    /// Sends a PING, the first of a silence or a repetition.
    pub(crate) fn ping(&mut self, now: Instant, index: u16) {
        let fresh = RequestNumber::token(self.secret.draw());
        let session = &mut self.sessions[index];
        let (since, token) = session
            .probe
            .map_or((now, fresh), |probe| (probe.since, probe.token));
        session.probe = Some(Probing {
            since,
            sent_at: now,
            token,
        });
        let body = Probe {
            sender_session: index,
            nonce: session.nonce,
        }
        .write();
        let header = Header {
            request: token,
            ..Header::new(PacketType::Ping, session.remote)
        };
        let route = session.route;
        self.send_control(route, header, Seed::NONE, Some(body));
    }

    /// A request's timer has fired and nothing came since it was sent: has the peer forgotten us?
    pub(crate) fn ping_after_timeout(
        &mut self,
        now: Instant,
        index: u16,
        sent_at: Instant,
        rto: Duration,
    ) {
        let session = &self.sessions[index];
        let is_silent = session.heard_at <= sent_at;
        if is_silent && session.probe.is_none_or(|probe| probe.sent_at + rto <= now) {
            self.ping(now, index);
        }
    }

    /// When silence has to be looked at.
    pub(crate) fn keepalive_due(&self, index: u16) -> Instant {
        let session = &self.sessions[index];
        match session.probe {
            Some(probe) => (probe.sent_at + self.ping_interval())
                .min(probe.since + self.config.failure_timeout),
            None => session.heard_at + self.patience(index),
        }
    }

    /// Looks at the silence. True if the session is down.
    pub(crate) fn check_silence(&mut self, now: Instant, index: u16) -> bool {
        let session = &self.sessions[index];
        match session.probe {
            Some(probe) if self.has_overslept(now, &probe) => {
                // Our silence, not the peer's.
                self.sessions[index].probe = None;
                self.ping(now, index);
            }
            Some(probe) if probe.since + self.config.failure_timeout <= now => {
                self.end_session(index, Input::Silence, DownReason::TimedOut);
                return true;
            }
            Some(probe) if probe.sent_at + self.ping_interval() <= now => self.ping(now, index),
            None if session.heard_at + self.patience(index) <= now => self.ping(now, index),
            _ => {}
        }
        false
    }

    /// The client asks first; the server only if the client is quiet for twice as long. Many
    /// sessions share what keepalives may cost.
    fn patience(&self, index: u16) -> Duration {
        let sessions = self.stats.sessions_client + self.stats.sessions_server;
        let share = Duration::from_nanos(sessions * 1_000_000_000 / KEEPALIVES_PER_SECOND);
        let patience = self.config.keepalive_interval.max(share);
        match self.sessions[index].role {
            Role::Client(_) => patience,
            Role::Server(_) => patience * 2,
        }
    }

    /// This process was paused when the PING should have been repeated.
    fn has_overslept(&self, now: Instant, probe: &Probing) -> bool {
        probe.sent_at + self.ping_interval() + self.config.failure_timeout / 2 <= now
    }

    fn ping_interval(&self) -> Duration {
        (self.config.failure_timeout / 8).max(self.rto_limits.floor)
    }

    /// Answers PONG for a session that stands, RESET otherwise.
    pub(crate) fn on_ping(&mut self, packet: &Packet<'_>, route: R) {
        let Some(probe) = self.read_probe(packet) else {
            return;
        };
        let header = &packet.header;
        let Some(session) = self
            .sessions
            .at(header.session)
            .filter(|s| s.nonce == probe.nonce && s.route == route && s.state != State::Closing)
        else {
            return self.reset(route, probe.sender_session, header.request);
        };
        let answer = Header {
            request: header.request,
            ..Header::new(PacketType::Pong, probe.sender_session)
        };
        let seed = session.seed;
        self.send_control(route, answer, seed, None);
    }

    /// A sign of life, if it answers the PING that is out: one from before may be a replay.
    pub(crate) fn on_pong(&mut self, rx: &Received<'_>) {
        let session = &mut self.sessions[rx.session];
        let token = rx.packet.header.request;
        if session.probe.is_some_and(|probe| probe.token == token) {
            session.prove_alive(rx.now);
        } else {
            self.stats.drops.past += 1;
        }
    }

    /// The peer does not know the session. Believed only if it repeats our token.
    pub(crate) fn on_reset(&mut self, packet: &Packet<'_>, route: R) {
        if !packet.verify(Seed::NONE) {
            self.stats.drops.checksum += 1;
            return;
        }
        let (index, token) = (packet.header.session, packet.header.request);
        let Some(session) = self
            .sessions
            .at(index)
            .filter(|session| session.route == route)
        else {
            self.stats.drops.no_session += 1;
            return;
        };
        let expected = match session.state {
            State::Open => session.probe.map(|probe| probe.token),
            State::Closing => Some(session.handshake.token),
            _ => None,
        };
        if expected != Some(token) {
            self.stats.drops.wrong_state += 1;
            return;
        }
        self.end_session(index, Input::Reset, DownReason::Reset);
    }

    /// Reads the body that PING and DISCONNECT share; counts what is none.
    pub(crate) fn read_probe(&mut self, packet: &Packet<'_>) -> Option<Probe> {
        if !packet.verify(Seed::NONE) {
            self.stats.drops.checksum += 1;
            return None;
        }
        let probe = Probe::read(packet.payload);
        self.stats.drops.handshake += u64::from(probe.is_none());
        probe
    }

    pub(crate) fn reset(&mut self, route: R, their_session: u16, token: RequestNumber) {
        let header = Header {
            request: token,
            ..Header::new(PacketType::Reset, their_session)
        };
        self.send_control(route, header, Seed::NONE, None);
    }
}
