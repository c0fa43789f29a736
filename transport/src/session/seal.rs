//! The sealing of one session: the handshake under way, then its keys.

use super::ConnectError;
use crate::config::{
    SEALED_PACKETS_GRACE, SEALED_PACKETS_MAX, SEALED_SESSION_GRACE, SEALED_SESSION_MAX,
};
use crate::keys::{KeyId, OwnKey, Psk, SessionSecrets};
use crate::time::Instant;
use crate::wire::{Accept, Connect, intended_bytes};
use trine_seal::{
    COOKIE_PROOF_BYTES, CookieKey, Csprng, HandshakeFailed, Initiator, MESSAGE_OVERHEAD, Opener,
    ResetKey, Sealer, SessionKeys,
};

/// Bytes of CONNECT that the handshake covers: all but the cookie, which has a proof of its own.
const COVERED_BYTES: usize = 32;
/// The payload of the first message: the incarnation of the intended server, or 0.
pub(super) const FIRST_PAYLOAD_BYTES: usize = 8;
/// The most bytes that a later release can put behind it. They are authenticated and skipped.
pub(super) const LATER_PAYLOAD_BYTES: usize = 64;
/// The payload of the second message: the body of ACCEPT.
pub(super) const SECOND_PAYLOAD_BYTES: usize = 24;

/// How the packets of a session are protected.
#[derive(Default)]
pub(crate) enum Seal {
    /// By checksums.
    #[default]
    Off,
    /// By checksums still: a client waits for the answer to its handshake.
    Asked(Box<Attempt>),
    /// They are sealed.
    On(Box<Sealed>),
}

/// A client's handshake: its message is made once, and sent as often as is needed.
pub(crate) struct Attempt {
    initiator: Initiator,
    message: [u8; FIRST_PAYLOAD_BYTES + MESSAGE_OVERHEAD],
    key: OwnKey,
    cookie_key: CookieKey,
    /// The CONNECT that the message was made for, but for its cookie.
    connect: Connect,
    /// What the server is said to have against the session. Anybody may have said it.
    pub(super) obstacle: Option<ConnectError>,
}

impl Attempt {
    pub(super) fn begin(own: &OwnKey, connect: &Connect, intended: u64, rng: &mut Csprng) -> Self {
        let mut message = [0; FIRST_PAYLOAD_BYTES + MESSAGE_OVERHEAD];
        let (prologue, payload) = (prologue(connect, &own.id), intended_bytes(intended));
        let (initiator, len) = Initiator::begin(&own.psk, &prologue, rng, &payload, &mut message);
        debug_assert_eq!(len, message.len(), "the message has a fixed size");
        Self {
            initiator,
            message,
            key: own.clone(),
            cookie_key: CookieKey::of(&own.psk),
            connect: *connect,
            obstacle: None,
        }
    }

    /// The key that it is made with.
    pub(super) fn key_id(&self) -> KeyId {
        self.key.id
    }

    /// The body of the first CONNECT, which asks for a cookie.
    pub(super) fn question(&self) -> Vec<u8> {
        self.connect.write().to_vec()
    }

    /// The body of a CONNECT that returns this cookie. Nothing in it changes from one cookie to the next but the cookie
    /// and its proof.
    pub(super) fn body(&self, cookie: u64) -> Vec<u8> {
        let connect = Connect {
            cookie,
            ..self.connect
        };
        let id = &self.key.id;
        // At most 48.
        let len = id.len() as u8;
        let mut body = [&connect.write()[..], &[len], &id[..], &self.message].concat();
        let proof = self.cookie_key.proof(&body);
        body.extend_from_slice(&proof);
        body
    }

    /// The session's keys and the ACCEPT that they vouch for, if the server's message is the answer. The readable copy of
    /// ACCEPT may have been changed on the way.
    pub(super) fn finish(
        &mut self,
        now: Instant,
        message: &[u8],
    ) -> Result<(Sealed, Accept), HandshakeFailed> {
        let mut payload = [0; SECOND_PAYLOAD_BYTES + MESSAGE_OVERHEAD];
        let (keys, len) = self.initiator.finish(message, &mut payload)?;
        let accept = Accept::of_sealed(&payload[..len]).ok_or(HandshakeFailed)?;
        Ok((Sealed::new(now, &keys, &self.key.psk, self.key.id), accept))
    }
}

/// A request for a sealed session, as CONNECT carries it.
pub(super) struct SealRequest<'a> {
    pub(super) key: KeyId,
    pub(super) message: &'a [u8],
    /// What follows CONNECT's own fields, up to the proof.
    proven: &'a [u8],
    proof: &'a [u8],
}

impl<'a> SealRequest<'a> {
    /// Reads what follows CONNECT's own fields.
    pub(super) fn read(after: &'a [u8]) -> Option<Self> {
        let (proven, proof) = after.split_last_chunk::<COOKIE_PROOF_BYTES>()?;
        let (len, named) = proven.split_first()?;
        let (key, message) = named.split_at_checked(usize::from(*len))?;
        Some(Self {
            key: KeyId::new(key)?,
            message,
            proven,
            proof,
        })
    }

    /// Whether a holder of the key returns the cookie: the message was not recorded and sent with another one.
    pub(super) fn returns_cookie(&self, connect: &Connect, psk: &Psk) -> bool {
        let body = [&connect.write()[..], self.proven].concat();
        CookieKey::of(psk).is_good(&body, self.proof)
    }
}

/// The bytes that both ends of a handshake must mean alike.
pub(super) fn prologue(connect: &Connect, key: &KeyId) -> Vec<u8> {
    [b"trine 1 ", &connect.write()[..COVERED_BYTES], &key[..]].concat()
}

/// The keys of a session.
pub(crate) struct Sealed {
    pub(crate) sealer: Sealer,
    pub(crate) opener: Opener,
    pub(super) reset: ResetKey,
    pub(super) key: KeyId,
    pub(crate) since: Instant,
    /// When the peer was said not to know the session, since the first PING that is unanswered. A living peer answers the
    /// next one.
    pub(super) doubted_at: Option<Instant>,
}

impl Sealed {
    pub(super) fn new(now: Instant, keys: &SessionKeys, psk: &Psk, key: KeyId) -> Self {
        Self {
            sealer: keys.sealer(),
            opener: keys.opener(),
            reset: ResetKey::of(psk),
            key,
            since: now,
            doubted_at: None,
        }
    }

    /// The secrets of a fresh session, as a client or as a server has them.
    pub(super) fn secrets(&self, nonce: u64, is_client: bool) -> SessionSecrets {
        let (ours, theirs) = (self.sealer.for_key_log(), self.opener.for_key_log());
        let (client, server) = if is_client {
            (ours, theirs)
        } else {
            (theirs, ours)
        };
        SessionSecrets {
            nonce,
            client,
            server,
        }
    }

    /// Its keys have been used for long enough: the client makes another session.
    pub(super) fn is_worn(&self, now: Instant) -> bool {
        self.sealer.drawn().max(self.opener.highest()) >= SEALED_PACKETS_MAX
            || now.saturating_since(self.since) >= SEALED_SESSION_MAX
    }

    /// Its client has not ended it in time, so the server does.
    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        let packets_max = SEALED_PACKETS_MAX + SEALED_PACKETS_GRACE;
        self.sealer.drawn().max(self.opener.highest()) >= packets_max
            || now.saturating_since(self.since) >= SEALED_SESSION_MAX + SEALED_SESSION_GRACE
    }
}

/// The mark of a session's packets until they are sealed: its index, and part of its generation.
pub(super) fn mark(index: u16, generation: u32) -> u32 {
    generation << 16 | u32::from(index)
}
