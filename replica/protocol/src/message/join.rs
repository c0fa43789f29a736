//! How a new incarnation asks an existing group to accept it.

use std::net::SocketAddr;

use super::MESSAGE_VERSION;
use super::address::{self, ADDRESS_SIZE};
use super::codec::{DecodeError, Encode, Reader, Writer};
use super::ids::{ClusterId, Incarnation, NodeId};

/// "I have this node id now, without any memory: make me a learner, and then a voter instead of the old member."
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JoinRequest {
    /// The sender's node id.
    pub node_id: NodeId,
    /// The sender's present incarnation.
    pub incarnation: Incarnation,
    /// Where the sender is reached.
    pub address: SocketAddr,
    /// The cluster that it wants to join; [`ClusterId::NONE`] for whichever cluster its peers belong to.
    pub cluster: ClusterId,
    /// The newest state-machine version that the sender understands; zero says nothing.
    pub state_version: u8,
    /// Whether the sender was a member under this incarnation: it asks whether it still is one, and nothing else.
    pub member: bool,
}

impl JoinRequest {
    /// Reads a request.
    ///
    /// # Errors
    /// When its length, version or a field is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::versioned(bytes)?;
        let state_version = reader.u8()?;
        let member = match reader.u8()? {
            0 => false,
            1 => true,
            _ => return Err(DecodeError::Field { field: "member" }),
        };
        reader.skip::<1>()?;
        let node_id = NodeId(reader.u32()?);
        let incarnation = Incarnation(reader.u64()?);
        let cluster = ClusterId(reader.u64()?);
        let address = address::decode_present(&mut reader)?;
        reader.finish()?;
        Ok(Self {
            node_id,
            incarnation,
            address,
            cluster,
            state_version,
            member,
        })
    }
}

impl Encode for JoinRequest {
    fn encoded_len(&self) -> usize {
        24 + ADDRESS_SIZE
    }

    fn encode(&self, out: &mut Writer<'_>) {
        out.u8(MESSAGE_VERSION);
        out.u8(self.state_version);
        out.u8(u8::from(self.member));
        out.zeros(1);
        out.u32(self.node_id.0);
        out.u64(self.incarnation.0);
        out.u64(self.cluster.0);
        address::encode(Some(self.address), out);
    }
}

/// Why the group does not accept it, temporarily or permanently.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum JoinRefusal {
    /// The asked replica does not lead: ask the one that the reply names, if it names one.
    NotLeader,
    /// Another change of the membership is under way: ask again.
    ChangeInProgress,
    /// The replica belongs to no group itself.
    NotAttached,
    /// The replica belongs to another cluster (the reply says which).
    WrongCluster,
    /// The node id is not one of the group's.
    UnknownNodeId,
    /// The present member with this node id still answers at another address.
    NodeIdTaken,
    /// This very incarnation was a member, and was removed or replaced.
    Removed,
    /// The group has switched to a state-machine version that the sender does not understand.
    TooOld,
    /// The request came from another address than the one that it names.
    OtherSource,
    /// The address is neither that of the present member with this node id nor one that was named for it.
    UnknownAddress,
    /// A reason of a later release, by its number.
    Other(u8),
}

impl JoinRefusal {
    const fn to_wire(self) -> u8 {
        match self {
            Self::NotLeader => 1,
            Self::ChangeInProgress => 2,
            Self::NotAttached => 3,
            Self::WrongCluster => 4,
            Self::UnknownNodeId => 5,
            Self::NodeIdTaken => 6,
            Self::Removed => 7,
            Self::TooOld => 8,
            Self::OtherSource => 9,
            Self::UnknownAddress => 10,
            Self::Other(number) => number,
        }
    }

    const fn from_wire(byte: u8) -> Self {
        match byte {
            1 => Self::NotLeader,
            2 => Self::ChangeInProgress,
            3 => Self::NotAttached,
            4 => Self::WrongCluster,
            5 => Self::UnknownNodeId,
            6 => Self::NodeIdTaken,
            7 => Self::Removed,
            8 => Self::TooOld,
            9 => Self::OtherSource,
            10 => Self::UnknownAddress,
            number => Self::Other(number),
        }
    }
}

/// The answer to a [`JoinRequest`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JoinReply {
    /// The leader is working on it: the log or a snapshot will arrive. Asking again does no harm.
    Accepted {
        /// The cluster that the sender becomes a member of.
        cluster: ClusterId,
        /// The leader's present incarnation.
        leader: Incarnation,
    },
    /// Not now, or not here.
    Refused {
        /// Why.
        reason: JoinRefusal,
        /// The cluster of the replica that answers.
        cluster: ClusterId,
        /// The leader, as far as it knows.
        leader_address: Option<SocketAddr>,
    },
}

const TAG_ACCEPTED: u8 = 1;
const TAG_REFUSED: u8 = 2;

impl JoinReply {
    /// Reads a reply.
    ///
    /// # Errors
    /// When it is cut short, of another version, or a field has no meaning.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::versioned(bytes)?;
        let tag = reader.u8()?;
        let reason = reader.u8()?;
        reader.skip::<5>()?;
        let cluster = ClusterId(reader.u64()?);
        let leader = Incarnation(reader.u64()?);
        // A later release may have put more behind it.
        let leader_address = address::decode_known(&mut reader)?;
        match tag {
            TAG_ACCEPTED => Ok(Self::Accepted { cluster, leader }),
            TAG_REFUSED => Ok(Self::Refused {
                reason: JoinRefusal::from_wire(reason),
                cluster,
                leader_address,
            }),
            _ => Err(DecodeError::Field {
                field: "join reply",
            }),
        }
    }
}

impl Encode for JoinReply {
    fn encoded_len(&self) -> usize {
        24 + ADDRESS_SIZE
    }

    fn encode(&self, out: &mut Writer<'_>) {
        let (tag, reason, cluster, leader, leader_address) = match *self {
            Self::Accepted { cluster, leader } => (TAG_ACCEPTED, 0, cluster, leader, None),
            Self::Refused {
                reason,
                cluster,
                leader_address,
            } => (
                TAG_REFUSED,
                reason.to_wire(),
                cluster,
                Incarnation::NONE,
                leader_address,
            ),
        };
        out.u8(MESSAGE_VERSION);
        out.u8(tag);
        out.u8(reason);
        out.zeros(5);
        out.u64(cluster.0);
        out.u64(leader.0);
        address::encode(leader_address, out);
    }
}
