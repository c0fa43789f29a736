//! The server's side of a sealed handshake. A session counts once a packet that its keys sealed has come: until then it
//! is half open, and it has nothing that others could want.

use super::halves::{HalfOpen, Halves};
use super::refuse::refuse;
use super::seal::{
    FIRST_PAYLOAD_BYTES, LATER_PAYLOAD_BYTES, SECOND_PAYLOAD_BYTES, Seal, SealRequest, Sealed,
    prologue,
};
use super::{ControlOutput, Ended, Holder, Role, SessionInput, SessionState, Sessions};
use crate::backend::Route;
use crate::config::{
    HANDSHAKE_COST, HANDSHAKE_RESERVE, HANDSHAKE_SHARE, HANDSHAKE_SPAN, PROOF_INTERVAL,
    PROOFS_AT_ONCE,
};
use crate::keys::{KeyId, Keys, NoKeys, Psk, Stage};
use crate::time::{Duration, Instant};
use crate::wire::{
    Connect, Features, Header, PacketType, Probe, RefuseReason, RequestNumber, Seed, intended_of,
};
use std::sync::Arc;
use trine_seal::{Csprng, MESSAGE_OVERHEAD, ResetKey, Responder};

/// What an endpoint needs for sealed sessions.
pub(super) struct Trust {
    pub(super) keys: Keys,
    pub(super) rng: Csprng,
    budget: Budget,
    proofs: Proofs,
    halves: Halves,
}

impl Trust {
    pub(super) fn new(keys: Keys) -> Self {
        Self {
            rng: Csprng::new((keys.entropy)()),
            keys,
            budget: Budget::default(),
            proofs: Proofs::default(),
            halves: Halves::default(),
        }
    }

    /// Reads a handshake's first message. `None` if its sender does not hold the key, did not make it for this cookie and
    /// this server, or is this server itself.
    fn read(
        &mut self,
        connect: &Connect,
        wish: &SealRequest<'_>,
        psk: &Psk,
        own: u64,
    ) -> Option<Responder> {
        if !wish.returns_cookie(connect, psk) || connect.incarnation == own {
            return None;
        }
        let mut payload = [0; FIRST_PAYLOAD_BYTES + LATER_PAYLOAD_BYTES + MESSAGE_OVERHEAD];
        let prologue = prologue(connect, &wish.key);
        let read = Responder::read(psk, &prologue, &mut self.rng, wish.message, &mut payload);
        let (responder, len) = read.ok()?;
        let intended = intended_of(&payload[..len])?;
        (intended == 0 || intended == own).then_some(responder)
    }
}

/// The time that handshakes may take: one part in ten of an event loop's.
#[derive(Default)]
struct Budget {
    left: Duration,
    at: Instant,
}

impl Budget {
    /// Takes the time of a handshake, if there is as much. A part is kept for those that go first.
    fn take(&mut self, now: Instant, goes_first: bool) -> bool {
        let earned = now.saturating_since(self.at).as_nanos() / HANDSHAKE_SHARE;
        self.left = (self.left + Duration::from_nanos(earned)).min(HANDSHAKE_SPAN);
        self.at = now;
        let kept = if goes_first {
            Duration::ZERO
        } else {
            HANDSHAKE_RESERVE
        };
        if self.left < kept + HANDSHAKE_COST {
            return false;
        }
        self.left -= HANDSHAKE_COST;
        true
    }
}

/// The proofs that an endpoint makes for RESETs: strangers can ask for them.
#[derive(Default)]
struct Proofs {
    left: u64,
    at: Instant,
}

impl Proofs {
    /// Takes one, if there is one.
    fn take(&mut self, now: Instant) -> bool {
        let earned = now.saturating_since(self.at).as_nanos() / PROOF_INTERVAL.as_nanos();
        if earned > 0 {
            self.left = (self.left + earned).min(PROOFS_AT_ONCE);
            self.at = now;
        }
        let has_one = self.left > 0;
        self.left = self.left.saturating_sub(1);
        has_one
    }
}

/// What is to be done about a CONNECT.
pub(super) enum Wanted {
    /// An unsealed session.
    Unsealed,
    /// Nothing any more.
    Done,
}

impl<R: Route> Sessions<R> {
    /// From now on sessions may, or must, be sealed. Those that are established stay.
    pub(crate) fn set_keys(&mut self, keys: Keys) {
        match &mut self.trust {
            Some(trust) => trust.keys = keys,
            None => self.trust = Some(Box::new(Trust::new(keys))),
        }
    }

    /// Forgets all keys. Packets of sealed sessions that wait to be sealed are lost.
    pub(crate) fn forget_keys(&mut self) {
        if let Some(trust) = &mut self.trust {
            trust.keys = Keys {
                stage: Stage::Require,
                ring: Arc::new(NoKeys),
                own: None,
                entropy: Arc::clone(&trust.keys.entropy),
                key_log: None,
            };
        }
        self.table.forget_keys();
    }

    /// Whether sessions without keys are allowed; `None` without keys.
    pub(crate) fn stage(&self) -> Option<Stage> {
        self.trust.as_ref().map(|trust| trust.keys.stage)
    }

    /// Whether packets may be sealed at all.
    #[inline(always)]
    pub(crate) fn has_keys(&self) -> bool {
        self.trust.is_some()
    }

    /// Handles a CONNECT of a sender that has proven its address, as far as keys matter.
    pub(super) fn consider_keys(
        &mut self,
        now: Instant,
        route: R,
        connect: &Connect,
        after: &[u8],
        admits: impl FnOnce(&KeyId) -> bool,
        out: &mut ControlOutput<'_, R>,
    ) -> Wanted {
        let Some(trust) = &mut self.trust else {
            return Wanted::Unsealed;
        };
        if !connect.features.has(Features::SEALED) {
            if trust.keys.stage == Stage::Require {
                refuse(route, connect, RefuseReason::KeyRequired, 0, out);
                return Wanted::Done;
            }
            return Wanted::Unsealed;
        }
        let Some(wish) = SealRequest::read(after) else {
            out.stats.drops.handshake += 1;
            return Wanted::Done;
        };
        let Some(psk) = trust.keys.find(&wish.key) else {
            refuse(route, connect, RefuseReason::KeyUnknown, 0, out);
            return Wanted::Done;
        };
        let own = self.identity.incarnation;
        let Some(responder) = trust.read(connect, &wish, &psk, own) else {
            out.stats.drops.handshake += 1;
            refuse(route, connect, RefuseReason::KeyWrong, 0, out);
            return Wanted::Done;
        };
        // Whoever does not hold the key is not told whether it still counts.
        if !admits(&wish.key) {
            refuse(route, connect, RefuseReason::KeyUnknown, 0, out);
            return Wanted::Done;
        }
        let goes_first = trust.keys.ring.goes_first(&wish.key);
        if !trust.budget.take(now, goes_first) {
            // The client asks again.
            out.stats.handshakes_deferred += 1;
            return Wanted::Done;
        }
        self.open_half(now, route, connect, responder, &psk, wish.key, out);
        Wanted::Done
    }

    #[allow(clippy::too_many_arguments)] // all of a handshake
    fn open_half(
        &mut self,
        now: Instant,
        route: R,
        connect: &Connect,
        responder: Responder,
        psk: &Psk,
        key: KeyId,
        out: &mut ControlOutput<'_, R>,
    ) {
        let goes_first = self.goes_first(&key);
        self.forget_oldest_half(goes_first);
        let mut terms = self.terms_for(now, &route, connect);
        terms.features = terms
            .features
            .with_if(true, Features::SEALED)
            .without(Features::HEADER_CHECKSUMS);
        let give_up_at = now + self.settings.failure_timeout;
        let Some(id) = self.insert_server(now, give_up_at, route, connect, terms) else {
            refuse(route, connect, RefuseReason::Full, 0, out);
            return;
        };
        let body = self.accept_of(id).write();
        let mut message = [0; SECOND_PAYLOAD_BYTES + MESSAGE_OVERHEAD];
        let session = &mut self.table[id.index];
        let begun = session.go(SessionInput::KeyShown);
        assert!(begun, "a fresh session cannot open");
        self.table.set_half_open(id.index);
        let session = &mut self.table[id.index];
        let Ok((keys, _)) = responder.answer(&body, &mut message) else {
            self.end_half(id.index);
            return;
        };
        let header = Header::new(PacketType::Accept, connect.client_session);
        let accept = [&body[..], &message].concat();
        out.send_bytes(route, &header, Seed::of_nonce(connect.nonce), &accept);
        session.seal(id.index, Sealed::new(now, &keys, psk, key));
        self.rearm(id.index, out.stats);
        if let Some(trust) = &mut self.trust {
            let nonce = connect.nonce;
            trust
                .halves
                .push(goes_first, HalfOpen { id, nonce, accept });
        }
    }

    /// Answers a CONNECT that has come again and whose ACCEPT was lost or is under way: with the same ACCEPT. False if
    /// this sender has no such half-open session. Another sender's with the same nonce is none of its concern: whoever
    /// saw the nonce on the way may have asked with it.
    pub(super) fn accept_half_again(
        &mut self,
        route: R,
        connect: &Connect,
        out: &mut ControlOutput<'_, R>,
    ) -> bool {
        let mut halves = self
            .trust
            .iter()
            .flat_map(|trust| trust.halves.with_nonce(connect.nonce));
        let asked_for = halves.find(|half| {
            self.table.get(half.id).is_some_and(|session| {
                session.state == SessionState::HalfOpen
                    && session.route == route
                    && session.remote == connect.client_session
            })
        });
        let Some(half) = asked_for else {
            return false;
        };
        let header = Header::new(PacketType::Accept, connect.client_session);
        let seed = Seed::of_nonce(connect.nonce);
        out.send_bytes(route, &header, seed, &half.accept);
        true
    }

    fn goes_first(&self, key: &KeyId) -> bool {
        let trust = self.trust.as_ref();
        trust.is_some_and(|trust| trust.keys.ring.goes_first(key))
    }

    /// Makes room for another half-open session.
    fn forget_oldest_half(&mut self, goes_first: bool) {
        let Some(trust) = &mut self.trust else {
            return;
        };
        let table = &self.table;
        let is_half = |id| {
            table
                .get(id)
                .is_some_and(|session| session.state == SessionState::HalfOpen)
        };
        if let Some(oldest) = trust.halves.make_room(goes_first, is_half) {
            self.end_half(oldest.index);
        }
    }

    /// A half-open session is over. Nobody knew of it.
    pub(super) fn end_half(&mut self, index: u16) {
        let ended = self.table[index].go(SessionInput::Silence);
        assert!(ended, "only a half-open session ends so");
        self.timers.remove(u32::from(index));
        // It has received nothing.
        let _ = self.table.release(index);
    }

    /// A packet that its keys sealed has come: the session is established. Returns the one that gave way to it, and
    /// whether it stands.
    pub(crate) fn on_proven(
        &mut self,
        now: Instant,
        index: u16,
        out: &mut ControlOutput<'_, R>,
    ) -> (Option<Ended>, bool) {
        let is_known = self.table[index].key().is_some_and(|key| {
            self.trust
                .as_ref()
                .is_some_and(|trust| trust.keys.find(&key).is_some())
        });
        if !is_known {
            // The key went between the handshake and its proof.
            self.end_half(index);
            return (None, false);
        }
        let holder = self.holder_of_key(index);
        let terms = self.table[index].terms;
        let (ended, has_room) = self.make_room(now, &terms, holder, out);
        let session = &mut self.table[index];
        if !has_room {
            let body = Probe {
                sender_session: index,
                nonce: session.nonce,
            };
            let header = Header {
                request: RequestNumber::token(self.secret.draw()),
                ..Header::new(PacketType::Disconnect, session.remote)
            };
            out.push(session.control(&header, &body.write()));
            self.end_half(index);
            return (ended, false);
        }
        let opened = session.go(SessionInput::Proven);
        assert!(opened, "a half-open session cannot open");
        session.heard_at = now;
        self.table.prove(index);
        self.table.name(index);
        self.log_secrets(index);
        self.enter(index, holder, out);
        (ended, true)
    }

    /// Writes the secrets of a session that is established, if there is a key log.
    pub(super) fn log_secrets(&self, index: u16) {
        let log = self
            .trust
            .as_ref()
            .and_then(|trust| trust.keys.key_log.as_ref());
        let session = &self.table[index];
        if let (Some(log), Seal::On(sealed)) = (log, &session.seal) {
            let is_client = matches!(session.role, Role::Client(_));
            log.on_session(&sealed.secrets(session.nonce, is_client));
        }
    }

    /// Whom a session is counted for whose client holds a key: whatever its address.
    fn holder_of_key(&self, index: u16) -> Holder {
        match self.table[index].key() {
            None => Holder::Shared,
            Some(key) if self.goes_first(&key) => Holder::Privileged,
            Some(key) => Holder::of_key(&key),
        }
    }

    /// Answers a sealed PING or DISCONNECT of a session that is not here: a RESET that only a holder of the key can make.
    pub(crate) fn reset_sealed(
        &mut self,
        now: Instant,
        route: R,
        body: &[u8],
        token: RequestNumber,
        out: &mut ControlOutput<'_, R>,
    ) {
        let key = Probe::read(body).and_then(|(probe, key)| Some((probe, KeyId::new(key)?)));
        let (Some(trust), Some((probe, key))) = (&mut self.trust, key) else {
            out.stats.drops.handshake += 1;
            return;
        };
        if !trust.proofs.take(now) {
            // The peer asks again.
            out.stats.handshakes_deferred += 1;
            return;
        }
        let Some(psk) = trust.keys.find(&key) else {
            out.stats.drops.no_session += 1;
            return;
        };
        send_reset(route, &probe, token, &ResetKey::of(&psk), out);
    }
}

/// Says that the peer's session is not known here, with the proof that the peer asks for.
pub(super) fn send_reset<R: Route>(
    route: R,
    probe: &Probe,
    token: RequestNumber,
    key: &ResetKey,
    out: &mut ControlOutput<'_, R>,
) {
    let header = Header {
        request: token,
        ..Header::new(PacketType::Reset, probe.sender_session)
    };
    let mac = key.mac(probe.nonce, token.bits());
    out.send_bytes(route, &header, Seed::NONE, &mac);
}
