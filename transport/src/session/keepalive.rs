//! Whether the peer is there: PING, PONG, and RESET from one who does not know us.
//!
//! A session is down when a PING and its repetitions stayed unanswered, and no request moved on, for
//! the failure timeout. Any other packet may be the replay of a dead peer's. Slow answers never count. A process
//! that was paused asks again first. Replicas have sessions in both directions, and use mostly one: the others are not asked
//! as often, so that they wake nobody up.

use super::half_open::send_reset;
use super::{
    ControlOutput, DownReason, Ended, Probing, Received, Role, Session, SessionInput, SessionState,
    Sessions,
};
use crate::backend::Route;
use crate::config::KEEPALIVES_PER_SECOND;
use crate::stats::EndpointStats;
use crate::time::{Duration, Instant};
use crate::wire::{Header, Packet, PacketType, Probe, RequestNumber, Seed};

/// So many times longer is a session silent before a PING if another one shows that the peer lives. It cannot show that the
/// peer knows this one still.
const PATIENCE_WITH_SIBLINGS: u64 = 4;

impl<R: Route> Sessions<R> {
    /// Sends a PING, the first of a silence or a repetition.
    pub(super) fn ping(&mut self, now: Instant, index: u16, out: &mut ControlOutput<'_, R>) {
        let fresh = RequestNumber::token(self.secret.draw());
        let session = &mut self.table[index];
        if session.probe.is_none()
            && let Some(sealed) = session.sealed()
        {
            sealed.doubted_at = None;
        }
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
        out.push(session.control(&header, &body));
    }

    /// A request's timer has fired and nothing came since it was sent: has the peer forgotten us?
    pub(crate) fn ping_after_timeout(
        &mut self,
        now: Instant,
        index: u16,
        sent_at: Instant,
        rto: Duration,
        out: &mut ControlOutput<'_, R>,
    ) {
        let session = &self.table[index];
        let is_silent = session.heard_at <= sent_at;
        if is_silent && session.probe.is_none_or(|probe| probe.sent_at + rto <= now) {
            self.ping(now, index, out);
        }
    }

    /// When silence has to be checked.
    pub(super) fn keepalive_due(&self, index: u16, stats: &EndpointStats) -> Instant {
        let session = &self.table[index];
        match session.probe {
            Some(probe) => (probe.sent_at + self.ping_interval())
                .min(probe.since + self.settings.failure_timeout)
                .min(self.end_of_doubt(session)),
            None => self.ping_due(index, stats),
        }
    }

    /// When the first PING of a silence is due. While another session shows that the peer lives, this one is asked less often.
    fn ping_due(&self, index: u16, stats: &EndpointStats) -> Instant {
        let session = &self.table[index];
        let patience = self.patience(index, stats);
        let due = session.heard_at + patience;
        let sibling_heard_at = self.table.siblings_of(index).map(|s| s.heard_at).max();
        sibling_heard_at.map_or(due, |heard_at| {
            (heard_at + patience).clamp(due, session.heard_at + patience * PATIENCE_WITH_SIBLINGS)
        })
    }

    /// Checks the silence. The session that is handed back is down.
    pub(super) fn check_silence(
        &mut self,
        now: Instant,
        index: u16,
        out: &mut ControlOutput<'_, R>,
    ) -> Option<Ended> {
        let session = &self.table[index];
        match session.probe {
            Some(_) if self.end_of_doubt(session) <= now => {
                return self.end(index, SessionInput::Reset, DownReason::Reset, out);
            }
            Some(probe) if self.has_overslept(now, &probe) => {
                // Our silence, not the peer's.
                self.table[index].probe = None;
                self.ping(now, index, out);
            }
            Some(probe) if probe.since + self.settings.failure_timeout <= now => {
                return self.end(index, SessionInput::Silence, DownReason::TimedOut, out);
            }
            Some(probe) if probe.sent_at + self.ping_interval() <= now => {
                self.ping(now, index, out);
            }
            None if self.ping_due(index, out.stats) <= now => {
                self.ping(now, index, out);
            }
            _ => {}
        }
        None
    }

    /// The client asks first; the server only if the client is quiet for twice as long. Many
    /// sessions share the budget of keepalives.
    fn patience(&self, index: u16, stats: &EndpointStats) -> Duration {
        let sessions = stats.sessions_client + stats.sessions_server;
        let share = Duration::from_nanos(sessions * 1_000_000_000 / KEEPALIVES_PER_SECOND);
        let patience = self.settings.keepalive_interval.max(share);
        match self.table[index].role {
            Role::Client(_) => patience,
            Role::Server(_) => patience * 2,
        }
    }

    /// This process was paused when the PING should have been repeated.
    fn has_overslept(&self, now: Instant, probe: &Probing) -> bool {
        probe.sent_at + self.ping_interval() + self.settings.failure_timeout / 2 <= now
    }

    /// When a peer that is said not to know its sealed session counts as one that does not.
    fn end_of_doubt(&self, session: &Session<R>) -> Instant {
        let patience = self.settings.rto_limits.initial;
        let doubted_at = session.doubted_at();
        doubted_at.map_or(Instant::FAR_FUTURE, |at| at + patience)
    }

    fn ping_interval(&self) -> Duration {
        (self.settings.failure_timeout / 8).max(self.settings.rto_limits.floor)
    }

    /// Answers PONG for a session that is established, RESET otherwise.
    pub(crate) fn on_ping(
        &mut self,
        packet: &Packet<'_>,
        route: R,
        out: &mut ControlOutput<'_, R>,
    ) {
        let Some(probe) = read_probe(packet, out.stats) else {
            return;
        };
        let header = &packet.header;
        let known = self.table.at(header.session);
        let Some(session) = known.filter(|s| s.nonce == probe.nonce && s.route == route) else {
            return reset(route, probe.sender_session, header.request, out);
        };
        if session.is_sealed() && !packet.is_opened() {
            out.stats.drops.forged += 1;
            return;
        }
        if session.state == SessionState::Closing {
            return match session.sealed() {
                Some(sealed) => send_reset(route, &probe, header.request, &sealed.reset, out),
                None => reset(route, probe.sender_session, header.request, out),
            };
        }
        let answer = Header {
            request: header.request,
            ..Header::new(PacketType::Pong, probe.sender_session)
        };
        out.push(session.control(&answer, &[]));
    }

    /// A sign of life, if it answers the PING that is out: one from before may be a replay.
    pub(crate) fn on_pong(&mut self, rx: &Received<'_>, out: &mut ControlOutput<'_, R>) {
        let session = &mut self.table[rx.session.index];
        let token = rx.packet.header.request;
        if session.probe.is_some_and(|probe| probe.token == token) {
            session.prove_alive(rx.now);
        } else {
            out.stats.drops.past += 1;
        }
    }

    /// The peer does not know the session. Believed only if it repeats our token.
    pub(crate) fn on_reset(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        route: R,
        out: &mut ControlOutput<'_, R>,
    ) -> Option<Ended> {
        if !packet.verify(Seed::NONE) {
            out.stats.drops.checksum += 1;
            return None;
        }
        let (index, token) = (packet.header.session, packet.header.request);
        let Some(session) = self
            .table
            .at(index)
            .filter(|session| session.route == route)
        else {
            out.stats.drops.no_session += 1;
            return None;
        };
        let (nonce, number) = (session.nonce, token.bits());
        if let Some(sealed) = session.sealed()
            && !sealed.reset.is_good(nonce, number, packet.payload)
        {
            out.stats.drops.forged += 1;
            return None;
        }
        let expected = match session.state {
            SessionState::Open => session.probe.map(|probe| probe.token),
            SessionState::Closing => Some(session.handshake.token),
            _ => None,
        };
        if expected != Some(token) {
            out.stats.drops.wrong_state += 1;
            return None;
        }
        let session = &mut self.table[index];
        let is_open = session.is_open();
        if is_open && let Some(sealed) = session.sealed() {
            // Every holder of the key can be brought to make this proof, so the peer is asked once more.
            if sealed.doubted_at.is_none() {
                sealed.doubted_at = Some(now);
                self.ping(now, index, out);
                self.rearm(index, out.stats);
            }
            return None;
        }
        self.end(index, SessionInput::Reset, DownReason::Reset, out)
    }
}

/// Reads the body that PING and DISCONNECT share; counts a packet without one.
pub(super) fn read_probe(packet: &Packet<'_>, stats: &mut EndpointStats) -> Option<Probe> {
    if !packet.verify(Seed::NONE) {
        stats.drops.checksum += 1;
        return None;
    }
    let probe = Probe::read(packet.payload);
    // Only a sealed one names its key.
    let probe = probe.filter(|(_, key)| packet.is_opened() || key.is_empty());
    stats.drops.handshake += u64::from(probe.is_none());
    probe.map(|(probe, _)| probe)
}

/// Says that the peer's session is not known here.
pub(super) fn reset<R: Route>(
    route: R,
    their_session: u16,
    token: RequestNumber,
    out: &mut ControlOutput<'_, R>,
) {
    let header = Header {
        request: token,
        ..Header::new(PacketType::Reset, their_session)
    };
    out.send(route, header, Seed::NONE, None);
}
