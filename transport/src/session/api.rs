//! Sessions as a program sees them: names, identities, events.

use std::fmt;

use crate::backend::Route;
use crate::time::Duration;
pub use crate::wire::BadTerm;

/// Names a session of this endpoint; a later session at the same index has another generation.
#[derive(Copy, Clone, Debug, Eq, PartialEq, Hash, Ord, PartialOrd)]
pub struct SessionId {
    pub(crate) index: u16,
    pub(crate) generation: u32,
}

/// Who an endpoint is; the handshake carries it.
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq, Hash)]
pub struct Identity {
    /// The group that this endpoint belongs to; 0 means none yet. Two different ones never connect.
    pub cluster: u64,
    /// Drawn again at each boot of a process without a disk: tells a returned peer from the old one.
    pub incarnation: u64,
}

/// The other end's route and identity.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct PeerInfo<R> {
    /// Where its packets go.
    pub route: R,
    /// Who it said it is.
    pub identity: Identity,
}

/// Wishes for one session; `None` takes the endpoint's configuration.
#[derive(Copy, Clone, Debug, Default)]
pub struct ConnectParams {
    /// Packets in flight.
    pub credits: Option<u16>,
    /// Concurrent requests.
    pub slots: Option<u8>,
    /// How long to try.
    pub timeout: Option<Duration>,
    /// The incarnation of the server that is meant. A sealed session with another one is refused. 0: any.
    pub intended: u64,
}

/// Why `connect` did not even start.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum ConnectRefused {
    /// `Config::sessions` are in use.
    TooManySessions,
    /// The receive queue has no room for another session's credits; see `Config::overcommit`.
    NoCredits,
    /// Credits or slots are out of range.
    BadParams,
}

/// Why a session could not be made.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum ConnectError {
    /// The peer did not answer in time.
    TimedOut,
    /// The peer belongs to another group.
    WrongCluster {
        /// The peer's cluster id.
        theirs: u64,
    },
    /// The peer speaks another version of the protocol.
    VersionMismatch {
        /// The peer's version.
        theirs: u8,
    },
    /// The peer has no room for another session.
    PeerFull,
    /// The peer makes no session with this number of credits or slots, or this MTU.
    BadTerms {
        /// Which of them.
        term: BadTerm,
        /// The nearest number that the peer takes: credits, slots, or bytes of a packet.
        nearest: u64,
    },
    /// The peer refused for a reason that this release does not know.
    OtherReason {
        /// The reason on the wire.
        code: u8,
    },
    /// The two ends do not agree about keys.
    Key(KeyObstacle),
    /// The caller took it back with `disconnect`.
    Cancelled,
}

/// What stands between two ends when it comes to keys. The peer has said it, and nothing proves that it was the peer.
#[derive(Copy, Clone, Debug, Eq, PartialEq, Hash)]
pub enum KeyObstacle {
    /// The peer takes only sessions that a key seals, and this endpoint has none.
    Required,
    /// The peer does not know the key that this endpoint presented.
    Unknown,
    /// The peer knows a key of this name, and it is another one.
    Wrong,
    /// The peer takes no keys, and this endpoint requires them.
    NotTaken,
}

impl fmt::Display for KeyObstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Required => "it takes only callers with a key, and none was given",
            Self::Unknown => "it does not know this key: the key was removed or replaced, or belongs to another group",
            Self::Wrong => "it knows another key of this name: this key was replaced, or belongs to another group",
            Self::NotTaken => "it takes no keys, and a session without one is not allowed here",
        })
    }
}

impl fmt::Display for BadTerm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Credits => "credits",
            Self::Slots => "slots",
            Self::Mtu => "MTU",
        })
    }
}

/// Why a session ended.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum DownReason {
    /// This side disconnected.
    Disconnected,
    /// The peer disconnected.
    PeerDisconnected,
    /// The peer does not know the session any more: it has restarted or given it up.
    Reset,
    /// No packet at all came for the failure timeout.
    TimedOut,
    /// The peer broke the protocol.
    Violation,
    /// A slot has had [`SEQUENCES_MAX`](crate::config::SEQUENCES_MAX) requests.
    NumbersUsedUp,
    /// There was no room for another caller's session or message, and the peer's address held most.
    GaveWay,
    /// Packets of the session's size vanished while smaller ones arrived. The next session has smaller packets.
    BlackHole,
}

impl fmt::Display for DownReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Disconnected => "this side ended the session",
            Self::PeerDisconnected => "the peer ended the session",
            Self::Reset => {
                "the peer does not know the session any more, because it has restarted or given it up; connect again"
            }
            Self::TimedOut => {
                "the peer is silent: its process has ended, its device, queue pair or port is broken, or the network \
                 in between is; see what the peer itself reports, start it anew and connect again"
            }
            Self::Violation => "the peer broke the protocol; run the same release on both sides",
            Self::NumbersUsedUp => "the session has used up its request numbers; connect again",
            Self::GaveWay => "there was no room for other callers, and this one's address held most",
            Self::BlackHole => {
                "the path does not carry packets as large as --mtu says; for a while sessions there have packets of 1,232 \
                 bytes; lower --mtu, or raise the MTU of the links and routers on the way"
            }
        })
    }
}

/// News about sessions.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum Event<R: Route> {
    /// `connect` succeeded: requests can be enqueued.
    Connected {
        /// The session.
        session: SessionId,
        /// The server.
        peer: PeerInfo<R>,
    },
    /// `connect` failed; the id is free again.
    ConnectFailed {
        /// The session that was to be.
        session: SessionId,
        /// Its destination.
        route: R,
        /// Why.
        reason: ConnectError,
    },
    /// A peer connected to this endpoint.
    Accepted {
        /// The session's server end.
        session: SessionId,
        /// The client.
        peer: PeerInfo<R>,
    },
    /// A session, of either mode, is over. Its pending requests complete with an error, before this or after.
    Down {
        /// The session.
        session: SessionId,
        /// Why.
        reason: DownReason,
    },
}
