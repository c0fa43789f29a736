//! The bodies of control packets (PROTOCOL.md section 3).

use super::layout::{CONTROL_BYTES_MAX, HEADER_BYTES};

/// Features of the protocol. Both sides must have one to use it: the intersection is used.
#[derive(Copy, Clone, Debug, Eq, PartialEq, Default)]
pub struct Features(u8);

impl Features {
    /// One credit return may cover several request packets.
    pub const CUMULATIVE_CREDITS: Self = Self(1);
    /// A packet with more than 256 bytes after its header has the header alone in its checksum.
    pub const HEADER_CHECKSUMS: Self = Self(2);
    /// Packets are sealed: encrypted, and authenticated by a key that both ends hold.
    pub const SEALED: Self = Self(4);
    /// Credit returns and all response packets say how long the server had what they answer, not the first response
    /// packet alone.
    pub const ANSWER_TIMES: Self = Self(8);
    // 128 is reserved: it will say that more features follow.
    /// None.
    pub const NONE: Self = Self(0);

    /// This set but for `other`.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// What both have.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Both sets.
    #[must_use]
    pub fn with_if(self, condition: bool, other: Self) -> Self {
        if condition {
            Self(self.0 | other.0)
        } else {
            self
        }
    }

    /// Whether all of `other` are in.
    #[must_use]
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A client's wish for a session.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct Connect {
    /// The client's session index: where the server's packets go.
    pub client_session: u16,
    /// Packets in flight that the client would use.
    pub credits: u16,
    /// Slots that the client would use.
    pub slots: u8,
    /// The client's features.
    pub features: Features,
    /// The client's largest packet.
    pub mtu: u16,
    /// Drawn by the client for this session; seeds the checksums.
    pub nonce: u64,
    /// The client's group, or 0.
    pub cluster: u64,
    /// The client's incarnation.
    pub incarnation: u64,
    /// The server's cookie; 0 in the first CONNECT.
    pub cookie: u64,
}

/// A cookie to come back with.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct Cookie {
    /// A keyed hash of the CONNECT and its sender.
    pub cookie: u64,
}

/// The session is established, with these terms.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct Accept {
    /// The server's session index: where the client's packets go.
    pub server_session: u16,
    /// Packets in flight.
    pub credits: u16,
    /// Slots.
    pub slots: u8,
    /// The features of both.
    pub features: Features,
    /// The largest packet of the session.
    pub mtu: u16,
    /// The server's group, or 0.
    pub cluster: u64,
    /// The server's incarnation.
    pub incarnation: u64,
}

/// Why a server makes no session. On the wire it is two bytes: a reason and, behind it, a closer one or 0. A reader
/// that does not know the closer one takes the first byte alone.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum RefuseReason {
    /// `detail` is the server's version.
    Version,
    /// `detail` is the server's cluster id.
    Cluster,
    /// The server has no room.
    Full,
    /// The client wished for a number that no session can have; `detail` is the nearest one that a session can have.
    Terms(BadTerm),
    /// The server takes only sealed sessions.
    KeyRequired,
    /// The server does not know the key that the client named.
    KeyUnknown,
    /// The client does not hold the key that it named, or made its handshake for another server.
    KeyWrong,
    /// This first byte is of a later release.
    Unknown(u8),
}

/// The wish of a CONNECT that no session can have. Values are wire values: the second byte of a reason.
#[derive(Copy, Clone, Debug, Eq, PartialEq, Hash)]
#[repr(u8)]
pub enum BadTerm {
    /// No credits: 1 is the least.
    Credits = 1,
    /// No slots, or more than 64.
    Slots = 2,
    /// An MTU (UDP payload) below 512 bytes.
    Mtu = 3,
}

impl RefuseReason {
    /// As sent. Terms are "full" to a reader that knows the first byte only: releases before it drop a REFUSE with an
    /// unknown one, and would try until their time is up.
    fn code(self) -> [u8; 2] {
        match self {
            Self::Version => [1, 0],
            Self::Cluster => [2, 0],
            Self::Full => [3, 0],
            Self::Terms(term) => [3, term as u8],
            Self::KeyRequired => [4, 0],
            Self::KeyUnknown => [5, 0],
            Self::KeyWrong => [6, 0],
            Self::Unknown(code) => [code, 0],
        }
    }

    fn of_code(code: [u8; 2]) -> Self {
        match code {
            [3, 1] => Self::Terms(BadTerm::Credits),
            [3, 2] => Self::Terms(BadTerm::Slots),
            [3, 3] => Self::Terms(BadTerm::Mtu),
            [1, _] => Self::Version,
            [2, _] => Self::Cluster,
            [3, _] => Self::Full,
            [4, _] => Self::KeyRequired,
            [5, _] => Self::KeyUnknown,
            [6, _] => Self::KeyWrong,
            [other, _] => Self::Unknown(other),
        }
    }
}

/// No session.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct Refuse {
    /// Why.
    pub reason: RefuseReason,
    /// See [`RefuseReason`].
    pub detail: u64,
}

/// The body of PING and DISCONNECT: enough to answer, and to refuse, without a session.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct Probe {
    /// The sender's session index: where the answer goes.
    pub sender_session: u16,
    /// The session's nonce: tells the session from a later one at the same index.
    pub nonce: u64,
}

/// The body bytes of a control packet.
pub type Body = Bytes<{ CONTROL_BYTES_MAX - HEADER_BYTES }>;

impl Connect {
    /// As sent.
    #[must_use]
    pub fn write(&self) -> Body {
        Body::new()
            .put(&self.client_session.to_le_bytes())
            .put(&self.credits.to_le_bytes())
            .put(&[self.slots, self.features.0])
            .put(&self.mtu.to_le_bytes())
            .put(&self.nonce.to_le_bytes())
            .put(&self.cluster.to_le_bytes())
            .put(&self.incarnation.to_le_bytes())
            .put(&self.cookie.to_le_bytes())
    }

    /// Reads it, and returns the bytes after it: a wish for a sealed session, or fields of a later version. `None` for a
    /// wrong length.
    #[must_use]
    pub fn read(body: &[u8]) -> Option<(Self, &[u8])> {
        let (body, after) = body.split_first_chunk::<40>()?;
        let connect = Self {
            client_session: u16_at(body, 0),
            credits: u16_at(body, 2),
            slots: body[4],
            features: Features(body[5]),
            mtu: u16_at(body, 6),
            nonce: u64_at(body, 8),
            cluster: u64_at(body, 16),
            incarnation: u64_at(body, 24),
            cookie: u64_at(body, 32),
        };
        Some((connect, after))
    }
}

impl Cookie {
    /// As sent.
    #[must_use]
    pub fn write(&self) -> Body {
        Body::new().put(&self.cookie.to_le_bytes())
    }

    /// `None` unless the length is right.
    #[must_use]
    pub fn read(body: &[u8]) -> Option<Self> {
        let body: &[u8; 8] = body.try_into().ok()?;
        Some(Self {
            cookie: u64_at(body, 0),
        })
    }
}

impl Accept {
    /// As sent.
    #[must_use]
    pub fn write(&self) -> Body {
        Body::new()
            .put(&self.server_session.to_le_bytes())
            .put(&self.credits.to_le_bytes())
            .put(&[self.slots, self.features.0])
            .put(&self.mtu.to_le_bytes())
            .put(&self.cluster.to_le_bytes())
            .put(&self.incarnation.to_le_bytes())
    }

    /// Reads it, and returns the bytes after it: a handshake's message in a sealed session, otherwise none. `None` for a
    /// wrong length.
    #[must_use]
    pub fn read(body: &[u8]) -> Option<(Self, &[u8])> {
        let (body, message) = body.split_first_chunk::<24>()?;
        let accept = Self::of(body);
        let is_sealed = accept.features.has(Features::SEALED);
        (is_sealed != message.is_empty()).then_some((accept, message))
    }

    /// The one in the payload of a handshake.
    pub(crate) fn of_sealed(payload: &[u8]) -> Option<Self> {
        payload.try_into().ok().map(Self::of)
    }

    fn of(body: &[u8; 24]) -> Self {
        Self {
            server_session: u16_at(body, 0),
            credits: u16_at(body, 2),
            slots: body[4],
            features: Features(body[5]),
            mtu: u16_at(body, 6),
            cluster: u64_at(body, 8),
            incarnation: u64_at(body, 16),
        }
    }
}

impl Refuse {
    /// As sent.
    #[must_use]
    pub fn write(&self) -> Body {
        Body::new()
            .put(&self.reason.code())
            .put(&[0; 6])
            .put(&self.detail.to_le_bytes())
    }

    /// `None` for a wrong length. A later version may append fields.
    #[must_use]
    pub fn read(body: &[u8]) -> Option<Self> {
        let body: &[u8; 16] = body.first_chunk()?;
        Some(Self {
            reason: RefuseReason::of_code([body[0], body[1]]),
            detail: u64_at(body, 8),
        })
    }
}

impl Probe {
    /// As sent.
    #[must_use]
    pub fn write(&self) -> Body {
        Body::new()
            .put(&self.sender_session.to_le_bytes())
            .put(&[0; 6])
            .put(&self.nonce.to_le_bytes())
    }

    /// Reads it, and returns the bytes after it: the id of the key in a sealed session, otherwise none. `None` for a wrong
    /// length.
    #[must_use]
    pub fn read(body: &[u8]) -> Option<(Self, &[u8])> {
        let (body, key) = body.split_first_chunk::<16>()?;
        let probe = Self {
            sender_session: u16_at(body, 0),
            nonce: u64_at(body, 8),
        };
        Some((probe, key))
    }
}

/// The payload of a handshake's first message: the incarnation of the server that is meant, or 0.
#[must_use]
pub(crate) fn intended_bytes(incarnation: u64) -> [u8; 8] {
    incarnation.to_le_bytes()
}

/// Reads it; `None` if it is cut short. What follows belongs to a later release.
#[must_use]
pub(crate) fn intended_of(payload: &[u8]) -> Option<u64> {
    payload.first_chunk().copied().map(u64::from_le_bytes)
}

/// Up to `N` bytes, inline.
#[derive(Copy, Clone, Debug)]
pub struct Bytes<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Bytes<N> {
    fn new() -> Self {
        Self {
            bytes: [0; N],
            len: 0,
        }
    }

    fn put(mut self, part: &[u8]) -> Self {
        self.bytes[self.len..self.len + part.len()].copy_from_slice(part);
        self.len += part.len();
        self
    }
}

impl<const N: usize> std::ops::Deref for Bytes<N> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}
