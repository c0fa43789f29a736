//! A member's state hash at an agreed index, so that a diverged replica is found.

use super::codec::{DecodeError, Encode, Writer};
use super::peer::{PEER_HEADER_SIZE, PeerHeader};

/// The hash of the sender's state behind the entry at `index`. The answer is empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StateReport {
    /// Who says it, to whom.
    pub header: PeerHeader,
    /// The index.
    pub index: u64,
    /// The hash, high half first.
    pub hash: [u64; 2],
}

impl StateReport {
    /// Reads a report.
    ///
    /// # Errors
    /// When its length or version is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (header, mut reader) = PeerHeader::decode_header(bytes)?;
        let index = reader.u64()?;
        let hash = [reader.u64()?, reader.u64()?];
        reader.finish()?;
        Ok(Self {
            header,
            index,
            hash,
        })
    }
}

impl Encode for StateReport {
    fn encoded_len(&self) -> usize {
        PEER_HEADER_SIZE + 24
    }

    fn encode(&self, out: &mut Writer<'_>) {
        self.header.encode_header(out);
        out.u64(self.index);
        out.u64(self.hash[0]);
        out.u64(self.hash[1]);
    }
}
