//! Keys of an endpoint: which of its sessions are sealed, and by what.

use std::fmt;
use std::sync::Arc;

pub use trine_seal::Psk;

/// Bytes of a [`KeyId`] at most.
pub const KEY_ID_BYTES_MAX: usize = 48;

/// The name of a key, which a client sends readable for all. What its bytes mean is the program's own matter.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId {
    len: u8,
    bytes: [u8; KEY_ID_BYTES_MAX],
}

impl KeyId {
    /// The name with these bytes; `None` if there are none, or more than [`KEY_ID_BYTES_MAX`].
    #[must_use]
    pub fn new(name: &[u8]) -> Option<Self> {
        if name.is_empty() {
            return None;
        }
        let mut bytes = [0; KEY_ID_BYTES_MAX];
        bytes.get_mut(..name.len())?.copy_from_slice(name);
        // At most 48.
        let len = name.len() as u8;
        Some(Self { len, bytes })
    }
}

impl KeyId {
    /// A number that two names hardly share. It is no secret.
    pub(crate) fn hash(&self) -> u64 {
        use std::hash::{Hash, Hasher};
        let mut hasher = siphasher::sip::SipHasher13::new();
        Hash::hash(self, &mut hasher);
        hasher.finish()
    }
}

impl std::ops::Deref for KeyId {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyId({})", self.escape_ascii())
    }
}

/// The keys that a server knows. It is asked in handshakes only.
pub trait KeyRing: Send + Sync {
    /// The key of this name. `None` if there is none now.
    fn find(&self, key: &KeyId) -> Option<Psk>;

    /// Whether handshakes with this key come before others when there are many: those of other members.
    fn goes_first(&self, key: &KeyId) -> bool {
        let _ = key;
        false
    }
}

/// A ring without keys, for endpoints that only open sessions.
#[derive(Copy, Clone, Debug)]
pub struct NoKeys;

impl KeyRing for NoKeys {
    fn find(&self, _: &KeyId) -> Option<Psk> {
        None
    }
}

/// Whether sessions without keys are allowed.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub enum Stage {
    /// Sessions with and without keys. This endpoint uses its own key towards peers that take it. Whoever can change
    /// packets can have that left out.
    #[default]
    Accept,
    /// Only sealed sessions.
    Require,
}

/// The key that an endpoint opens its own sessions with.
#[derive(Clone, Debug)]
pub struct OwnKey {
    /// Its name.
    pub id: KeyId,
    /// The key.
    pub psk: Psk,
}

/// Where the seed of an endpoint's ephemeral keys comes from: 32 bytes that nobody can foretell, others with each call.
/// The operating system's in a program, those of the seed in a simulation.
pub type Entropy = Arc<dyn Fn() -> [u8; 32] + Send + Sync>;

/// Where the secrets of sessions are written, for tools that read recorded packets. Whoever has them can read all packets.
pub trait KeyLog: Send + Sync {
    /// A session is established. Called once for each by each end that has a log.
    fn on_session(&self, secrets: &SessionSecrets);
}

/// The secrets of a session. Displayed, they are two lines of a key log: label, the session's nonce and a secret, in
/// hexadecimal digits.
pub struct SessionSecrets {
    pub(crate) nonce: u64,
    /// Of the packets that the client seals.
    pub(crate) client: String,
    pub(crate) server: String,
}

impl fmt::Display for SessionSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nonce = self.nonce;
        writeln!(f, "TRINE_CLIENT_SECRET_0 {nonce:016x} {}", self.client)?;
        writeln!(f, "TRINE_SERVER_SECRET_0 {nonce:016x} {}", self.server)
    }
}

impl fmt::Debug for SessionSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionSecrets({:016x})", self.nonce)
    }
}

/// What an endpoint knows of keys.
#[derive(Clone)]
pub struct Keys {
    /// Whether sessions without keys are allowed.
    pub stage: Stage,
    /// The keys of callers.
    pub ring: Arc<dyn KeyRing>,
    /// This endpoint's own.
    pub own: Option<OwnKey>,
    /// Asked once by each endpoint.
    pub entropy: Entropy,
    /// Where the secrets of sessions are written; nowhere if absent.
    pub key_log: Option<Arc<dyn KeyLog>>,
}

impl Keys {
    /// The key of this name: a caller's, or this endpoint's own.
    pub(crate) fn find(&self, key: &KeyId) -> Option<Psk> {
        let own = self.own.as_ref().filter(|own| own.id == *key);
        own.map_or_else(|| self.ring.find(key), |own| Some(own.psk.clone()))
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own = self.own.as_ref().map(|own| own.id);
        write!(f, "Keys {{ stage: {:?}, own: {own:?} }}", self.stage)
    }
}
