//! Admin commands to the leader: changes of the membership, and transfers of leadership.

use std::net::SocketAddr;

use super::MESSAGE_VERSION;
use super::address::{self, ADDRESS_SIZE};
use super::codec::{DecodeError, Encode, Reader, Writer, sentence};
use super::ids::{ClusterId, Incarnation, NodeId};

/// The admin command. Repeating it does no harm: each names the wanted state, not a step.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AdminCommand {
    /// Accept the process that asks to join with this new node id: as a voter, or as a learner only.
    Add {
        /// Whether it shall vote once it has caught up.
        voter: bool,
    },
    /// Make the learner with this node id a voter.
    Promote,
    /// Remove the member with this node id.
    Remove,
    /// Let a new process take this node id although the present member may be alive.
    Replace,
    /// Transfer leadership to this node.
    TransferLeadership,
    /// Switch to the newest state-machine version now. Concerns no node.
    FinishUpgrade,
}

impl AdminCommand {
    const fn to_wire(self) -> (u8, u8) {
        match self {
            Self::Add { voter } => (1, voter as u8),
            Self::Promote => (2, 0),
            Self::Remove => (3, 0),
            Self::Replace => (4, 0),
            Self::TransferLeadership => (5, 0),
            Self::FinishUpgrade => (6, 0),
        }
    }

    fn from_wire(command: u8, detail: u8) -> Result<Self, DecodeError> {
        Ok(match (command, detail) {
            (1, 0) => Self::Add { voter: false },
            (1, 1) => Self::Add { voter: true },
            (2, 0) => Self::Promote,
            (3, 0) => Self::Remove,
            (4, 0) => Self::Replace,
            (5, 0) => Self::TransferLeadership,
            (6, 0) => Self::FinishUpgrade,
            _ => return Err(DecodeError::Field { field: "order" }),
        })
    }
}

/// An admin command and what it concerns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdminRequest {
    /// The admin command.
    pub command: AdminCommand,
    /// The node id that it concerns.
    pub node_id: NodeId,
    /// The member with this node id that a removal or a replacement means. Once another member has the node id, the
    /// command is done, and repeating it does no harm. [`Incarnation::NONE`] for the present member.
    pub incarnation: Incarnation,
    /// The cluster of the command; [`ClusterId::NONE`] for whichever one the replica belongs to.
    pub cluster: ClusterId,
    /// The address of the node's next replica, with [`AdminCommand::Add`] and [`AdminCommand::Replace`]: a process at
    /// another address is not accepted. None for the address that is known for the node already.
    pub address: Option<SocketAddr>,
}

impl AdminRequest {
    /// Reads a request.
    ///
    /// # Errors
    /// When its length, version or a field is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::versioned(bytes)?;
        let command = AdminCommand::from_wire(reader.u8()?, reader.u8()?)?;
        reader.skip::<1>()?;
        let node_id = NodeId(reader.u32()?);
        let cluster = ClusterId(reader.u64()?);
        let incarnation = Incarnation(reader.u64()?);
        // Earlier releases end here.
        let address = match reader.is_at_end() {
            true => None,
            false => address::decode(&mut reader)?,
        };
        reader.finish()?;
        Ok(Self {
            command,
            node_id,
            incarnation,
            cluster,
            address,
        })
    }
}

impl Encode for AdminRequest {
    fn encoded_len(&self) -> usize {
        24 + self.address.map_or(0, |_| ADDRESS_SIZE)
    }

    fn encode(&self, out: &mut Writer<'_>) {
        let (command, detail) = self.command.to_wire();
        out.u8(MESSAGE_VERSION);
        out.u8(command);
        out.u8(detail);
        out.zeros(1);
        out.u32(self.node_id.0);
        out.u64(self.cluster.0);
        out.u64(self.incarnation.0);
        if self.address.is_some() {
            address::encode(self.address, out);
        }
    }
}

/// How far an admin command has come.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum AdminStatus {
    /// The command is done.
    Done = 0,
    /// Under way, or waiting for what the text says: ask again.
    InProgress = 1,
    /// Not done, and it will not be: the text says why.
    Refused = 2,
    /// This replica does not lead: ask the one that the reply names.
    NotLeader = 3,
}

/// The answer to an [`AdminRequest`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdminReply<'a> {
    /// How far it has come.
    pub status: AdminStatus,
    /// The leader, as far as the answering replica knows.
    pub leader: Option<SocketAddr>,
    /// A sentence for the operator, in UTF-8.
    pub text: &'a str,
}

impl<'a> AdminReply<'a> {
    /// Reads a reply.
    ///
    /// # Errors
    /// When it is cut short, of another version, or a field has no meaning.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::versioned(bytes)?;
        let status = match reader.u8()? {
            0 => AdminStatus::Done,
            1 => AdminStatus::InProgress,
            2 => AdminStatus::Refused,
            3 => AdminStatus::NotLeader,
            _ => return Err(DecodeError::Field { field: "status" }),
        };
        let len = reader.u16()?;
        let leader = address::decode_known(&mut reader)?;
        let text = reader.text(len)?;
        Ok(Self {
            status,
            leader,
            text,
        })
    }
}

impl Encode for AdminReply<'_> {
    fn encoded_len(&self) -> usize {
        4 + ADDRESS_SIZE + sentence(self.text).1.len()
    }

    fn encode(&self, out: &mut Writer<'_>) {
        let (len, text) = sentence(self.text);
        out.u8(MESSAGE_VERSION);
        out.u8(self.status as u8);
        out.u16(len);
        address::encode(self.leader, out);
        out.bytes(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layouts_are_pinned() {
        let request = AdminRequest {
            command: AdminCommand::Add { voter: true },
            node_id: NodeId(4),
            incarnation: Incarnation(9),
            cluster: ClusterId(0x0102),
            address: None,
        };
        let bytes = request.encode_to_vec();
        let mut expected = vec![1, 1, 1, 0, 4, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0];
        expected.extend([9, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes, expected);
        assert_eq!(AdminRequest::decode(&bytes), Ok(request));

        let named = AdminRequest {
            address: Some("1.2.3.4:5".parse().unwrap()),
            ..request
        };
        let bytes = named.encode_to_vec();
        expected.extend([4, 0, 5, 0, 0, 0, 0, 0, 1, 2, 3, 4]);
        expected.extend([0; 12]);
        assert_eq!(bytes, expected);
        assert_eq!(AdminRequest::decode(&bytes), Ok(named));

        let reply = AdminReply {
            status: AdminStatus::InProgress,
            leader: Some("1.2.3.4:5".parse().unwrap()),
            text: "ok",
        };
        let bytes = reply.encode_to_vec();
        let mut expected = vec![1, 1, 2, 0, 4, 0, 5, 0, 0, 0, 0, 0, 1, 2, 3, 4];
        expected.extend([0; 12]);
        expected.extend(b"ok");
        assert_eq!(bytes, expected);
        assert_eq!(AdminReply::decode(&bytes), Ok(reply));
        expected.extend(b"of a later release");
        assert_eq!(AdminReply::decode(&expected), Ok(reply));
        assert!(AdminReply::decode(&expected[..29]).is_err());
    }

    #[test]
    fn every_command_survives_and_others_are_refused() {
        for command in [
            AdminCommand::Add { voter: false },
            AdminCommand::Add { voter: true },
            AdminCommand::Promote,
            AdminCommand::Remove,
            AdminCommand::Replace,
            AdminCommand::TransferLeadership,
            AdminCommand::FinishUpgrade,
        ] {
            let (code, detail) = command.to_wire();
            assert_eq!(AdminCommand::from_wire(code, detail), Ok(command));
        }
        for (code, detail) in [(0, 0), (1, 2), (2, 1), (6, 1), (7, 0)] {
            assert!(AdminCommand::from_wire(code, detail).is_err());
        }
    }
}
