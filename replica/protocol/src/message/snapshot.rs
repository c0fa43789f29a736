//! One piece of a snapshot for a replica that the log can no longer help, and its acknowledgement.

use super::MESSAGE_VERSION;
use super::codec::{DecodeError, Encode, Reader, Writer};
use super::peer::{PEER_HEADER_SIZE, PeerHeader};

/// Bytes in front of the data of a [`SnapshotChunk`].
pub const SNAPSHOT_HEADER_SIZE: usize = PEER_HEADER_SIZE + 32;

/// A piece of a snapshot. Chunks go out in order, and the receiver says which one it wants next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotChunk<'a> {
    /// Who says it, to whom.
    pub header: PeerHeader,
    /// Log index up to which the snapshot holds everything.
    pub index: u64,
    /// Term of the entry at `index`.
    pub term: u64,
    /// Distinguishes two snapshots of the same index; drawn by the sender for each transfer.
    pub transfer: u64,
    /// Number of this chunk, from zero.
    pub chunk: u32,
    /// Whether no chunk follows.
    pub last: bool,
    /// The chunk with its own checksum inside, made by the store.
    pub data: &'a [u8],
}

impl<'a> SnapshotChunk<'a> {
    /// Reads a chunk; its data stays unverified.
    ///
    /// # Errors
    /// When it is cut short, of another version, or a field has no meaning.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let (header, mut reader) = PeerHeader::decode_header(bytes)?;
        let index = reader.u64()?;
        let term = reader.u64()?;
        let transfer = reader.u64()?;
        let chunk = reader.u32()?;
        let last = match reader.u8()? {
            0 => false,
            1 => true,
            _ => return Err(DecodeError::Field { field: "last" }),
        };
        reader.skip::<3>()?;
        Ok(Self {
            header,
            index,
            term,
            transfer,
            chunk,
            last,
            data: reader.rest(),
        })
    }
}

impl Encode for SnapshotChunk<'_> {
    fn encoded_len(&self) -> usize {
        SNAPSHOT_HEADER_SIZE + self.data.len()
    }

    fn encode(&self, out: &mut Writer<'_>) {
        self.header.encode_header(out);
        out.u64(self.index);
        out.u64(self.term);
        out.u64(self.transfer);
        out.u32(self.chunk);
        out.u8(u8::from(self.last));
        out.zeros(3);
        out.bytes(self.data);
    }
}

/// The result of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum ChunkOutcome {
    /// Send on, from `next_chunk`.
    Wanted = 0,
    /// The whole snapshot is installed.
    Installed = 1,
    /// The receiver does not need the transfer: stop it.
    Refused = 2,
}

/// The answer to a [`SnapshotChunk`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkAck {
    /// The result of the chunk.
    pub outcome: ChunkOutcome,
    /// The first chunk that the receiver lacks.
    pub next_chunk: u32,
    /// The transfer that is meant.
    pub transfer: u64,
}

impl ChunkAck {
    /// Reads an acknowledgement.
    ///
    /// # Errors
    /// When its length, version or outcome is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::versioned(bytes)?;
        let outcome = match reader.u8()? {
            0 => ChunkOutcome::Wanted,
            1 => ChunkOutcome::Installed,
            2 => ChunkOutcome::Refused,
            _ => return Err(DecodeError::Field { field: "outcome" }),
        };
        reader.skip::<2>()?;
        let next_chunk = reader.u32()?;
        let transfer = reader.u64()?;
        reader.finish()?;
        Ok(Self {
            outcome,
            next_chunk,
            transfer,
        })
    }
}

impl Encode for ChunkAck {
    fn encoded_len(&self) -> usize {
        16
    }

    fn encode(&self, out: &mut Writer<'_>) {
        out.u8(MESSAGE_VERSION);
        out.u8(self.outcome as u8);
        out.zeros(2);
        out.u32(self.next_chunk);
        out.u64(self.transfer);
    }
}
