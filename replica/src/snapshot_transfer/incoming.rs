//! The receiver's side of a transfer.

use prost::Message as _;
use raft::eraftpb::Message;

use trine_protocol::message::{ChunkAck, ChunkOutcome, Incarnation, SnapshotChunk};
use trine_protocol::status::ReceivingStatus;
use trine_transport::time::Instant;

use super::ImageReader;
use super::outgoing::SENDER_PATIENCE;
use crate::config::SNAPSHOT_CHUNKS_MAX;
use crate::state_machine::StateMachine;
use crate::state_machine::codec::StateError;

/// A snapshot that is being received.
pub(crate) struct Incoming {
    from: Incarnation,
    transfer: u64,
    index: u64,
    message: Message,
    next_chunk: u32,
    /// When something of it came for the last time.
    heard: Instant,
    reader: ImageReader,
}

impl Incoming {
    /// Begins with chunk 0 of a transfer; nothing if that is not a raft message.
    pub(crate) fn begin(now: Instant, chunk: &SnapshotChunk<'_>) -> Option<Self> {
        let message = Message::decode(chunk.data).ok()?;
        let metadata = message.snapshot.as_ref()?.metadata.as_ref()?;
        if chunk.chunk != 0
            || chunk.last
            || metadata.index != chunk.index
            || metadata.term != chunk.term
        {
            return None;
        }
        Some(Self {
            from: chunk.header.from,
            transfer: chunk.transfer,
            index: chunk.index,
            message,
            next_chunk: 1,
            heard: now,
            reader: ImageReader::default(),
        })
    }

    /// Raft's message, to be validated before anything is received for it.
    pub(crate) fn message(&self) -> &Message {
        &self.message
    }

    /// How much is here; nothing before it is known how much there is.
    pub(crate) fn progress(&self) -> Option<ReceivingStatus> {
        self.reader.progress()
    }

    /// Whether `chunk` belongs to this transfer.
    pub(crate) fn is_of(&self, chunk: &SnapshotChunk<'_>) -> bool {
        self.from == chunk.header.from
            && self.transfer == chunk.transfer
            && self.index == chunk.index
    }

    /// Whether its sender leads in this term or a later one, as far as is known here.
    pub(crate) fn is_of_leader(&self, term: u64, leader: u64) -> bool {
        let is_leader = leader == 0 || leader == self.from.0;
        self.message.term > term || (self.message.term == term && is_leader)
    }

    /// Whether it will stay unfinished. Either another replica leads than the sender, or the log has come this far
    /// without it, or its sender has been silent for longer than it would retry.
    pub(crate) fn is_abandoned(&self, now: Instant, leader: u64, applied: u64) -> bool {
        self.from.0 != leader
            || self.index <= applied
            || now.saturating_since(self.heard) > SENDER_PATIENCE
    }

    /// The answer to a chunk that was taken.
    pub(crate) fn wanted(&self) -> ChunkAck {
        ChunkAck {
            outcome: ChunkOutcome::Wanted,
            next_chunk: self.next_chunk,
            transfer: self.transfer,
        }
    }

    /// Takes the chunk that is due.
    ///
    /// # Errors
    /// It cannot be used: the transfer is over then.
    pub(crate) fn push(
        &mut self,
        now: Instant,
        chunk: &SnapshotChunk<'_>,
    ) -> Result<(), StateError> {
        assert!(self.is_due(chunk), "chunks are taken in their order");
        self.heard = now;
        if self.next_chunk >= SNAPSHOT_CHUNKS_MAX {
            return Err(StateError::of("a snapshot of too many chunks"));
        }
        self.reader.push(chunk.data)?;
        self.next_chunk += 1;
        Ok(())
    }

    /// Whether `chunk` is the one that is due.
    pub(crate) fn is_due(&self, chunk: &SnapshotChunk<'_>) -> bool {
        chunk.chunk == self.next_chunk
    }

    /// The state, after its last chunk; nothing if it does not hold together.
    pub(crate) fn finish(self) -> Option<(Message, StateMachine)> {
        assert!(self.next_chunk > 1, "the message alone is no state");
        let state = self.reader.finish().ok()?;
        (state.applied_index() == self.index).then_some((self.message, state))
    }
}

/// The answer that ends a transfer.
pub(crate) fn ended(outcome: ChunkOutcome, transfer: u64) -> ChunkAck {
    ChunkAck {
        outcome,
        next_chunk: 0,
        transfer,
    }
}
