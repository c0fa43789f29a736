//! The result of an operation: an answer, or an error that says precisely whether it can have been applied.

use std::fmt;
use std::net::SocketAddr;

use trine_kvstore::{DecodeError, Position, Response};
use trine_transport::buf::MsgBuf;
use trine_transport::session::ConnectError;
use trine_transport::time::Duration;
use trine_transport::{BadTerm, KeyObstacle};

use trine_protocol::message::{ClientReply, ClientStatus, ClusterId, LeaderTiming, OtherVersion};
use trine_protocol::release::Release;

/// Responses up to this size travel inside the answer itself.
const INLINE_MAX: usize = 46;

/// Where the store's response lies.
#[derive(Debug)]
enum Body {
    /// In the buffer that the reply arrived in, behind its header.
    Reply(MsgBuf),
    /// Here: the reply came with others in one buffer.
    Inline { len: u8, bytes: [u8; INLINE_MAX] },
    /// The same, for a larger response.
    Boxed(Box<[u8]>),
}

/// The group's answer to one operation.
#[derive(Debug)]
pub struct Answer {
    position: Position,
    body: Body,
    timing: Option<WriteTiming>,
}

/// The time of one write, by stage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteTiming {
    /// In the client, until the answered attempt was sent; earlier attempts are part of it.
    pub client: Duration,
    /// From then until the answer was there.
    pub round_trip: Duration,
    /// The part of that time which the leader has accounted for.
    pub leader: LeaderTiming,
}

impl WriteTiming {
    /// The rest of the round trip: transport and network, there and back.
    #[must_use]
    pub const fn network(&self) -> Duration {
        self.round_trip
            .saturating_sub(Duration::from_nanos(self.leader_ns()))
    }

    const fn leader_ns(&self) -> u64 {
        let LeaderTiming {
            queue_ns,
            append_ns,
            quorum_ns,
            apply_ns,
        } = self.leader;
        queue_ns as u64 + append_ns as u64 + quorum_ns as u64 + apply_ns as u64
    }
}

impl Answer {
    /// Takes a reply whose status is `Ok` and whose response was decoded once.
    pub(super) const fn of_reply(position: Position, reply: MsgBuf) -> Self {
        Self {
            position,
            body: Body::Reply(reply),
            timing: None,
        }
    }

    /// A session was opened: its client id is the position.
    pub(super) fn of_registration(client: Position) -> Self {
        let mut response = Vec::new();
        Response::Done.encode(&mut response);
        Self::of_response(client, &response)
    }

    /// Copies a response that was decoded once.
    pub(super) fn of_response(position: Position, response: &[u8]) -> Self {
        let mut bytes = [0; INLINE_MAX];
        let body = match bytes.get_mut(..response.len()) {
            Some(front) => {
                front.copy_from_slice(response);
                Body::Inline {
                    len: response.len() as u8,
                    bytes,
                }
            }
            None => Body::Boxed(response.into()),
        };
        Self {
            position,
            body,
            timing: None,
        }
    }

    pub(super) const fn timed(mut self, timing: Option<WriteTiming>) -> Self {
        self.timing = timing;
        self
    }

    /// The time by stage, for a write that [`ClientConfig::time_every`](super::ClientConfig::time_every) has chosen.
    #[must_use]
    pub const fn timing(&self) -> Option<&WriteTiming> {
        self.timing.as_ref()
    }

    /// A write: the position where it was applied. A session that was opened: its client id. A read: the last position that it saw.
    #[must_use]
    pub const fn position(&self) -> Position {
        self.position
    }

    /// The store's response.
    ///
    /// # Errors
    /// Never for an answer from [`super::Clients`]: it checks before it hands out.
    pub fn response(&self) -> Result<Response<'_>, DecodeError> {
        Response::decode(match &self.body {
            Body::Reply(reply) => ClientReply::response_of(reply),
            Body::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Body::Boxed(response) => response,
        })
    }
}

/// The obstacle of an operation's last attempt.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Obstacle {
    /// No replica could be reached.
    NoConnection,
    /// No way to an address is known on this kind of network: no process announces one there, or it cannot be carried.
    NoRoute {
        /// The address.
        peer: SocketAddr,
    },
    /// A replica was reached and did not answer in time.
    NoAnswer,
    /// No replica leads at the moment.
    NoLeader,
    /// The leader hears from no majority.
    NoQuorum,
    /// The replicas belong to no group yet.
    NotAttached,
    /// The leader has too much waiting.
    Busy,
    /// The replica has no room for another session of the transport.
    Full,
    /// Every entry for client sessions is in use.
    SessionsFull,
    /// Most entries for client sessions are in use, and this caller's address has its share of them.
    SessionShareTaken,
    /// The answers that the group keeps for its clients fill more than half of their memory, and this user holds more than its
    /// share.
    ReplyShareTaken,
    /// The replicas belong to another cluster.
    WrongCluster {
        /// Theirs.
        theirs: ClusterId,
    },
    /// The replicas speak another version of the protocol.
    VersionMismatch {
        /// Theirs.
        theirs: u8,
    },
    /// The replica makes no session of the transport with this number of credits or slots, or this MTU.
    BadTerms {
        /// Which of them.
        term: BadTerm,
        /// The nearest number that the replica takes: credits, slots, or bytes of a packet.
        nearest: u64,
    },
    /// The replica and this client do not agree about keys.
    Key(KeyObstacle),
    /// The replica refused the session for a reason that this release does not know.
    OtherReason {
        /// The reason on the wire.
        code: u8,
    },
    /// The client's session was evicted, and with it the memory of what had been applied.
    SessionExpired,
    /// The sequence was given up already.
    Stale,
    /// Somebody else has used this client's session for another command.
    SequenceUsed,
    /// The session that the caller has named refuses the command.
    NamedSession(SessionRefusal),
    /// The command is larger than the group accepts.
    TooLarge,
    /// The caller has no right to a client session here.
    Denied,
    /// An attempt of a write had no answer, and the leader refused the next one. The leader did not look whether the first was
    /// applied. The caller has no right to the write any more, or the leader does not take such commands yet.
    RepeatRefused,
    /// The replica does not know the kind or the version of the message.
    OtherVersion(OtherVersion),
    /// The replica has answered with a status that this release does not know.
    OtherStatus {
        /// The status on the wire.
        status: u8,
        /// The replica's release, if the answer names it.
        release: Option<Release>,
    },
    /// The replica could not read the command: it runs another release.
    Malformed {
        /// The replica's, if the answer names it.
        release: Option<Release>,
    },
    /// The reply could not be read: the replica runs another release.
    UnreadableReply,
    /// The reply is a status that could not be read: the replica runs another release.
    UnreadableStatus {
        /// The replica's, if that part could be read.
        release: Option<Release>,
    },
    /// No message buffer was left in this process.
    NoBuffer,
    /// Large responses to other commands were under way for all that time.
    NoRoom,
}

/// Why a session that the caller keeps refuses a command that the caller has numbered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SessionRefusal {
    /// The sequence is below the lowest that the session awaits, so its answer is not kept any more.
    Stale,
    /// The sequence is too far above the lowest that the session awaits.
    Window,
    /// Another command has this sequence.
    SequenceUsed,
    /// There is no such session of the caller any more, or there never was. Whether an earlier copy of the command was
    /// applied cannot be found out.
    Lost,
}

impl SessionRefusal {
    /// What a reply with this status says about the session; nothing if it is about something else.
    pub(super) const fn of(status: ClientStatus) -> Option<Self> {
        match status {
            ClientStatus::Stale => Some(Self::Stale),
            ClientStatus::WindowExceeded => Some(Self::Window),
            ClientStatus::SequenceUsed => Some(Self::SequenceUsed),
            ClientStatus::SessionExpired => Some(Self::Lost),
            _ => None,
        }
    }
}

impl fmt::Display for SessionRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stale => "the sequence is below the lowest that its session awaits",
            Self::Window => "the sequence is too far above the lowest that its session awaits",
            Self::SequenceUsed => "another command has this sequence",
            Self::Lost => "there is no such session of this caller",
        })
    }
}

/// Why a connection could not be made.
impl From<ConnectError> for Obstacle {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::WrongCluster { theirs } => Self::WrongCluster {
                theirs: ClusterId(theirs),
            },
            ConnectError::VersionMismatch { theirs } => Self::VersionMismatch { theirs },
            ConnectError::PeerFull => Self::Full,
            ConnectError::BadTerms { term, nearest } => Self::BadTerms { term, nearest },
            ConnectError::Key(obstacle) => Self::Key(obstacle),
            ConnectError::OtherReason { code } => Self::OtherReason { code },
            ConnectError::TimedOut | ConnectError::Cancelled => Self::NoConnection,
        }
    }
}

impl fmt::Display for Obstacle {
    // Long because each obstacle has a sentence.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoConnection => {
                f.write_str("no replica could be reached; check the addresses and that they run")
            }
            Self::NoRoute { peer } => write!(f, "no replica announces itself at {peer}"),
            Self::NoAnswer => f.write_str("the replica did not answer in time"),
            Self::NoLeader => f.write_str("no replica leads at the moment"),
            Self::NoQuorum => f.write_str("the leader hears from no majority of the group"),
            Self::NotAttached => f.write_str(
                "the replica belongs to no group yet; if there is none, start one with --bootstrap",
            ),
            Self::Busy => f.write_str("the leader has too much waiting"),
            Self::Full => f.write_str("the replica has no room for another session"),
            Self::SessionsFull => f.write_str(
                "every client session of the group is in use, or the answers that it keeps for clients fill their memory",
            ),
            Self::SessionShareTaken => f.write_str(
                "most client sessions of the group are in use, and this address has its share of them",
            ),
            Self::ReplyShareTaken => f.write_str(
                "this user has its share of the memory for unacknowledged replies; acknowledge some, or wait for the replies \
                 to earlier commands",
            ),
            Self::WrongCluster { theirs } => {
                write!(f, "the replicas belong to another cluster, {theirs}")
            }
            Self::VersionMismatch { theirs } => {
                write!(
                    f,
                    "the replicas speak version {theirs} of the packets, and release {} speaks {}: run a release \
                     that speaks theirs",
                    Release::THIS,
                    trine_transport::wire::VERSION
                )
            }
            Self::BadTerms { term, nearest } => {
                write!(
                    f,
                    "the replica makes no session with this {term}; the nearest that it takes is {nearest}"
                )
            }
            Self::Key(obstacle) => write!(f, "the replica makes no session: {obstacle}"),
            Self::OtherReason { code } => {
                write!(
                    f,
                    "the replica refused the session for reason {code}, which release {} does not know; run the release of \
                     the replica",
                    Release::THIS
                )
            }
            Self::SessionExpired => {
                f.write_str("the client's session was evicted after a long silence")
            }
            Self::Stale => f.write_str("the command was already given up"),
            Self::SequenceUsed => f.write_str(
                "another process has given a command in this client's session: a copy of this one, as of a virtual machine",
            ),
            Self::NamedSession(refusal) => refusal.fmt(f),
            Self::TooLarge => f.write_str("the command is larger than the group takes"),
            Self::Denied => f.write_str(
                "denied: the caller has no valid key of this group",
            ),
            Self::RepeatRefused => f.write_str(
                "an attempt had no answer, and the next one was refused without a look at the first: the user was changed or \
                 removed, or the new leader does not take this command yet",
            ),
            Self::OtherVersion(other) => other.fmt(f),
            Self::OtherStatus { status, release } => {
                match release {
                    Some(release) => write!(f, "a replica of release {release}")?,
                    None => f.write_str("a replica of a later release")?,
                }
                write!(
                    f,
                    " has answered with status {status}, which release {} does not know",
                    Release::THIS
                )
            }
            Self::Malformed { release: Some(release) } => write!(
                f,
                "a replica of release {release} could not read the command of release {}: upgrade the older of the two",
                Release::THIS
            ),
            Self::Malformed { release: None } => write!(
                f,
                "the replica could not read the command of release {}; `trine status` shows which release it runs",
                Release::THIS
            ),
            Self::UnreadableReply => write!(
                f,
                "release {} could not read the reply; `trine status` shows which release the replica runs",
                Release::THIS
            ),
            Self::UnreadableStatus { release: Some(release) } => write!(
                f,
                "release {} cannot read the status of a replica of release {release}: use `trine` of release {release}",
                Release::THIS
            ),
            Self::UnreadableStatus { release: None } => write!(
                f,
                "release {} cannot read the status of the replica, not even which release it runs: use the `trine` of the \
                 replica's machine",
                Release::THIS
            ),
            Self::NoBuffer => f.write_str("no message buffer was left"),
            Self::NoRoom => f.write_str("large responses to other commands were still under way"),
        }
    }
}

/// Why an operation has no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// The command was not applied and never will be: no replica accepted it in time.
    #[error("not applied, the group was not reachable within {}: {obstacle}", .waited.rounded())]
    NotReachable {
        /// The obstacle of the last attempt.
        obstacle: Obstacle,
        /// How long it was tried.
        waited: Duration,
    },
    /// The command may have been applied, once, or may still be: it was sent and no answer can tell.
    #[error("outcome unknown after {}, it may have been applied: {obstacle}", .waited.rounded())]
    OutcomeUnknown {
        /// The obstacle of the last attempt.
        obstacle: Obstacle,
        /// How long it was tried.
        waited: Duration,
    },
    /// The command was not applied and never will be; trying again as it is would not help.
    #[error("not applied: {obstacle}")]
    Refused {
        /// Why.
        obstacle: Obstacle,
    },
}

impl Error {
    /// Whether the command certainly was not applied and never will be.
    #[must_use]
    pub const fn is_definitely_not_applied(&self) -> bool {
        !matches!(self, Self::OutcomeUnknown { .. })
    }

    /// The obstacle.
    #[must_use]
    pub const fn obstacle(&self) -> Obstacle {
        match self {
            Self::NotReachable { obstacle, .. }
            | Self::OutcomeUnknown { obstacle, .. }
            | Self::Refused { obstacle } => *obstacle,
        }
    }
}
