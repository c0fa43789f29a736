//! Snapshots: taken when raft asks for one, sent chunk by chunk, received and installed.

use prost::Message as _;
use raft::eraftpb::{Message, Snapshot};
use trine_protocol::message::{ChunkAck, ChunkOutcome, Incarnation, ReplyToken, SnapshotChunk};
use trine_transport::time::{Duration, Instant};

use super::Group;
use crate::config::SNAPSHOT_TRANSFERS_MAX;
use crate::halt::Halt;
use crate::outbox::Outbox;
use crate::snapshot_transfer::{Image, Incoming, Outgoing, Outlook, ended};
use crate::state_machine::StateMachine;

/// An image that nobody has taken for so long is given up: the store keeps what is overwritten for its sake.
const OFFER_TIME: Duration = Duration::from_secs(1);

impl Group {
    /// Begins an image if raft has looked for a snapshot, and lets go of one that nobody needs.
    pub(super) fn offer_snapshot(&mut self, now: Instant) {
        let wanted = self.consensus.take_snapshot_wanted() && self.consensus.raft().is_leader();
        let busy = !self.outgoing.is_empty();
        if self.writes_own_snapshot() {
            // The store makes one image at a time. Raft asks again.
            return;
        }
        if let Some(image) = &self.image {
            let fresh = image.is_whole() && now.saturating_since(image.begun) < OFFER_TIME;
            if busy || (self.consensus.raft().is_leader() && fresh && !wanted) {
                return;
            }
            // Nobody takes it, or nobody who needs one is in it.
            self.drop_image();
        }
        if wanted {
            self.begin_image(now);
        } else if let Some(state) = &mut self.state {
            state.store_mut().clear_snapshot();
        }
    }

    fn begin_image(&mut self, now: Instant) {
        let Some(state) = &mut self.state else { return };
        let index = state.applied_index();
        let Some(term) = self.consensus.raft().term_at(index) else {
            return;
        };
        let Some(image) = Image::begin(now, state, self.local.config.snapshot_chunk_bytes) else {
            return;
        };
        let mut snapshot = Snapshot::default();
        let metadata = snapshot.mut_metadata();
        (metadata.index, metadata.term) = (index, term);
        metadata.conf_state = Some(self.consensus.raft().conf_state());
        self.image = Some(image);
        self.consensus.offer_snapshot(Some(snapshot));
    }

    /// Ends the image, and every transfer of it.
    pub(super) fn drop_image(&mut self) {
        if let (Some(image), Some(state)) = (self.image.take(), &mut self.state) {
            image.abandon(state.store_mut());
        }
        self.outgoing.clear();
        self.consensus.offer_snapshot(None);
    }

    /// Raft wants `message`'s snapshot sent: the state goes in front of it.
    pub(super) fn begin_transfer(&mut self, now: Instant, message: Message, out: &mut Outbox) {
        let to = Incarnation(message.to);
        let metadata = message.get_snapshot().get_metadata();
        let fits = |image: &&Image| image.index == metadata.index && image.is_whole();
        let image = self.image.as_ref().filter(fits);
        let member = self
            .state
            .as_ref()
            .and_then(|state| state.members().get(to));
        self.outgoing.retain(|transfer| transfer.to() != to);
        let (Some(image), Some(member), true) =
            (image, member, self.outgoing.len() < SNAPSHOT_TRANSFERS_MAX)
        else {
            out.counters.snapshots_failed += 1;
            return self.consensus.report_snapshot(to, false);
        };
        let transfer = self.next_transfer;
        self.next_transfer += 1;
        let (header, address, term) = (self.local.header_to(to), member.address, metadata.term);
        let bytes = message.encode_to_vec();
        let index = image.index;
        self.outgoing.push(Outgoing::new(
            header, address, transfer, term, index, bytes, now,
        ));
    }

    /// Sends what is due of every transfer, and drops what all of them have behind them.
    pub(super) fn send_chunks(&mut self, now: Instant, out: &mut Outbox) {
        let (Some(image), Some(state)) = (&mut self.image, &mut self.state) else {
            return;
        };
        let mut failed = Vec::new();
        self.outgoing.retain_mut(|transfer| {
            let goes_on = transfer.on_turn(now, image, state.store_mut(), out);
            if !goes_on {
                failed.push(transfer.to());
            }
            goes_on
        });
        if let Some(needed) = self.outgoing.iter().map(Outgoing::needs_from).min() {
            image.forget_below(needed);
            if !image.is_whole() {
                // Who comes now comes too late for its beginning.
                self.consensus.offer_snapshot(None);
            }
        }
        for to in failed {
            out.counters.snapshots_failed += 1;
            self.consensus.report_snapshot(to, false);
        }
    }

    /// Raft has turned away from the snapshot: the receiver was helped otherwise, or is gone.
    pub(super) fn end_useless_transfers(&mut self) {
        let raft = self.consensus.raft();
        self.outgoing.retain(|transfer| {
            raft.progress(transfer.to().0)
                .is_some_and(|progress| progress.in_snapshot)
        });
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
        // An answer that says nothing is one of a receiver that lives; what cannot be read is a refusal.
        if answer.is_some_and(|answer| answer.is_empty() || ChunkAck::decode(answer).is_ok()) {
            self.hear(now, to, 0);
        }
        let Some(at) = self
            .outgoing
            .iter()
            .position(|outgoing| outgoing.to() == to)
        else {
            return;
        };
        let outlook = self.outgoing[at].on_answer(now, transfer, answer);
        if outlook == Outlook::Going {
            return;
        }
        self.outgoing.remove(at);
        let installed = outlook == Outlook::Installed;
        let counter = if installed {
            &mut out.counters.snapshots_sent
        } else {
            &mut out.counters.snapshots_failed
        };
        *counter += 1;
        self.consensus.report_snapshot(to, installed);
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
        match self.take_chunk(now, chunk, out) {
            Some(ack) if ack.outcome == ChunkOutcome::Wanted && self.disk_is_behind() => {
                self.answer_when_written(token, ack, out);
            }
            Some(ack) => out.reply(token, &ack),
            // The disk does not have it yet.
            None => self.answer_when_installed(token, chunk.transfer, out),
        }
    }

    fn take_chunk(
        &mut self,
        now: Instant,
        chunk: &SnapshotChunk<'_>,
        out: &mut Outbox,
    ) -> Option<ChunkAck> {
        let refused = ended(ChunkOutcome::Refused, chunk.transfer);
        if chunk.chunk == 0 {
            return Some(self.begin_incoming(now, chunk, out).unwrap_or(refused));
        }
        let Some(incoming) = self
            .incoming
            .as_mut()
            .filter(|incoming| incoming.is_of(chunk))
        else {
            // This life does not know the transfer (any more): it has to begin anew.
            return Some(ended(ChunkOutcome::Wanted, chunk.transfer));
        };
        if !incoming.is_due(chunk) {
            return Some(incoming.wanted());
        }
        if incoming.push(now, chunk).is_none() {
            out.counters.snapshots_failed += 1;
            self.end_incoming(out);
            return Some(refused);
        }
        let wanted = incoming.wanted();
        if let Some(disk) = &mut self.disk {
            disk.write_incoming(chunk.data, out);
        }
        if !chunk.last {
            return Some(wanted);
        }
        if self.finish_incoming(now, chunk.header.from, out) {
            return Some(ended(ChunkOutcome::Installed, chunk.transfer));
        }
        (!self.consensus.raft().awaits_snapshot()).then_some(refused)
    }

    fn begin_incoming(
        &mut self,
        now: Instant,
        chunk: &SnapshotChunk<'_>,
        out: &mut Outbox,
    ) -> Option<ChunkAck> {
        if let Some(incoming) = self
            .incoming
            .as_ref()
            .filter(|incoming| incoming.is_of(chunk))
        {
            return Some(incoming.wanted());
        }
        let incoming = Incoming::begin(now, chunk)?;
        if self.consensus.raft().is_leader() || self.consensus.raft().awaits_snapshot() {
            return None;
        }
        if chunk.index <= self.consensus.raft().applied() {
            // It stands here already. Who asks again has missed that answer; a refusal would make raft want it anew.
            return Some(ended(ChunkOutcome::Installed, chunk.transfer));
        }
        let checked = self
            .consensus
            .raft()
            .check(chunk.header.from.0, incoming.message());
        if checked.is_err() {
            out.counters.messages_refused += 1;
            return None;
        }
        let ack = incoming.wanted();
        self.end_incoming(out);
        if let Some(disk) = &mut self.disk {
            disk.begin_incoming(self.local.cluster, incoming.message(), out);
        }
        self.incoming = Some(incoming);
        Some(ack)
    }

    /// Lets go of what is received and will not be finished: it holds half a state, and the own snapshots wait for it.
    pub(super) fn end_abandoned_incoming(&mut self, now: Instant, out: &mut Outbox) {
        let (leader, applied) = (
            self.consensus.raft().leader(),
            self.consensus.raft().applied(),
        );
        let abandoned = |incoming: &Incoming| incoming.is_abandoned(now, leader, applied);
        if self.incoming.as_ref().is_some_and(abandoned) {
            self.end_incoming(out);
        }
    }

    /// Everything is here: lets raft decide, and puts the state in place if raft takes it.
    fn finish_incoming(&mut self, now: Instant, from: Incarnation, out: &mut Outbox) -> bool {
        let Some((message, state)) = self.incoming.take().and_then(Incoming::finish) else {
            out.counters.snapshots_failed += 1;
            self.end_incoming(out);
            return false;
        };
        if state.cluster() != self.local.cluster {
            out.counters.messages_foreign += 1;
            self.end_incoming(out);
            return false;
        }
        let index = state.applied_index();
        self.installing = Some(state);
        self.step(now, from, message, None, out);
        self.pump(now, out);
        if self.consensus.raft().awaits_snapshot() {
            return false;
        }
        self.end_incoming(out);
        // Still there if raft has found the snapshot to be of no use.
        self.installing.take().is_none()
            && self
                .state
                .as_ref()
                .is_some_and(|state| state.applied_index() >= index)
    }

    /// A replica that joins learns only now what the group has promised its leaders.
    fn adapt_to(&mut self, state: &StateMachine) {
        let config = state.genesis().adapt(&self.local.config);
        if config != self.local.config {
            self.local.config = config;
            self.consensus.promise_silence(config.election_ticks);
            match &mut self.disk {
                Some(disk) => disk.adopt_later = true,
                None => self.consensus.adopt(&config),
            }
        }
    }

    /// Raft's log stands on the snapshot now: so does the state.
    pub(super) fn install(&mut self, snapshot: &Snapshot, out: &mut Outbox) {
        let index = snapshot.get_metadata().index;
        match self.installing.take() {
            Some(state) if state.applied_index() == index => {
                self.consensus.applied_to(index);
                self.adapt_to(&state);
                let state = state.understanding(self.local.config.state_version);
                if state.is_too_new() {
                    return self.halt(Halt::TooOld);
                }
                self.state = Some(state);
                out.counters.snapshots_installed += 1;
                self.answer_installed(out);
            }
            _ => self.halt(Halt::Broken(
                "raft has taken a snapshot whose state is not here",
            )),
        }
    }
}
