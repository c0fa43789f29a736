//! The sender's side of one transfer.

use std::net::SocketAddr;

use trine_kvstore::Store;
use trine_protocol::message::{
    ChunkAck, ChunkOutcome, Encode, Incarnation, PeerHeader, SnapshotChunk, kind,
};
use trine_transport::time::{Duration, Instant};

use super::{Image, Piece};
use crate::outbox::{Outbox, PeerRequest, Purpose};
use crate::output::Class;

/// Chunks that may go unanswered one after the other before the transfer is given up.
const FAILURES_MAX: u32 = 16;
/// Pause before a chunk that went unanswered is retransmitted.
const RETRY: Duration = Duration::from_millis(50);
/// How long the answer to a chunk may take; the last one installs the state.
const CHUNK_TIMEOUT: Duration = Duration::from_secs(5);
/// No transfer goes on whose sender has been silent for so long.
pub(super) const SENDER_PATIENCE: Duration = Duration::from_secs(90);

/// The result of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TransferState {
    Going,
    Installed,
    Failed,
}

/// One snapshot on its way to one member.
pub(crate) struct Outgoing {
    header: PeerHeader,
    address: SocketAddr,
    transfer: u64,
    term: u64,
    index: u64,
    /// Raft's own message, encoded: chunk 0.
    message: Vec<u8>,
    next_chunk: u32,
    failures: u32,
    /// Some while the next chunk waits to be sent, none while it is under way.
    send_at: Option<Instant>,
}

impl Outgoing {
    pub(crate) fn new(
        header: PeerHeader,
        address: SocketAddr,
        transfer: u64,
        term: u64,
        index: u64,
        message: Vec<u8>,
        now: Instant,
    ) -> Self {
        let send_at = Some(now);
        Self {
            header,
            address,
            transfer,
            term,
            index,
            message,
            next_chunk: 0,
            failures: 0,
            send_at,
        }
    }

    pub(crate) fn to(&self) -> Incarnation {
        self.header.to
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.send_at
    }

    /// The first chunk of the image that the receiver may still ask for.
    pub(crate) fn needs_from(&self) -> u32 {
        self.next_chunk.saturating_sub(1)
    }

    /// Sends the next chunk if it is due. Returns false if the image cannot give it any more.
    pub(crate) fn on_turn(
        &mut self,
        now: Instant,
        image: &mut Image,
        store: &mut Store,
        out: &mut Outbox,
    ) -> bool {
        if self.send_at.is_none_or(|at| now < at) {
            return true;
        }
        assert!(
            self.failures <= FAILURES_MAX,
            "a transfer that has failed is over"
        );
        let piece = match self.next_chunk.checked_sub(1) {
            None => Piece::Chunk(&self.message, false),
            Some(number) => image.piece(number, store),
        };
        let (data, last) = match piece {
            Piece::Chunk(data, last) => (data, last),
            Piece::Pending => return true,
            Piece::Gone => return false,
        };
        let chunk = SnapshotChunk {
            header: self.header,
            index: self.index,
            term: self.term,
            transfer: self.transfer,
            chunk: self.next_chunk,
            last,
            data,
        };
        let left = out.send(self.peer_request(), &chunk);
        self.send_at = if left { None } else { Some(now + RETRY) };
        true
    }

    fn peer_request(&self) -> PeerRequest {
        let ack = ChunkAck {
            outcome: ChunkOutcome::Wanted,
            next_chunk: 0,
            transfer: 0,
        };
        PeerRequest {
            to: self.address,
            expect: Some(self.header.to),
            kind: kind::SNAPSHOT,
            class: Class::Bulk,
            purpose: Purpose::Chunk {
                to: self.header.to,
                transfer: self.transfer,
            },
            timeout: CHUNK_TIMEOUT,
            answer_bytes_max: ack.encoded_len(),
        }
    }

    /// The receiver has answered a chunk, or has not.
    pub(crate) fn on_answer(
        &mut self,
        now: Instant,
        transfer: u64,
        answer: Option<&[u8]>,
    ) -> TransferState {
        if transfer != self.transfer {
            return TransferState::Going;
        }
        let ack = answer
            .and_then(|bytes| ChunkAck::decode(bytes).ok())
            .filter(|ack| ack.transfer == transfer);
        match ack {
            Some(ChunkAck {
                outcome: ChunkOutcome::Installed,
                ..
            }) => return TransferState::Installed,
            Some(ChunkAck {
                outcome: ChunkOutcome::Wanted,
                next_chunk,
                ..
            }) if next_chunk <= self.next_chunk + 1 => {
                // A receiver that goes back has lost its part; it may do that a few times only.
                let forward = next_chunk > self.next_chunk;
                self.failures = if forward { 0 } else { self.failures + 1 };
                self.next_chunk = next_chunk;
                self.send_at = Some(now);
            }
            Some(_) => return TransferState::Failed,
            None => {
                self.failures += 1;
                self.send_at = Some(now + RETRY);
            }
        }
        if self.failures > FAILURES_MAX {
            TransferState::Failed
        } else {
            TransferState::Going
        }
    }
}
