//! A client's request to the group, and the reply.

use std::net::SocketAddr;

use super::MESSAGE_VERSION;
use super::address::{self, ADDRESS_SIZE};
use super::codec::{self, DecodeError, Encode, Reader, Writer, u32_at, u64_at};
use super::ids::{ClusterId, GroupId};
use super::other_status::{OTHER_VERSION_SIZE, OtherStatus, OtherVersion};
use super::timing::{LeaderTiming, TIMING_SIZE};
use crate::release::{RELEASE_SIZE, Release};

/// Bytes that each [`ClientRequest`] begins with.
pub const CLIENT_REQUEST_HEADER_SIZE: usize = 40;
/// Bytes behind the header of a request that names a user.
pub const CLIENT_REQUEST_USER_SIZE: usize = 8;
/// Bytes in front of the command of a request that has a check.
const CLIENT_REQUEST_CHECK_SIZE: usize = 4;
/// Bytes in front of the body of a [`ClientReply`].
pub const CLIENT_REPLY_HEADER_SIZE: usize = 24;

/// Bit of byte 2. In a request it asks for the timing of the write; in a reply it says that the timing is at the end.
const TIMED: u8 = 1;
/// Bit of byte 2 of a request: it names the user that it is for.
const FOR_USER: u8 = 2;
/// Bit of byte 2 of a request: it has a check.
const CHECKED: u8 = 4;

/// The check of a command that has none. It is like any other.
pub const NO_CHECK: u32 = 0;
/// Bits of a check.
const CHECK_MAX: u32 = (1 << 24) - 1;

/// The check of what was asked for, made of a checksum: never [`NO_CHECK`].
#[must_use]
pub const fn check_of(checksum: u32) -> u32 {
    match checksum & CHECK_MAX {
        NO_CHECK => 1,
        check => check,
    }
}

/// The operation on the command. The values are those of the log's entries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Operation {
    /// Open a client session through the log. No command; `client` is a random number of the client's own choice,
    /// the same on each retry; the reply's position is the client id.
    Register = 1,
    /// Apply the command exactly once under (client, sequence).
    Apply = 2,
    /// Apply as the client's last command, and end its session with it.
    ApplyAndClose = 3,
    /// Read the committed state. No session is needed.
    ReadLinearizable = 4,
    /// Read the state that this replica happens to have applied. No session, leader or quorum is needed.
    ReadStale = 5,
    /// Read the committed state at this replica, whether it leads or not. A follower asks its leader for the commit
    /// index, and answers once it has applied as much. No session is needed.
    ReadHere = 6,
}

impl Operation {
    /// In a request, 2 and 3 were writes that did not prove whose session they use: replicas do not answer those any
    /// more.
    const fn to_wire(self) -> u8 {
        match self {
            Self::Apply => 7,
            Self::ApplyAndClose => 8,
            other => other as u8,
        }
    }

    fn from_wire(byte: u8) -> Result<Self, DecodeError> {
        Ok(match byte {
            1 => Self::Register,
            4 => Self::ReadLinearizable,
            5 => Self::ReadStale,
            6 => Self::ReadHere,
            7 => Self::Apply,
            8 => Self::ApplyAndClose,
            _ => return Err(DecodeError::Field { field: "operation" }),
        })
    }

    /// Whether the operation goes through the log.
    #[must_use]
    pub const fn is_write(self) -> bool {
        matches!(self, Self::Register | Self::Apply | Self::ApplyAndClose)
    }
}

/// The user whom a front or a member sends a request for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ForUser {
    /// The user's number in the group, from 1.
    pub number: u32,
    /// The generation of the key that the user has shown. 0 if none was shown: then the present one counts.
    pub generation: u32,
}

impl ForUser {
    /// A user whose key was not asked for.
    #[must_use]
    pub const fn of_number(number: u32) -> Self {
        Self {
            number,
            generation: 0,
        }
    }

    fn to_bytes(self) -> [u8; CLIENT_REQUEST_USER_SIZE] {
        let mut bytes = [0; CLIENT_REQUEST_USER_SIZE];
        codec::set(&mut bytes, 0, self.number.to_le_bytes());
        codec::set(&mut bytes, 4, self.generation.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; CLIENT_REQUEST_USER_SIZE]) -> Result<Self, DecodeError> {
        match u32_at(bytes, 0) {
            0 => Err(DecodeError::Field { field: "user" }),
            number => Ok(Self {
                number,
                generation: u32_at(bytes, 4),
            }),
        }
    }
}

/// The client's envelope around a store command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientRequest<'a> {
    /// What to do.
    pub operation: Operation,
    /// Whether the reply to a write shall say where its time went.
    pub timed: bool,
    /// The raft group inside the cluster.
    pub group: GroupId,
    /// The cluster the client belongs to; [`ClusterId::NONE`] before it knows one (only to register and to read).
    pub cluster: ClusterId,
    /// The client id that registration gave (zero for reads).
    pub client: u64,
    /// Number of the command in its session, from 1. A retry carries the same number (zero for reads).
    pub sequence: u64,
    /// No reply below this sequence will be asked for again: their cached replies may go (zero for reads). At most 255
    /// below `sequence`.
    pub lowest_awaited: u64,
    /// The random number that the client drew when it registered. Only the client knows it, so it proves that the
    /// session is its own. Never zero for a write; zero for a registration, whose number is `client`, and for reads.
    pub session_number: u64,
    /// Tells one command from another: the lower 24 bits of a checksum that the client makes of what was asked for when it
    /// numbers the command, [`NO_CHECK`] for none. A sequence whose answer is kept is refused to a command with another
    /// check.
    pub check: u32,
    /// The user that the request is for, if that is not the caller itself.
    pub for_user: Option<ForUser>,
    /// The encoded store command; empty for [`Operation::Register`].
    pub command: &'a [u8],
}

impl<'a> ClientRequest<'a> {
    /// An envelope that names no client yet and holds no command.
    #[must_use]
    pub const fn bare(operation: Operation) -> Self {
        Self {
            operation,
            timed: false,
            group: GroupId(0),
            cluster: ClusterId::NONE,
            client: 0,
            sequence: 0,
            lowest_awaited: 0,
            session_number: 0,
            check: NO_CHECK,
            for_user: None,
            command: &[],
        }
    }

    /// Bytes in front of the command.
    #[must_use]
    pub const fn header_len(&self) -> usize {
        let user = match self.for_user {
            Some(_) => CLIENT_REQUEST_USER_SIZE,
            None => 0,
        };
        let check = match self.check {
            NO_CHECK => 0,
            _ => CLIENT_REQUEST_CHECK_SIZE,
        };
        CLIENT_REQUEST_HEADER_SIZE + user + check
    }

    /// Writes this envelope's cluster, client, sequence, lowest awaited sequence and session number into an encoded
    /// request: a client knows them only when it sends. Everything else stays as it was encoded.
    ///
    /// # Panics
    /// When `request` is shorter than [`CLIENT_REQUEST_HEADER_SIZE`]: it was not made by [`ClientRequest`].
    pub fn fill_in(&self, request: &mut [u8]) {
        let front = request
            .first_chunk_mut::<CLIENT_REQUEST_HEADER_SIZE>()
            .expect("a request has its header");
        front[3] = self.awaited_below();
        codec::set(front, 8, self.cluster.0.to_le_bytes());
        codec::set(front, 16, self.client.to_le_bytes());
        codec::set(front, 24, self.sequence.to_le_bytes());
        codec::set(front, 32, self.session_number.to_le_bytes());
    }

    /// The distance from the lowest awaited sequence to this one, as encoded.
    fn awaited_below(&self) -> u8 {
        let below = self.sequence.saturating_sub(self.lowest_awaited);
        debug_assert!(below <= u64::from(u8::MAX), "a window is far smaller");
        u8::try_from(below).unwrap_or(u8::MAX)
    }

    /// Asks, in an encoded request, for the timing of a write.
    ///
    /// # Panics
    /// When `request` is shorter than [`CLIENT_REQUEST_HEADER_SIZE`].
    pub fn ask_for_timing(request: &mut [u8]) {
        assert!(request.len() >= CLIENT_REQUEST_HEADER_SIZE);
        request[2] |= TIMED;
    }

    /// Reads an envelope; the command itself stays undecoded.
    ///
    /// # Errors
    /// When it is cut short, of another version, or its operation has no meaning.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let (front, rest) = codec::front::<CLIENT_REQUEST_HEADER_SIZE>(bytes)?;
        if front[2] & !(TIMED | FOR_USER | CHECKED) != 0 {
            return Err(DecodeError::Field { field: "flags" });
        }
        let (for_user, rest) = match front[2] & FOR_USER {
            0 => (None, rest),
            _ => {
                let (user, rest) = split(rest)?;
                (Some(ForUser::from_bytes(user)?), rest)
            }
        };
        let (check, command) = match front[2] & CHECKED {
            0 => (NO_CHECK, rest),
            _ => {
                let (check, command) = split::<CLIENT_REQUEST_CHECK_SIZE>(rest)?;
                (checked(u32_at(check, 0))?, command)
            }
        };
        let sequence = u64_at(front, 24);
        Ok(Self {
            operation: Operation::from_wire(front[1])?,
            timed: front[2] & TIMED != 0,
            group: GroupId(u32_at(front, 4)),
            cluster: ClusterId(u64_at(front, 8)),
            client: u64_at(front, 16),
            sequence,
            lowest_awaited: sequence.saturating_sub(u64::from(front[3])),
            session_number: u64_at(front, 32),
            check,
            for_user,
            command,
        })
    }
}

fn split<const N: usize>(bytes: &[u8]) -> Result<(&[u8; N], &[u8]), DecodeError> {
    bytes.split_first_chunk::<N>().ok_or(DecodeError::Truncated)
}

/// A check as it came; a request without one leaves it out.
fn checked(check: u32) -> Result<u32, DecodeError> {
    match check {
        1..=CHECK_MAX => Ok(check),
        _ => Err(DecodeError::Field { field: "check" }),
    }
}

impl Encode for ClientRequest<'_> {
    fn encoded_len(&self) -> usize {
        self.header_len() + self.command.len()
    }

    fn encode(&self, out: &mut Writer<'_>) {
        let mut front = [0; CLIENT_REQUEST_HEADER_SIZE];
        let mut flags = if self.timed { TIMED } else { 0 };
        if self.for_user.is_some() {
            flags |= FOR_USER;
        }
        if self.check != NO_CHECK {
            flags |= CHECKED;
        }
        codec::set(
            &mut front,
            0,
            [MESSAGE_VERSION, self.operation.to_wire(), flags],
        );
        codec::set(&mut front, 4, self.group.0.to_le_bytes());
        self.fill_in(&mut front);
        out.bytes(&front);
        if let Some(user) = self.for_user {
            out.bytes(&user.to_bytes());
        }
        if self.check != NO_CHECK {
            debug_assert!(self.check <= CHECK_MAX, "check_of() makes it");
            out.u32(self.check & CHECK_MAX);
        }
        out.bytes(self.command);
    }
}

/// How a request ended. Everything but `Ok` comes without a body unless stated.
///
/// "Not proposed" is a promise: this attempt has put nothing into any log.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ClientStatus {
    /// Committed and applied, or read; the body is the store's response.
    Ok,
    /// Not proposed: this replica does not lead. The body may name the leader.
    NotLeader,
    /// Not proposed: too many requests wait. Try again after a pause.
    Busy,
    /// Never executed by this attempt: the sequence is below the lowest awaited one.
    Stale,
    /// Not executed by this attempt: the session was evicted (or never existed), so whether an earlier attempt was
    /// executed is not known any more.
    SessionExpired,
    /// Not proposed: the replica belongs to the cluster in the reply, not to the client's.
    WrongCluster,
    /// Not proposed: the leader has not heard from a quorum.
    NoQuorum,
    /// Not proposed: the replica belongs to no group yet.
    NotAttached,
    /// Not proposed: the command exceeds the limit on a command's size.
    TooLarge,
    /// The log has refused it: every session entry is in use, or there is no room for its reply.
    SessionsFull,
    /// Not proposed: the request or its command could not be read.
    Malformed,
    /// Proposed, but the replica lost leadership before it was applied: it may still be committed. The body may name
    /// the new leader; a retry with the same sequence finds out.
    LeadershipLost,
    /// Not proposed: the sequence is too far above the lowest awaited one (64 in flight at most).
    WindowExceeded,
    /// Not proposed: most session entries are in use, and the address that this comes from has its share of them.
    SessionShareTaken,
    /// Not proposed: the caller has no right to a client session. (A command that is denied is answered with `Ok` and
    /// the reason as its response.)
    Denied,
    /// Never executed: the sequence was used for another command, whose answer is kept. Two writers share one session.
    SequenceUsed,
    /// Not proposed: answers that clients have not acknowledged fill more than half of their memory, and the session's user
    /// holds more than its share. Raise the lowest awaited sequence, then try again.
    ReplyShareTaken,
    /// Not read: the message has a kind or a version that the replica does not know. The body says which.
    OtherVersion,
    /// A status of a later release, of which the class is known.
    Other(OtherStatus),
}

impl ClientStatus {
    /// In byte 1 of any reply outside of the members: see [`OtherVersion`].
    pub(super) const OTHER_VERSION: u8 = 15;

    /// The byte on the wire.
    #[must_use]
    pub const fn to_wire(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::NotLeader => 1,
            Self::Busy => 2,
            Self::Stale => 3,
            Self::SessionExpired => 4,
            Self::WrongCluster => 5,
            Self::NoQuorum => 6,
            Self::NotAttached => 7,
            Self::TooLarge => 8,
            Self::SessionsFull => 9,
            Self::Malformed => 10,
            Self::LeadershipLost => 11,
            Self::WindowExceeded => 12,
            Self::SessionShareTaken => 13,
            Self::Denied => 14,
            Self::OtherVersion => Self::OTHER_VERSION,
            Self::ReplyShareTaken => 0x47,
            Self::SequenceUsed => 0x80,
            Self::Other(status) => status.byte(),
        }
    }

    fn from_wire(byte: u8) -> Result<Self, DecodeError> {
        Ok(match byte {
            0 => Self::Ok,
            1 => Self::NotLeader,
            2 => Self::Busy,
            3 => Self::Stale,
            4 => Self::SessionExpired,
            5 => Self::WrongCluster,
            6 => Self::NoQuorum,
            7 => Self::NotAttached,
            8 => Self::TooLarge,
            9 => Self::SessionsFull,
            10 => Self::Malformed,
            11 => Self::LeadershipLost,
            12 => Self::WindowExceeded,
            13 => Self::SessionShareTaken,
            14 => Self::Denied,
            Self::OTHER_VERSION => Self::OtherVersion,
            0x47 => Self::ReplyShareTaken,
            0x80 => Self::SequenceUsed,
            _ => match OtherStatus::of_byte(byte) {
                Some(status) => Self::Other(status),
                None => return Err(DecodeError::Field { field: "status" }),
            },
        })
    }

    const fn has_leader_hint(self) -> bool {
        matches!(self, Self::NotLeader | Self::LeadershipLost)
    }
}

/// The answer to a [`ClientRequest`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientReply<'a> {
    /// How the request ended.
    pub status: ClientStatus,
    /// The raft group inside the cluster.
    pub group: GroupId,
    /// The cluster of the replica that answers, [`ClusterId::NONE`] while it has none.
    pub cluster: ClusterId,
    /// A write: the position where it was applied. A read: the applied position that it saw. Else zero.
    pub position: u64,
    /// The leader, as far as the answering replica knows; only with `NotLeader` and `LeadershipLost`.
    pub leader: Option<SocketAddr>,
    /// The store's encoded response; empty unless `Ok`.
    pub response: &'a [u8],
    /// Where the time of a write went, if the request has asked for it; only with `Ok`.
    pub timing: Option<LeaderTiming>,
    /// What the replica does not know; only with `OtherVersion`.
    pub other_version: Option<OtherVersion>,
    /// The replica's release; only with `Malformed`, and with a status from 0x40 on. Some only if the reply has it.
    pub release: Option<Release>,
}

impl OtherVersion {
    /// The reply that says so, whatever the kind of the message.
    #[must_use]
    pub fn reply(self, cluster: ClusterId) -> ClientReply<'static> {
        ClientReply {
            other_version: Some(self),
            ..ClientReply::refusal(ClientStatus::OtherVersion, cluster)
        }
    }

    /// Looks for it in the reply to a message of any kind that is not between members. Its form is the same in each message
    /// version.
    #[must_use]
    pub fn in_reply(reply: &[u8]) -> Option<Self> {
        if reply.get(1) != Some(&ClientStatus::OTHER_VERSION) {
            return None;
        }
        Self::read(&mut Reader::new(reply.get(CLIENT_REPLY_HEADER_SIZE..)?)).ok()
    }
}

impl<'a> ClientReply<'a> {
    /// A refusal without a body, but for the release where the status has one.
    #[must_use]
    pub const fn refusal(status: ClientStatus, cluster: ClusterId) -> Self {
        let release = match status {
            ClientStatus::Malformed
            | ClientStatus::ReplyShareTaken
            | ClientStatus::SequenceUsed => Some(Release::THIS),
            _ => None,
        };
        Self {
            status,
            group: GroupId(0),
            cluster,
            position: 0,
            leader: None,
            response: &[],
            timing: None,
            other_version: None,
            release,
        }
    }

    /// The store's response in an encoded reply that says `Ok`.
    #[must_use]
    pub fn response_of(reply: &[u8]) -> &[u8] {
        let timed = reply.get(2).is_some_and(|flags| flags & TIMED != 0);
        let end = reply.len() - if timed { TIMING_SIZE } else { 0 };
        reply.get(CLIENT_REPLY_HEADER_SIZE..end).unwrap_or_default()
    }

    /// Reads a reply; the store's response itself stays undecoded.
    ///
    /// # Errors
    /// When it is cut short, of another version, or a field has no meaning.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let (front, body) = match codec::front::<CLIENT_REPLY_HEADER_SIZE>(bytes) {
            Err(DecodeError::Version { .. }) if OtherVersion::in_reply(bytes).is_some() => bytes
                .split_first_chunk::<CLIENT_REPLY_HEADER_SIZE>()
                .ok_or(DecodeError::Truncated)?,
            front => front?,
        };
        let status = ClientStatus::from_wire(front[1])?;
        let mut reply = Self {
            status,
            group: GroupId(u32_at(front, 4)),
            cluster: ClusterId(u64_at(front, 8)),
            position: u64_at(front, 16),
            leader: None,
            response: &[],
            timing: None,
            other_version: None,
            release: None,
        };
        if status == ClientStatus::Ok {
            reply.response = body;
            if front[2] & TIMED != 0 {
                let split = body.len().checked_sub(TIMING_SIZE);
                let (response, timing) = body.split_at(split.ok_or(DecodeError::Truncated)?);
                reply.response = response;
                reply.timing = Some(LeaderTiming::decode(timing)?);
            }
            return Ok(reply);
        }
        // A later release may have put more behind what is read here.
        let mut reader = Reader::new(body);
        match status {
            _ if status.has_leader_hint() => reply.leader = address::decode_known(&mut reader)?,
            ClientStatus::OtherVersion => {
                reply.other_version = Some(OtherVersion::read(&mut reader)?);
            }
            ClientStatus::Malformed
            | ClientStatus::ReplyShareTaken
            | ClientStatus::SequenceUsed
            | ClientStatus::Other(_) => {
                reply.release = reader.array().ok().map(Release::from_bytes);
            }
            _ => {}
        }
        Ok(reply)
    }
}

impl Encode for ClientReply<'_> {
    fn encoded_len(&self) -> usize {
        let body = match self.status {
            ClientStatus::Ok => self.response.len() + self.timing.map_or(0, |_| TIMING_SIZE),
            _ if self.status.has_leader_hint() => ADDRESS_SIZE,
            _ => match (self.other_version, self.release) {
                (Some(_), _) => OTHER_VERSION_SIZE,
                (None, Some(_)) => RELEASE_SIZE,
                (None, None) => 0,
            },
        };
        CLIENT_REPLY_HEADER_SIZE + body
    }

    fn encode(&self, out: &mut Writer<'_>) {
        debug_assert!(
            self.response.is_empty() || self.status == ClientStatus::Ok,
            "only Ok has a response"
        );
        let mut front = [0; CLIENT_REPLY_HEADER_SIZE];
        let flags = if self.timing.is_some() { TIMED } else { 0 };
        codec::set(
            &mut front,
            0,
            [MESSAGE_VERSION, self.status.to_wire(), flags],
        );
        codec::set(&mut front, 4, self.group.0.to_le_bytes());
        codec::set(&mut front, 8, self.cluster.0.to_le_bytes());
        codec::set(&mut front, 16, self.position.to_le_bytes());
        out.bytes(&front);
        if self.status == ClientStatus::Ok {
            out.bytes(self.response);
            if let Some(timing) = &self.timing {
                timing.encode(out);
            }
        } else if self.status.has_leader_hint() {
            address::encode(self.leader, out);
        } else if let Some(other) = &self.other_version {
            other.encode(out);
        } else if let Some(release) = self.release {
            out.bytes(&release.to_bytes());
        }
    }
}
