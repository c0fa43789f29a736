//! The header of everything that one replica says to another, and the one-way raft message.

use super::MESSAGE_VERSION;
use super::codec::{DecodeError, Encode, Reader, Writer};
use super::ids::{ClusterId, GroupId, Incarnation};

/// Bytes of a [`PeerHeader`].
pub const PEER_HEADER_SIZE: usize = 32;

/// Sender, receiver and group. A replica drops a message that is not addressed to its present incarnation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerHeader {
    /// The group's cluster.
    pub cluster: ClusterId,
    /// The raft group inside the cluster.
    pub group: GroupId,
    /// The sender's present incarnation.
    pub from: Incarnation,
    /// The receiver's incarnation that the sender means.
    pub to: Incarnation,
    /// The newest state-machine version that the sender understands; zero says nothing.
    pub state_version: u8,
}

impl PeerHeader {
    pub(super) fn encode_header(&self, out: &mut Writer<'_>) {
        out.u8(MESSAGE_VERSION);
        out.u8(self.state_version);
        out.zeros(2);
        out.u32(self.group.0);
        out.u64(self.cluster.0);
        out.u64(self.from.0);
        out.u64(self.to.0);
    }

    /// Reads the header alone, of a message that begins with one.
    ///
    /// # Errors
    /// When it is cut short or of another version.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        Self::decode_header(bytes).map(|(header, _)| header)
    }

    pub(super) fn decode_header<'a>(bytes: &'a [u8]) -> Result<(Self, Reader<'a>), DecodeError> {
        let mut reader = Reader::versioned(bytes)?;
        let state_version = reader.u8()?;
        reader.skip::<2>()?;
        let group = GroupId(reader.u32()?);
        let cluster = ClusterId(reader.u64()?);
        let from = Incarnation(reader.u64()?);
        let to = Incarnation(reader.u64()?);
        Ok((
            Self {
                cluster,
                group,
                from,
                to,
                state_version,
            },
            reader,
        ))
    }
}

/// A raft message in prost's encoding behind a [`PeerHeader`]: kind RAFT, and the answer to an APPEND.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RaftFrame<'a> {
    /// Who says it, to whom.
    pub header: PeerHeader,
    /// A `raft::eraftpb::Message`, encoded; not yet validated.
    pub message: &'a [u8],
}

impl<'a> RaftFrame<'a> {
    /// Reads a frame; the raft message itself stays undecoded.
    ///
    /// # Errors
    /// When the header is cut short or of another version.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let (header, reader) = PeerHeader::decode_header(bytes)?;
        Ok(Self {
            header,
            message: reader.rest(),
        })
    }
}

impl Encode for RaftFrame<'_> {
    fn encoded_len(&self) -> usize {
        PEER_HEADER_SIZE + self.message.len()
    }

    fn encode(&self, out: &mut Writer<'_>) {
        self.header.encode_header(out);
        out.bytes(self.message);
    }
}

impl Encode for PeerHeader {
    fn encoded_len(&self) -> usize {
        PEER_HEADER_SIZE
    }

    /// Writes the header alone: the caller lets prost write the raft message behind it, without a copy.
    fn encode(&self, out: &mut Writer<'_>) {
        self.encode_header(out);
    }
}
