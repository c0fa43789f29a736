//! The members of the group and its leader: for clients in binary form, for people as
//! JSON.

use std::net::SocketAddr;

use super::MESSAGE_VERSION;
use super::address;
use super::bootstrap::Members;
use super::codec::{DecodeError, Encode, Reader, Writer};
use super::ids::{ClusterId, Incarnation, NodeId};
use super::kinds::KnownKinds;
use crate::release::{RELEASE_SIZE, Release};

/// Bytes behind the members of a [`Discovery`].
const VERSIONS_SIZE: usize = RELEASE_SIZE + 8 + 32;
/// Bytes behind those, if there is something to say.
const PROMISED_SIZE: usize = 16;

/// Which form of the status is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum StatusForm {
    /// [`Discovery`]: the facts that a client needs to find the leader.
    Discovery = 1,
    /// The replica's whole status as JSON text.
    Json = 2,
}

impl StatusForm {
    fn from_wire(byte: u8) -> Result<Self, DecodeError> {
        match byte {
            1 => Ok(Self::Discovery),
            2 => Ok(Self::Json),
            _ => Err(DecodeError::Field {
                field: "status form",
            }),
        }
    }
}

/// Asks for the status. Any replica answers immediately, attached or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatusRequest {
    /// The form of the answer.
    pub form: StatusForm,
}

impl StatusRequest {
    /// Reads a request.
    ///
    /// # Errors
    /// When its length, version or form is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::versioned(bytes)?;
        let form = StatusForm::from_wire(reader.u8()?)?;
        reader.skip::<2>()?;
        reader.finish()?;
        Ok(Self { form })
    }
}

impl Encode for StatusRequest {
    fn encoded_len(&self) -> usize {
        4
    }

    fn encode(&self, out: &mut Writer<'_>) {
        out.u8(MESSAGE_VERSION);
        out.u8(self.form as u8);
        out.zeros(2);
    }
}

/// The present role of a replica.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum RoleCode {
    /// Belongs to no group yet.
    Unattached = 0,
    /// Asks its peers to accept it, or receives the state.
    Joining = 1,
    /// Receives the log without a vote.
    Learner = 2,
    /// Follows a leader, or waits for one.
    Follower = 3,
    /// Asks for votes.
    Candidate = 4,
    /// Leads.
    Leader = 5,
    /// A role of a later release. No replica sends this.
    Unknown = 255,
}

impl RoleCode {
    const fn from_wire(byte: u8) -> Self {
        match byte {
            0 => Self::Unattached,
            1 => Self::Joining,
            2 => Self::Learner,
            3 => Self::Follower,
            4 => Self::Candidate,
            5 => Self::Leader,
            _ => Self::Unknown,
        }
    }

    /// For logs and tools.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Unattached => "unattached",
            Self::Joining => "joining",
            Self::Learner => "learner",
            Self::Follower => "follower",
            Self::Candidate => "candidate",
            Self::Leader => "leader",
            Self::Unknown => "unknown",
        }
    }
}

/// A term and an entry: how far a replica has promised to go. Earlier terms are less, whatever the entry is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PromisedPosition {
    /// The term, never zero.
    pub term: u64,
    /// The last entry that was acknowledged in this term; zero if none was.
    pub index: u64,
}

/// The facts that a client needs to find the leader.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Discovery {
    /// The answering replica's cluster, [`ClusterId::NONE`] while it has none.
    pub cluster: ClusterId,
    /// Its node id.
    pub node_id: NodeId,
    /// Its present role.
    pub role: RoleCode,
    /// Its present incarnation.
    pub incarnation: Incarnation,
    /// Its term.
    pub term: u64,
    /// The leader, as far as it knows.
    pub leader: Option<SocketAddr>,
    /// The members that it knows.
    pub members: Members,
    /// Its release.
    pub release: Release,
    /// The state-machine version that its group uses, 0 while it has no state.
    pub state_version: u8,
    /// The newest state-machine version that it understands.
    pub understands: u8,
    /// The newest message version that it reads.
    pub message_version: u8,
    /// The kinds of message that it knows, for clients of later releases.
    pub kinds: KnownKinds,
    /// What it remembers that the member who asks has promised to it. Others are told nothing.
    pub promised: Option<PromisedPosition>,
}

impl Discovery {
    /// What a replica of this release says that belongs to no group.
    #[must_use]
    pub fn unattached(node_id: NodeId, incarnation: Incarnation) -> Self {
        Self {
            cluster: ClusterId::NONE,
            node_id,
            role: RoleCode::Unattached,
            incarnation,
            term: 0,
            leader: None,
            members: Members::default(),
            release: Release::THIS,
            state_version: 0,
            understands: trine_kvstore::command::STATE_VERSION,
            message_version: MESSAGE_VERSION,
            kinds: KnownKinds::THIS,
            promised: None,
        }
    }
}

/// The answer to a [`StatusRequest`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StatusReply<'a> {
    /// To [`StatusForm::Discovery`].
    Discovery(Discovery),
    /// To [`StatusForm::Json`]: UTF-8 text.
    Json(&'a [u8]),
}

impl<'a> StatusReply<'a> {
    /// Reads a reply.
    ///
    /// # Errors
    /// When it is cut short, of another version, or a field has no meaning.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::versioned(bytes)?;
        let form = StatusForm::from_wire(reader.u8()?)?;
        let role = reader.u8()?;
        reader.skip::<1>()?;
        let node_id = NodeId(reader.u32()?);
        if form == StatusForm::Json {
            return Ok(Self::Json(reader.rest()));
        }
        // A later release may have put more behind the last field.
        let mut discovery = Discovery {
            node_id,
            role: RoleCode::from_wire(role),
            cluster: ClusterId(reader.u64()?),
            incarnation: Incarnation(reader.u64()?),
            term: reader.u64()?,
            leader: address::decode_known(&mut reader)?,
            members: Members::decode_known(&mut reader)?,
            release: Release::from_bytes(reader.array()?),
            state_version: reader.u8()?,
            understands: reader.u8()?,
            message_version: reader.u8()?,
            kinds: KnownKinds::THIS,
            promised: None,
        };
        reader.skip::<5>()?;
        discovery.kinds = KnownKinds(reader.array()?);
        // Release 0.1.0 ends here, and so does an answer to anybody who is no member.
        if let (Ok(term @ 1..), Ok(index)) = (reader.u64(), reader.u64()) {
            discovery.promised = Some(PromisedPosition { term, index });
        }
        Ok(Self::Discovery(discovery))
    }
}

impl Encode for StatusReply<'_> {
    fn encoded_len(&self) -> usize {
        match self {
            Self::Discovery(discovery) => {
                let promised = discovery.promised.map_or(0, |_| PROMISED_SIZE);
                let known = address::ADDRESS_SIZE + discovery.members.encoded_len() + VERSIONS_SIZE;
                32 + known + promised
            }
            Self::Json(text) => 8 + text.len(),
        }
    }

    fn encode(&self, out: &mut Writer<'_>) {
        out.u8(MESSAGE_VERSION);
        match self {
            Self::Discovery(discovery) => {
                out.u8(StatusForm::Discovery as u8);
                out.u8(discovery.role as u8);
                out.zeros(1);
                out.u32(discovery.node_id.0);
                out.u64(discovery.cluster.0);
                out.u64(discovery.incarnation.0);
                out.u64(discovery.term);
                address::encode(discovery.leader, out);
                discovery.members.encode(out);
                out.bytes(&discovery.release.to_bytes());
                out.u8(discovery.state_version);
                out.u8(discovery.understands);
                out.u8(discovery.message_version);
                out.zeros(5);
                out.bytes(&discovery.kinds.0);
                if let Some(promised) = discovery.promised {
                    out.u64(promised.term);
                    out.u64(promised.index);
                }
            }
            Self::Json(text) => {
                out.u8(StatusForm::Json as u8);
                out.zeros(6);
                out.bytes(text);
            }
        }
    }
}
