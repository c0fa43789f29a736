//! A snapshot that comes in: received chunk by chunk, checked, and held until raft takes it.

use raft::eraftpb::Message;
use trine_protocol::message::{ChunkAck, ChunkOutcome, SnapshotChunk};
use trine_protocol::status::ReceivingStatus;
use trine_transport::time::Instant;

use super::consensus::Consensus;
use super::durability::Durability;
use super::local::Local;
use crate::outbox::Outbox;
use crate::snapshot_transfer::{Incoming, ended};
use crate::state_machine::StateMachine;

/// The snapshot that is being received.
#[derive(Default)]
pub(super) struct Receiving {
    incoming: Option<Incoming>,
    /// Received and checked, while raft makes up its mind about it.
    installing: Option<StateMachine>,
}

/// The result of a chunk.
pub(super) enum Taken {
    /// The sender hears this.
    Answer(ChunkAck),
    /// The same, and the state is of a later release.
    TooNew(ChunkAck),
    /// It was the last one: [`Receiving::finish`] is due.
    Whole,
}

/// A snapshot of which everything has arrived.
pub(super) struct Received {
    /// Raft's message, to be stepped.
    pub(super) message: Message,
    pub(super) index: u64,
}

impl Receiving {
    /// Whether a state waits for raft's decision.
    pub(super) fn is_installing(&self) -> bool {
        self.installing.is_some()
    }

    /// How much is here, while something is being received.
    pub(super) fn progress(&self) -> Option<ReceivingStatus> {
        self.incoming.as_ref()?.progress()
    }

    /// A chunk has arrived, from the member that it names.
    pub(super) fn on_chunk(
        &mut self,
        now: Instant,
        chunk: &SnapshotChunk<'_>,
        local: &Local,
        consensus: &Consensus,
        mut disk: Option<&mut Durability>,
        out: &mut Outbox,
    ) -> Taken {
        let refused = ended(ChunkOutcome::Refused, chunk.transfer);
        if chunk.chunk == 0 {
            let begun = self.begin(now, chunk, local, consensus, disk, out);
            return Taken::Answer(begun.unwrap_or(refused));
        }
        let is_its = |incoming: &&mut Incoming| incoming.is_of(chunk);
        let Some(incoming) = self.incoming.as_mut().filter(is_its) else {
            // This incarnation does not know the transfer (any more): it has to begin again.
            return Taken::Answer(ended(ChunkOutcome::Wanted, chunk.transfer));
        };
        if !incoming.is_due(chunk) {
            return Taken::Answer(incoming.wanted());
        }
        // Only the leader of now may end this replica.
        let is_leaders = incoming.is_of_leader(consensus.raft().term(), consensus.raft().leader());
        if let Err(error) = incoming.push(now, chunk) {
            out.counters.snapshots_failed += 1;
            self.end(disk, out);
            return match error.newer {
                Some(_) if is_leaders => Taken::TooNew(refused),
                _ => Taken::Answer(refused),
            };
        }
        let wanted = incoming.wanted();
        if let Some(disk) = &mut disk {
            disk.write_incoming(chunk.data, out);
        }
        if chunk.last {
            Taken::Whole
        } else {
            Taken::Answer(wanted)
        }
    }

    /// The first chunk of a transfer has arrived. Nothing comes back if it is refused.
    fn begin(
        &mut self,
        now: Instant,
        chunk: &SnapshotChunk<'_>,
        local: &Local,
        consensus: &Consensus,
        mut disk: Option<&mut Durability>,
        out: &mut Outbox,
    ) -> Option<ChunkAck> {
        let is_its = |incoming: &&Incoming| incoming.is_of(chunk);
        if let Some(incoming) = self.incoming.as_ref().filter(is_its) {
            return Some(incoming.wanted());
        }
        let incoming = Incoming::begin(now, chunk)?;
        let raft = consensus.raft();
        if raft.is_leader() || raft.awaits_snapshot() {
            return None;
        }
        if chunk.index <= raft.applied() {
            // It is installed here already. A sender that asks again has missed that answer; a refusal would make raft
            // want it again.
            return Some(ended(ChunkOutcome::Installed, chunk.transfer));
        }
        if raft.check(chunk.header.from.0, incoming.message()).is_err() {
            out.counters.messages_refused += 1;
            return None;
        }
        let ack = incoming.wanted();
        self.end(disk.as_deref_mut(), out);
        if let Some(disk) = disk {
            disk.begin_incoming(local.cluster, incoming.message(), out);
        }
        self.incoming = Some(incoming);
        Some(ack)
    }

    /// Everything is here: raft's message is to be stepped now, and the state waits for its decision. Nothing comes back if
    /// it does not hold together, or belongs to another cluster.
    pub(super) fn finish(
        &mut self,
        local: &Local,
        disk: Option<&mut Durability>,
        out: &mut Outbox,
    ) -> Option<Received> {
        let Some((message, state)) = self.incoming.take().and_then(Incoming::finish) else {
            out.counters.snapshots_failed += 1;
            self.end(disk, out);
            return None;
        };
        if state.cluster() != local.cluster {
            out.counters.messages_foreign += 1;
            self.end(disk, out);
            return None;
        }
        let index = state.applied_index();
        self.installing = Some(state);
        Some(Received { message, index })
    }

    /// The snapshot that is being received will not be finished.
    pub(super) fn end(&mut self, disk: Option<&mut Durability>, out: &mut Outbox) {
        self.incoming = None;
        if let Some(disk) = disk {
            disk.give_up_incoming(out);
        }
    }

    /// Drops a snapshot that will not be finished: it holds half a state, and the member's own snapshots wait for it.
    pub(super) fn end_abandoned(
        &mut self,
        now: Instant,
        consensus: &Consensus,
        disk: Option<&mut Durability>,
        out: &mut Outbox,
    ) {
        let (leader, applied) = (consensus.raft().leader(), consensus.raft().applied());
        let abandoned = |incoming: &Incoming| incoming.is_abandoned(now, leader, applied);
        if self.incoming.as_ref().is_some_and(abandoned) {
            self.end(disk, out);
        }
    }

    /// Raft's log begins at the snapshot at `index`: the state that belongs to it, if that snapshot is the received
    /// one.
    pub(super) fn take_installing(&mut self, index: u64) -> Option<StateMachine> {
        let state = self.installing.take()?;
        (state.applied_index() == index).then_some(state)
    }

    /// Raft has made up its mind. Returns whether it has found the snapshot to be of no use.
    pub(super) fn drop_installing(&mut self) -> bool {
        self.installing.take().is_some()
    }
}

#[cfg(test)]
impl Receiving {
    /// As if this state had been received.
    pub(super) fn receive(&mut self, state: StateMachine) {
        self.installing = Some(state);
    }

    pub(super) fn is_receiving(&self) -> bool {
        self.incoming.is_some()
    }
}
