//! Disk mode of a member: its writes, the messages that it holds back until they are durable, and its own snapshots.
//!
//! The log in memory is bounded as in memory mode, whatever the disk does. On disk a log segment is kept until a
//! snapshot that replaces it is durable. This replica makes one of its own state whenever enough log has piled up.

use std::collections::VecDeque;

use raft::eraftpb::{Message, Snapshot};
use trine_protocol::message::{ChunkAck, ChunkOutcome, ClusterId, ReplyToken};
use trine_transport::time::Instant;

use super::consensus::Consensus;
use super::local::Local;
use crate::bootstrap::Origin;
use crate::config::{
    BACKUP_LOG_SHARE_MAX, OWN_SNAPSHOT_BYTES_PER_TURN, SNAPSHOT_BYTES_WAITING_MAX,
};
use crate::disk::{Identity, Record, SnapshotHead, Write, begin_piece, end_piece, middle_piece};
use crate::outbox::Outbox;
use crate::snapshot_transfer::{Image, Piece, ended};
use crate::state_machine::StateMachine;

/// The state that only a member of disk mode keeps.
#[derive(Default)]
pub(super) struct Durability {
    last_stream: u64,
    /// The snapshot of its own state that is being written.
    own: Option<OwnSnapshot>,
    /// The snapshot that is being received.
    incoming: Option<IncomingStream>,
    /// The sender that waits for an installed snapshot to be durable.
    installed_asker: Option<Asker>,
    /// The sender that waits with its next chunk until the disk has caught up.
    chunk_asker: Option<Asker>,
    /// Bytes of log since the last snapshot was begun, and the bytes that one had.
    log_bytes: u64,
    snapshot_bytes: u64,
    /// Pieces of snapshots that wait for the disk.
    waiting: VecDeque<WaitingPiece>,
    /// Settings that came with a snapshot are taken over once the disk has everything.
    adopt_later: bool,
}

/// The sender of a snapshot waits for the disk.
struct Asker {
    token: ReplyToken,
    /// The answer that it will get.
    answer: ChunkAck,
}

struct OwnSnapshot {
    stream: u64,
    image: Image,
    pieces: u32,
    bytes: u64,
    /// Bytes of log that had piled up when it was begun. They still do if it comes to nothing.
    log_bytes_before: u64,
}

/// A snapshot on its way from another member to the disk.
struct IncomingStream {
    stream: u64,
    /// Pieces that are submitted.
    pieces: u32,
}

/// A piece of a snapshot that waits for the disk.
struct WaitingPiece {
    /// The number of its write.
    write: u64,
    bytes: usize,
}

impl Durability {
    /// Everything that this member promises goes through the disk from here on; its identity goes first.
    pub(super) fn begin(local: &Local, origin: Option<&Origin>, out: &mut Outbox) -> Self {
        let identity = Identity {
            node_id: local.own.node_id,
            incarnation: local.own.incarnation,
            cluster: local.cluster,
            origin: origin.cloned(),
        };
        out.write(Write::Identity(identity.encode()));
        Self::default()
    }

    /// The disk has kept so many bytes of log.
    pub(super) fn with_log(log_bytes: u64) -> Self {
        Self {
            log_bytes,
            ..Self::default()
        }
    }

    fn next_stream(&mut self) -> u64 {
        self.last_stream += 1;
        self.last_stream
    }

    /// Submits the writes of a round of the ready loop, after the snapshot that the log is to begin at if there is
    /// one. Returns the number of the write.
    pub(super) fn submit(
        &mut self,
        record: Record,
        snapshot: Option<&Snapshot>,
        state: Option<&mut StateMachine>,
        out: &mut Outbox,
    ) -> u64 {
        if let Some(snapshot) = snapshot {
            self.give_up_own(state, out);
            self.end_incoming_with(snapshot.get_metadata().index, out);
        }
        let write = Write::Log(record);
        self.log_bytes = self.log_bytes.saturating_add(write.len() as u64);
        out.write(write)
    }

    /// Everything up to write `number` is durable.
    pub(super) fn on_written(&mut self, number: u64, out: &mut Outbox) {
        while self
            .waiting
            .front()
            .is_some_and(|piece| piece.write <= number)
        {
            self.waiting.pop_front();
        }
        if !self.is_behind()
            && let Some(asker) = self.chunk_asker.take()
        {
            out.reply(asker.token, &asker.answer);
        }
    }

    /// The files must not be used again: the same state would come out of the log and the snapshots.
    pub(super) fn quarantine(why: String, out: &mut Outbox) {
        out.write(Write::Quarantined(why));
    }

    /// A snapshot comes in; raft's message says of which state.
    pub(super) fn begin_incoming(
        &mut self,
        cluster: ClusterId,
        message: &Message,
        out: &mut Outbox,
    ) {
        let metadata = message.get_snapshot().get_metadata();
        let head = SnapshotHead {
            cluster,
            index: metadata.index,
            term: metadata.term,
            conf: metadata.get_conf_state().clone(),
        };
        assert!(
            self.incoming.is_none(),
            "the snapshot before was ended or given up"
        );
        let stream = self.next_stream();
        let bytes = begin_piece(&head);
        out.write(Write::SnapshotPiece { stream, bytes });
        self.incoming = Some(IncomingStream { stream, pieces: 1 });
    }

    pub(super) fn write_incoming(&mut self, chunk: &[u8], out: &mut Outbox) {
        if let Some(incoming) = &mut self.incoming {
            let (stream, bytes) = (incoming.stream, middle_piece(incoming.pieces, chunk));
            let len = bytes.len();
            let write = out.write(Write::SnapshotPiece { stream, bytes });
            wait_for(&mut self.waiting, WaitingPiece { write, bytes: len });
            incoming.pieces += 1;
        }
    }

    /// The snapshot that is being received will not be finished.
    pub(super) fn give_up_incoming(&mut self, out: &mut Outbox) {
        if let Some(IncomingStream { stream, .. }) = self.incoming.take() {
            out.write(Write::SnapshotGivenUp { stream });
        }
    }

    /// The log is going to begin at the snapshot that has come in.
    fn end_incoming_with(&mut self, index: u64, out: &mut Outbox) {
        if let Some(IncomingStream { stream, pieces }) = self.incoming.take() {
            let bytes = end_piece(pieces);
            out.write(Write::SnapshotPiece { stream, bytes });
            out.write(Write::SnapshotEnd { stream, index });
            self.log_bytes = 0;
        }
    }

    /// Whether as much of snapshots waits for the disk as may.
    pub(super) fn is_behind(&self) -> bool {
        bytes_of(&self.waiting) >= SNAPSHOT_BYTES_WAITING_MAX
    }

    /// The sender of a snapshot may go on when the disk has got on. It has one chunk under way at a time: if it sends that
    /// again, the later one is answered.
    pub(super) fn answer_when_written(
        &mut self,
        token: ReplyToken,
        ack: ChunkAck,
        out: &mut Outbox,
    ) {
        answer_later(&mut self.chunk_asker, Asker { token, answer: ack }, out);
    }

    /// The sender of a snapshot hears of its end when it is durable.
    pub(super) fn answer_when_installed(
        &mut self,
        token: ReplyToken,
        transfer: u64,
        out: &mut Outbox,
    ) {
        let answer = ended(ChunkOutcome::Installed, transfer);
        answer_later(&mut self.installed_asker, Asker { token, answer }, out);
    }

    /// The snapshot is durable and in place.
    pub(super) fn answer_installed(&mut self, out: &mut Outbox) {
        if let Some(asker) = self.installed_asker.take() {
            out.reply(asker.token, &asker.answer);
        }
    }

    /// Settings have come with a snapshot. Raft can be set up for them only when it waits for nothing.
    pub(super) fn adopt_when_settled(&mut self) {
        self.adopt_later = true;
    }

    /// Sets raft up for settings that have come with a snapshot, if nothing waits any more.
    pub(super) fn adopt_late(&mut self, local: &Local, consensus: &mut Consensus) {
        if self.adopt_later && consensus.raft().is_settled() {
            self.adopt_later = false;
            consensus.adopt(&local.config);
        }
    }

    /// Whether the store makes an image for this member's own snapshot.
    pub(super) fn writes_own_snapshot(&self) -> bool {
        self.own.is_some()
    }

    /// Whether far more log has piled up than a snapshot begins with.
    pub(super) fn own_snapshot_is_overdue(&self, local: &Local) -> bool {
        let enough = local.config.disk_log_bytes_max.max(self.snapshot_bytes);
        self.log_bytes / BACKUP_LOG_SHARE_MAX >= enough
    }

    /// Begins a snapshot of the own state if enough log has piled up. `busy`: another snapshot is under way.
    pub(super) fn begin_own_snapshot(
        &mut self,
        now: Instant,
        local: &Local,
        state: Option<&mut StateMachine>,
        busy: bool,
        consensus: &Consensus,
        out: &mut Outbox,
    ) {
        let enough = local.config.disk_log_bytes_max.max(self.snapshot_bytes);
        let busy = busy || self.own.is_some() || self.incoming.is_some();
        let Some(state) = state.filter(|_| !busy) else {
            return;
        };
        if self.log_bytes < enough {
            return;
        }
        let (index, conf) = (state.applied_index(), consensus.raft().conf_state());
        let Some(term) = consensus.raft().term_at(index) else {
            return;
        };
        let Some(image) = Image::begin(now, state, local.config.snapshot_chunk_bytes) else {
            return;
        };
        assert_eq!(image.index(), index, "the head names the image's state");
        let head = SnapshotHead {
            cluster: local.cluster,
            index,
            term,
            conf,
        };
        let stream = self.next_stream();
        let bytes = begin_piece(&head);
        out.write(Write::SnapshotPiece { stream, bytes });
        self.own = Some(OwnSnapshot {
            stream,
            image,
            pieces: 1,
            bytes: 0,
            log_bytes_before: std::mem::take(&mut self.log_bytes),
        });
    }

    /// Writes on at it, as far as the disk keeps up.
    pub(super) fn write_own_snapshot(&mut self, state: &mut StateMachine, out: &mut Outbox) {
        let Some(own) = &mut self.own else { return };
        assert!(own.pieces > 0, "the head was written when it was begun");
        let mut waiting = bytes_of(&self.waiting);
        let mut written = 0;
        while waiting < SNAPSHOT_BYTES_WAITING_MAX && written < OWN_SNAPSHOT_BYTES_PER_TURN {
            let (chunk, last) = match own.image.piece(own.pieces - 1, state.store_mut()) {
                Piece::Chunk(chunk, last) => (chunk, last),
                Piece::Pending => return,
                Piece::Gone => return self.give_up_own(None, out),
            };
            let (stream, bytes) = (own.stream, middle_piece(own.pieces, chunk));
            let len = bytes.len();
            (waiting, written) = (waiting + len, written + len);
            own.bytes += len as u64;
            let write = out.write(Write::SnapshotPiece { stream, bytes });
            wait_for(&mut self.waiting, WaitingPiece { write, bytes: len });
            own.image.forget_below(own.pieces);
            own.pieces += 1;
            if last {
                let (bytes, index) = (end_piece(own.pieces), own.image.index());
                self.snapshot_bytes = own.bytes;
                self.own = None;
                out.write(Write::SnapshotPiece { stream, bytes });
                out.write(Write::SnapshotEnd { stream, index });
                out.counters.snapshots_written += 1;
                return;
            }
        }
    }

    /// The snapshot of the own state comes to nothing. The next one is due at once: no log has gone.
    pub(super) fn give_up_own(&mut self, state: Option<&mut StateMachine>, out: &mut Outbox) {
        if let Some(own) = self.own.take() {
            if let Some(state) = state {
                own.image.abandon(state.store_mut());
            }
            out.write(Write::SnapshotGivenUp { stream: own.stream });
            self.log_bytes = self.log_bytes.saturating_add(own.log_bytes_before);
        }
    }
}

/// Keeps the sender that will be answered. An earlier one has asked again since, and gets an empty
/// answer.
fn answer_later(kept: &mut Option<Asker>, asker: Asker, out: &mut Outbox) {
    if let Some(before) = kept.replace(asker) {
        out.reply_empty(before.token);
    }
}

/// Pieces wait in the order of their writes.
fn wait_for(waiting: &mut VecDeque<WaitingPiece>, piece: WaitingPiece) {
    let last = waiting.back();
    assert!(
        last.is_none_or(|last| last.write < piece.write),
        "writes are numbered in their order"
    );
    waiting.push_back(piece);
}

fn bytes_of(waiting: &VecDeque<WaitingPiece>) -> usize {
    waiting.iter().map(|piece| piece.bytes).sum()
}
