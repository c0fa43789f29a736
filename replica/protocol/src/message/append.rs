//! Log entries for one peer, numbered so that the receiver can put them back into order.

use super::codec::{DecodeError, Encode, Writer};
use super::peer::{PEER_HEADER_SIZE, PeerHeader, RaftFrame};

/// Bytes in front of the raft message of an [`AppendFrame`].
pub const APPEND_HEADER_SIZE: usize = PEER_HEADER_SIZE + 16;

/// Offset of the stream number in the frame; the sequence number follows at 8 bytes' distance.
const STREAM_OFFSET: usize = PEER_HEADER_SIZE;
const SEQUENCE_OFFSET: usize = PEER_HEADER_SIZE + 8;

/// An append message. The replica encodes it with stream and sequence zero; the node numbers it as it sends it
/// ([`set_stream_position`]), and the receiving node hands appends of one stream to its replica in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AppendFrame<'a> {
    /// Who says it, to whom.
    pub header: PeerHeader,
    /// Counts the restarts of the stream at one sender: a lost append ends its stream, and the rest of it is dropped.
    pub stream: u32,
    /// Place in the stream, from zero.
    pub sequence: u64,
    /// A `raft::eraftpb::Message` of type MsgAppend, encoded; not yet validated.
    pub message: &'a [u8],
}

impl<'a> AppendFrame<'a> {
    /// The raft message without its place in the stream.
    #[must_use]
    pub const fn raft_frame(&self) -> RaftFrame<'a> {
        RaftFrame {
            header: self.header,
            message: self.message,
        }
    }

    /// Reads a frame; the raft message itself stays undecoded.
    ///
    /// # Errors
    /// When the header is cut short or of another version.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let (header, mut reader) = PeerHeader::decode_header(bytes)?;
        let stream = reader.u32()?;
        reader.skip::<4>()?;
        let sequence = reader.u64()?;
        Ok(Self {
            header,
            stream,
            sequence,
            message: reader.rest(),
        })
    }

    /// Writes the 48 bytes in front of the raft message, numbered later by [`set_stream_position`].
    ///
    /// # Panics
    /// When `out` is shorter than [`APPEND_HEADER_SIZE`].
    pub fn encode_header(header: PeerHeader, out: &mut [u8]) {
        AppendFrame {
            header,
            stream: 0,
            sequence: 0,
            message: &[],
        }
        .encode_to_slice(out);
    }
}

impl Encode for AppendFrame<'_> {
    fn encoded_len(&self) -> usize {
        APPEND_HEADER_SIZE + self.message.len()
    }

    fn encode(&self, out: &mut Writer<'_>) {
        self.header.encode_header(out);
        out.u32(self.stream);
        out.zeros(4);
        out.u64(self.sequence);
        out.bytes(self.message);
    }
}

/// Numbers an encoded append in place.
///
/// # Panics
/// When `frame` is shorter than [`APPEND_HEADER_SIZE`]: it was not made by [`AppendFrame`].
pub fn set_stream_position(frame: &mut [u8], stream: u32, sequence: u64) {
    frame[STREAM_OFFSET..STREAM_OFFSET + 4].copy_from_slice(&stream.to_le_bytes());
    frame[SEQUENCE_OFFSET..SEQUENCE_OFFSET + 8].copy_from_slice(&sequence.to_le_bytes());
}

/// Stream and sequence of an encoded append, or nothing if the frame is too short to have them.
#[must_use]
pub fn stream_position(frame: &[u8]) -> Option<(u32, u64)> {
    let stream = frame.get(STREAM_OFFSET..)?.first_chunk()?;
    let sequence = frame.get(SEQUENCE_OFFSET..)?.first_chunk()?;
    Some((u32::from_le_bytes(*stream), u64::from_le_bytes(*sequence)))
}
