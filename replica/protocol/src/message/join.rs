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
#[repr(u8)]
pub enum JoinRefusal {
    /// The asked replica does not lead: ask the one that the reply names, if it names one.
    NotLeader = 1,
    /// Another change of the membership is under way: ask again.
    ChangeInProgress = 2,
    /// The replica belongs to no group itself.
    NotAttached = 3,
    /// The replica belongs to another cluster (the reply says which).
    WrongCluster = 4,
    /// The node id is not one of the group's.
    UnknownNodeId = 5,
    /// The present member with this node id still answers at another address.
    NodeIdTaken = 6,
    /// This very incarnation was a member, and was removed or replaced.
    Removed = 7,
    /// The group has switched to a state-machine version that the sender does not understand.
    TooOld = 8,
    /// The request came from another address than the one that it names.
    OtherSource = 9,
    /// The address is neither that of the present member with this node id nor one that was named for it.
    UnknownAddress = 10,
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
    /// When its length, version or a field is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::versioned(bytes)?;
        let tag = reader.u8()?;
        let reason = reader.u8()?;
        reader.skip::<5>()?;
        let cluster = ClusterId(reader.u64()?);
        let leader = Incarnation(reader.u64()?);
        let leader_address = address::decode(&mut reader)?;
        reader.finish()?;
        match tag {
            TAG_ACCEPTED => Ok(Self::Accepted { cluster, leader }),
            TAG_REFUSED => Ok(Self::Refused {
                reason: refusal_from_wire(reason)?,
                cluster,
                leader_address,
            }),
            _ => Err(DecodeError::Field {
                field: "join reply",
            }),
        }
    }
}

fn refusal_from_wire(byte: u8) -> Result<JoinRefusal, DecodeError> {
    Ok(match byte {
        1 => JoinRefusal::NotLeader,
        2 => JoinRefusal::ChangeInProgress,
        3 => JoinRefusal::NotAttached,
        4 => JoinRefusal::WrongCluster,
        5 => JoinRefusal::UnknownNodeId,
        6 => JoinRefusal::NodeIdTaken,
        7 => JoinRefusal::Removed,
        8 => JoinRefusal::TooOld,
        9 => JoinRefusal::OtherSource,
        10 => JoinRefusal::UnknownAddress,
        _ => {
            return Err(DecodeError::Field {
                field: "join refusal",
            });
        }
    })
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
                reason as u8,
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
