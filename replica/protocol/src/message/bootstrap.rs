//! The beginning of a group: every named replica is asked who it is, and then told that the group exists.

use std::net::SocketAddr;

use super::MESSAGE_VERSION;
use super::address::{self, ADDRESS_SIZE};
use super::codec::{DecodeError, Encode, Reader, Writer};
use super::ids::{ClusterId, Incarnation, NodeId};

/// The most members that a message can name.
pub const MEMBERS_MAX: usize = 64;

const MEMBER_SIZE: usize = 16 + ADDRESS_SIZE;

/// Whether a member's vote counts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum MemberRole {
    /// Votes, and counts for the quorum.
    Voter = 1,
    /// Receives the log only.
    Learner = 2,
}

/// One replica of the group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// Its node id.
    pub node_id: NodeId,
    /// Whether its vote counts.
    pub role: MemberRole,
    /// Its present incarnation.
    pub incarnation: Incarnation,
    /// The replica's address.
    pub address: SocketAddr,
}

impl Member {
    fn encode(&self, out: &mut Writer<'_>) {
        out.u32(self.node_id.0);
        out.u8(self.role as u8);
        out.zeros(3);
        out.u64(self.incarnation.0);
        address::encode(Some(self.address), out);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        // The size is the same whatever is known of it.
        Self::of_bytes(reader.array()?)
    }

    fn of_bytes(bytes: [u8; MEMBER_SIZE]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(&bytes);
        let node_id = NodeId(reader.u32()?);
        let role = match reader.u8()? {
            1 => MemberRole::Voter,
            2 => MemberRole::Learner,
            _ => {
                return Err(DecodeError::Field {
                    field: "member role",
                });
            }
        };
        reader.skip::<3>()?;
        let incarnation = Incarnation(reader.u64()?);
        let address = address::decode_present(&mut reader)?;
        Ok(Self {
            node_id,
            role,
            incarnation,
            address,
        })
    }
}

/// A list of members: owned on the encoding side, so at most [`MEMBERS_MAX`].
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Members(pub Vec<Member>);

impl Members {
    pub(super) fn encoded_len(&self) -> usize {
        8 + self.0.len() * MEMBER_SIZE
    }

    pub(super) fn encode(&self, out: &mut Writer<'_>) {
        assert!(
            self.0.len() <= MEMBERS_MAX,
            "a group has at most {MEMBERS_MAX} members"
        );
        out.u32(self.0.len() as u32);
        out.zeros(4);
        for member in &self.0 {
            member.encode(out);
        }
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        (0..Self::count(reader)?)
            .map(|_| Member::decode(reader))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// The members in a reply: those with a role or an address family of a later release are left out.
    pub(super) fn decode_known(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut members = Vec::new();
        for _ in 0..Self::count(reader)? {
            members.extend(Member::of_bytes(reader.array()?));
        }
        Ok(Self(members))
    }

    fn count(reader: &mut Reader<'_>) -> Result<usize, DecodeError> {
        let count = reader.u32()? as usize;
        reader.skip::<4>()?;
        match count {
            0..=MEMBERS_MAX => Ok(count),
            _ => Err(DecodeError::Field {
                field: "member count",
            }),
        }
    }
}

/// The message that the replica which was started with `--bootstrap` sends to each node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BootstrapRequest<'a> {
    /// Who are you, and do you belong to a group?
    Probe {
        /// The node id that the sender expects at this address.
        node_id: NodeId,
    },
    /// The group exists; you are one of its members.
    Begin {
        /// The receiver's node id.
        node_id: NodeId,
        /// The incarnation that answered the probe; another incarnation has to refuse.
        incarnation: Incarnation,
        /// The new group's cluster id.
        cluster: ClusterId,
        /// All members, the receiver included.
        members: Members,
        /// The first log entry: the replicated settings, encoded by the replica.
        first_entry: &'a [u8],
    },
}

const TAG_PROBE: u8 = 1;
const TAG_BEGIN: u8 = 2;

impl<'a> BootstrapRequest<'a> {
    /// Reads a request.
    ///
    /// # Errors
    /// When it is cut short, of another version, or a field has no meaning.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::versioned(bytes)?;
        let tag = reader.u8()?;
        reader.skip::<2>()?;
        let node_id = NodeId(reader.u32()?);
        match tag {
            TAG_PROBE => reader.finish().map(|()| Self::Probe { node_id }),
            TAG_BEGIN => Ok(Self::Begin {
                node_id,
                incarnation: Incarnation(reader.u64()?),
                cluster: ClusterId(reader.u64()?),
                members: Members::decode(&mut reader)?,
                first_entry: reader.rest(),
            }),
            _ => Err(DecodeError::Field {
                field: "bootstrap request",
            }),
        }
    }
}

impl Encode for BootstrapRequest<'_> {
    fn encoded_len(&self) -> usize {
        match self {
            Self::Probe { .. } => 8,
            Self::Begin {
                members,
                first_entry,
                ..
            } => 24 + members.encoded_len() + first_entry.len(),
        }
    }

    fn encode(&self, out: &mut Writer<'_>) {
        out.u8(MESSAGE_VERSION);
        match self {
            Self::Probe { node_id } => {
                out.u8(TAG_PROBE);
                out.zeros(2);
                out.u32(node_id.0);
            }
            Self::Begin {
                node_id,
                incarnation,
                cluster,
                members,
                first_entry,
            } => {
                out.u8(TAG_BEGIN);
                out.zeros(2);
                out.u32(node_id.0);
                out.u64(incarnation.0);
                out.u64(cluster.0);
                members.encode(out);
                out.bytes(first_entry);
            }
        }
    }
}

/// Why a replica does not become a member.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BeginRefusal {
    /// It belongs to a group already (the reply says which).
    AlreadyAttached,
    /// Its node id is not the one that the sender expects.
    WrongNodeId,
    /// It was restarted since the probe.
    WrongIncarnation,
    /// The settings could not be read or exceed what this replica can hold.
    BadSettings,
    /// It is itself started with `--bootstrap`, and its node id is the lower one.
    OtherBootstrapper,
    /// A reason of a later release, by its number.
    Other(u8),
}

impl BeginRefusal {
    const fn to_wire(self) -> u8 {
        match self {
            Self::AlreadyAttached => 1,
            Self::WrongNodeId => 2,
            Self::WrongIncarnation => 3,
            Self::BadSettings => 4,
            Self::OtherBootstrapper => 5,
            Self::Other(number) => number,
        }
    }

    const fn from_wire(byte: u8) -> Self {
        match byte {
            1 => Self::AlreadyAttached,
            2 => Self::WrongNodeId,
            3 => Self::WrongIncarnation,
            4 => Self::BadSettings,
            5 => Self::OtherBootstrapper,
            number => Self::Other(number),
        }
    }
}

/// The answer to a [`BootstrapRequest`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BootstrapReply {
    /// To a probe: the answering replica. `cluster` is [`ClusterId::NONE`] while it is unattached.
    Present {
        /// Its node id.
        node_id: NodeId,
        /// Its present incarnation.
        incarnation: Incarnation,
        /// Its cluster, if it has one.
        cluster: ClusterId,
        /// The newest state-machine version that it understands; zero says nothing.
        state_version: u8,
    },
    /// To a begin: it is a member now (or was already, of the same cluster and under the same incarnation).
    Begun {
        /// Its node id.
        node_id: NodeId,
        /// Its present incarnation.
        incarnation: Incarnation,
        /// Its cluster.
        cluster: ClusterId,
    },
    /// It does not become a member.
    Refused {
        /// Why.
        reason: BeginRefusal,
        /// Its node id.
        node_id: NodeId,
        /// Its present incarnation.
        incarnation: Incarnation,
        /// Its cluster, if it has one.
        cluster: ClusterId,
    },
}

const TAG_PRESENT: u8 = 1;
const TAG_BEGUN: u8 = 2;
const TAG_REFUSED: u8 = 3;

impl BootstrapReply {
    /// Reads a reply.
    ///
    /// # Errors
    /// When it is cut short, of another version, or a field has no meaning.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::versioned(bytes)?;
        let tag = reader.u8()?;
        let reason = reader.u8()?;
        let state_version = reader.u8()?;
        let node_id = NodeId(reader.u32()?);
        let incarnation = Incarnation(reader.u64()?);
        // A later release may have put more behind it.
        let cluster = ClusterId(reader.u64()?);
        match tag {
            TAG_PRESENT => Ok(Self::Present {
                node_id,
                incarnation,
                cluster,
                state_version,
            }),
            TAG_BEGUN => Ok(Self::Begun {
                node_id,
                incarnation,
                cluster,
            }),
            TAG_REFUSED => Ok(Self::Refused {
                reason: BeginRefusal::from_wire(reason),
                node_id,
                incarnation,
                cluster,
            }),
            _ => Err(DecodeError::Field {
                field: "bootstrap reply",
            }),
        }
    }
}

impl Encode for BootstrapReply {
    fn encoded_len(&self) -> usize {
        24
    }

    fn encode(&self, out: &mut Writer<'_>) {
        let mut version = 0;
        let (tag, reason, node_id, incarnation, cluster) = match *self {
            Self::Present {
                node_id,
                incarnation,
                cluster,
                state_version,
            } => {
                version = state_version;
                (TAG_PRESENT, 0, node_id, incarnation, cluster)
            }
            Self::Begun {
                node_id,
                incarnation,
                cluster,
            } => (TAG_BEGUN, 0, node_id, incarnation, cluster),
            Self::Refused {
                reason,
                node_id,
                incarnation,
                cluster,
            } => (TAG_REFUSED, reason.to_wire(), node_id, incarnation, cluster),
        };
        out.u8(MESSAGE_VERSION);
        out.u8(tag);
        out.u8(reason);
        out.u8(version);
        out.u32(node_id.0);
        out.u64(incarnation.0);
        out.u64(cluster.0);
    }
}
