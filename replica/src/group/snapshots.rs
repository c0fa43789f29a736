//! Snapshots: offered and made once a tick, received chunk by chunk, and put in place when raft takes them.

use raft::eraftpb::Snapshot;
use trine_protocol::message::{ChunkAck, ChunkOutcome, Incarnation, ReplyToken, SnapshotChunk};
use trine_transport::time::Instant;

use super::Group;
use super::receiving::Taken;
use crate::halt::Halt;
use crate::outbox::Outbox;
use crate::snapshot_transfer::ended;
use crate::state_machine::StateMachine;

impl Group {
    /// The work of one tick: an image for raft, and in disk mode a snapshot of this member's own.
    pub(super) fn maintain_snapshots(&mut self, now: Instant, out: &mut Outbox) {
        self.make_way(now, out);
        // Raft's image first: a follower waits for it, and the store makes one image at a time.
        let disk = self.disk.as_ref();
        let store_is_taken =
            disk.is_some_and(|disk| disk.writes_own_snapshot()) || self.backups.has_image();
        self.sending.offer(
            now,
            &self.local,
            self.state.as_mut(),
            store_is_taken,
            &mut self.consensus,
        );
        if let Some(disk) = &mut self.disk {
            let busy = self.sending.has_image()
                || self.receiving.is_installing()
                || self.backups.has_image();
            disk.begin_own_snapshot(
                now,
                &self.local,
                self.state.as_mut(),
                busy,
                &self.consensus,
                out,
            );
            disk.adopt_late(&self.local, &mut self.consensus);
        }
    }

    /// The store makes one image at a time: that of a backup gives way to what the group needs.
    fn make_way(&mut self, now: Instant, out: &mut Outbox) {
        let disk = self.disk.as_deref();
        let overdue = disk.is_some_and(|disk| disk.own_snapshot_is_overdue(&self.local));
        let in_the_way = if self.consensus.raft().is_leader() && self.consensus.wants_snapshot() {
            Some("another member needed the state")
        } else if overdue {
            Some("the replica's own snapshot could not wait any longer")
        } else {
            None
        };
        self.backups
            .maintain(now, self.state.as_mut(), in_the_way, out);
    }

    /// A chunk was answered, or was not.
    pub(crate) fn on_chunk_answer(
        &mut self,
        now: Instant,
        to: Incarnation,
        transfer: u64,
        answer: Option<&[u8]>,
        out: &mut Outbox,
    ) {
        // An empty answer comes from a receiver that is alive; an unreadable one is a refusal.
        if answer.is_some_and(|answer| answer.is_empty() || ChunkAck::decode(answer).is_ok()) {
            self.hear(now, to, 0);
        }
        let consensus = &mut self.consensus;
        self.sending
            .on_chunk_answer(now, to, transfer, answer, consensus, out);
    }

    /// A chunk has arrived.
    pub(crate) fn on_chunk(
        &mut self,
        now: Instant,
        token: ReplyToken,
        chunk: &SnapshotChunk<'_>,
        out: &mut Outbox,
    ) {
        if !self.concerns(&chunk.header, out) {
            return out.reply_empty(token);
        }
        self.hear(now, chunk.header.from, chunk.header.state_version);
        let disk = self.disk.as_deref_mut();
        let receiving = &mut self.receiving;
        let taken = receiving.on_chunk(now, chunk, &self.local, &self.consensus, disk, out);
        let answer = match taken {
            Taken::Answer(ack) => Some(ack),
            Taken::TooNew(ack) => {
                self.life.halt(Halt::TooOld);
                Some(ack)
            }
            Taken::Whole => self.finish_receiving(now, chunk, out),
        };
        match (answer, &mut self.disk) {
            (Some(ack), Some(disk)) if ack.outcome == ChunkOutcome::Wanted && disk.is_behind() => {
                disk.answer_when_written(token, ack, out);
            }
            (Some(ack), _) => out.reply(token, &ack),
            // The disk does not have it yet.
            (None, Some(disk)) => disk.answer_when_installed(token, chunk.transfer, out),
            (None, None) => out.reply_empty(token),
        }
    }

    /// The last chunk is here. Without an answer the disk does not have the snapshot yet.
    fn finish_receiving(
        &mut self,
        now: Instant,
        chunk: &SnapshotChunk<'_>,
        out: &mut Outbox,
    ) -> Option<ChunkAck> {
        if self.put_in_place(now, chunk.header.from, out) {
            return Some(ended(ChunkOutcome::Installed, chunk.transfer));
        }
        let waits = self.consensus.raft().awaits_snapshot();
        (!waits).then(|| ended(ChunkOutcome::Refused, chunk.transfer))
    }

    /// Lets raft decide about the received snapshot. Returns whether the state is in place.
    fn put_in_place(&mut self, now: Instant, from: Incarnation, out: &mut Outbox) -> bool {
        let disk = self.disk.as_deref_mut();
        let Some(received) = self.receiving.finish(&self.local, disk, out) else {
            return false;
        };
        self.step(now, from, received.message, None, out);
        self.pump(now, out);
        if self.consensus.raft().awaits_snapshot() {
            return false;
        }
        self.receiving.end(self.disk.as_deref_mut(), out);
        let useless = self.receiving.drop_installing();
        let applied = self.state.as_ref().map(StateMachine::applied_index);
        !useless && applied.is_some_and(|applied| applied >= received.index)
    }

    /// A replica that joins learns only now the group's promise to its leaders.
    fn adapt_to(&mut self, state: &StateMachine) {
        let config = state.genesis().adapt(&self.local.config);
        if config != self.local.config {
            self.local.config = config;
            self.consensus.promise_silence(config.election_ticks);
            match &mut self.disk {
                Some(disk) => disk.adopt_when_settled(),
                None => self.consensus.adopt(&config),
            }
        }
    }

    /// Raft's log begins at the snapshot now, and so does the state.
    pub(super) fn install(&mut self, snapshot: &Snapshot, out: &mut Outbox) {
        let index = snapshot.get_metadata().index;
        let Some(state) = self.receiving.take_installing(index) else {
            return self.life.halt(Halt::Broken(
                "raft has taken a snapshot whose state is not here",
            ));
        };
        // It reads from the store that goes.
        let why = "the replica was sent a later state";
        self.backups.give_up(self.state.as_mut(), why, out);
        self.consensus.applied_to(index);
        self.adapt_to(&state);
        let config = &self.local.config;
        let state = state
            .understanding(config.state_version)
            .with_history(config.watch_history_bytes)
            .retaining(config.retain_bytes);
        if state.is_too_new() {
            return self.life.halt(Halt::TooOld);
        }
        self.promised.retain(state.members());
        self.state = Some(state);
        out.places.forget_findings();
        self.watches.on_new_state();
        out.counters.snapshots_installed += 1;
        if let Some(disk) = &mut self.disk {
            disk.answer_installed(out);
        }
    }
}
