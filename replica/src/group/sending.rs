//! Snapshots that go out: one image of the state, sent to every member that needs it.

use prost::Message as _;
use raft::eraftpb::{Message, Snapshot};
use trine_protocol::message::Incarnation;
use trine_transport::time::{Duration, Instant};

use super::consensus::Consensus;
use super::local::Local;
use crate::config::SNAPSHOT_TRANSFERS_MAX;
use crate::outbox::Outbox;
use crate::snapshot_transfer::{Image, Outgoing, TransferState};
use crate::state_machine::StateMachine;

/// An image from which no chunk was taken for so long is given up: the store keeps overwritten values for its sake.
const OFFER_TIME: Duration = Duration::from_secs(1);

/// The image that this member sends, and its receivers.
pub(super) struct Sending {
    /// Some while raft is offered a snapshot, or one is being sent.
    image: Option<Image>,
    /// At most [`SNAPSHOT_TRANSFERS_MAX`]; empty without an image.
    transfers: Vec<Outgoing>,
    next_transfer: u64,
}

impl Sending {
    /// Transfers are numbered from `transfer` on.
    pub(super) fn starting_at(transfer: u64) -> Self {
        Self {
            image: None,
            transfers: Vec::new(),
            next_transfer: transfer,
        }
    }

    /// Whether the store holds an image for this.
    pub(super) fn has_image(&self) -> bool {
        self.image.is_some()
    }

    /// When the next chunk is due.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.transfers
            .iter()
            .filter_map(Outgoing::next_timeout)
            .min()
    }

    /// A member that installs the image goes on from here: without the entries after it, it would need another one.
    pub(super) fn log_needed_from(&self) -> Option<u64> {
        let image = self.image.as_ref().filter(|_| !self.transfers.is_empty());
        image.map(Image::index)
    }

    /// Begins an image if raft has looked for a snapshot, and drops one that no member needs. `store_is_taken`: the
    /// store already makes another image.
    pub(super) fn offer(
        &mut self,
        now: Instant,
        local: &Local,
        mut state: Option<&mut StateMachine>,
        store_is_taken: bool,
        consensus: &mut Consensus,
    ) {
        let wanted = consensus.take_snapshot_wanted() && consensus.raft().is_leader();
        let busy = !self.transfers.is_empty();
        if store_is_taken {
            // The store makes one image at a time. Raft asks again.
            return;
        }
        if let Some(image) = &self.image {
            let fresh = image.is_whole() && now.saturating_since(image.begun()) < OFFER_TIME;
            if busy || (consensus.raft().is_leader() && fresh && !wanted) {
                return;
            }
            // No member takes it, or no member that needs one is in it.
            self.drop_image(state.as_deref_mut(), consensus);
        }
        let Some(state) = state else { return };
        if wanted {
            self.begin_image(now, local, state, consensus);
        } else {
            state.store_mut().clear_snapshot();
        }
    }

    fn begin_image(
        &mut self,
        now: Instant,
        local: &Local,
        state: &mut StateMachine,
        consensus: &mut Consensus,
    ) {
        let index = state.applied_index();
        let Some(term) = consensus.raft().term_at(index) else {
            return;
        };
        assert!(self.image.is_none(), "the store makes one image at a time");
        let Some(image) = Image::begin(now, state, local.config.snapshot_chunk_bytes) else {
            return;
        };
        let mut snapshot = Snapshot::default();
        let metadata = snapshot.mut_metadata();
        (metadata.index, metadata.term) = (index, term);
        metadata.conf_state = Some(consensus.raft().conf_state());
        self.image = Some(image);
        consensus.offer_snapshot(Some(snapshot));
    }

    /// Ends the image, and every transfer of it.
    pub(super) fn drop_image(
        &mut self,
        state: Option<&mut StateMachine>,
        consensus: &mut Consensus,
    ) {
        if let (Some(image), Some(state)) = (self.image.take(), state) {
            image.abandon(state.store_mut());
        }
        self.transfers.clear();
        consensus.offer_snapshot(None);
    }

    /// Raft wants `message`'s snapshot sent: the state goes in front of it.
    pub(super) fn begin_transfer(
        &mut self,
        now: Instant,
        message: &Message,
        local: &Local,
        state: Option<&StateMachine>,
        consensus: &mut Consensus,
        out: &mut Outbox,
    ) {
        let to = Incarnation(message.to);
        let metadata = message.get_snapshot().get_metadata();
        let fits = |image: &&Image| image.index() == metadata.index && image.is_whole();
        let image = self.image.as_ref().filter(fits);
        let member = state.and_then(|state| state.members().get(to));
        self.transfers.retain(|transfer| transfer.to() != to);
        let has_room = self.transfers.len() < SNAPSHOT_TRANSFERS_MAX;
        let (Some(image), Some(member), true) = (image, member, has_room) else {
            out.counters.snapshots_failed += 1;
            return consensus.report_snapshot(to, false);
        };
        let transfer = self.next_transfer;
        self.next_transfer += 1;
        let (header, address, term) = (local.header_to(to), member.address, metadata.term);
        let bytes = message.encode_to_vec();
        let index = image.index();
        self.transfers.push(Outgoing::new(
            header, address, transfer, term, index, bytes, now,
        ));
        assert!(self.transfers.len() <= SNAPSHOT_TRANSFERS_MAX);
    }

    /// Sends the chunks that are due of every transfer, and drops the chunks that all of them have
    /// passed.
    pub(super) fn send_chunks(
        &mut self,
        now: Instant,
        state: Option<&mut StateMachine>,
        consensus: &mut Consensus,
        out: &mut Outbox,
    ) {
        let has_image = self.image.is_some();
        assert!(
            has_image || self.transfers.is_empty(),
            "a transfer is of an image"
        );
        let (Some(image), Some(state)) = (&mut self.image, state) else {
            return;
        };
        let mut failed = Vec::new();
        self.transfers.retain_mut(|transfer| {
            let goes_on = transfer.on_turn(now, image, state.store_mut(), out);
            if !goes_on {
                failed.push(transfer.to());
            }
            goes_on
        });
        if let Some(needed) = self.transfers.iter().map(Outgoing::needs_from).min() {
            image.forget_below(needed);
            if !image.is_whole() {
                // A follower that asks now is too late for the image's beginning.
                consensus.offer_snapshot(None);
            }
        }
        for to in failed {
            out.counters.snapshots_failed += 1;
            consensus.report_snapshot(to, false);
        }
    }

    /// Raft has turned away from the snapshot: the receiver was helped otherwise, or is gone.
    pub(super) fn end_useless_transfers(&mut self, consensus: &Consensus) {
        self.transfers.retain(|transfer| {
            consensus
                .raft()
                .progress(transfer.to().0)
                .is_some_and(|progress| progress.in_snapshot)
        });
    }

    /// A chunk was answered, or was not.
    pub(super) fn on_chunk_answer(
        &mut self,
        now: Instant,
        to: Incarnation,
        transfer: u64,
        answer: Option<&[u8]>,
        consensus: &mut Consensus,
        out: &mut Outbox,
    ) {
        let is_its = |outgoing: &Outgoing| outgoing.to() == to;
        let Some(at) = self.transfers.iter().position(is_its) else {
            return;
        };
        let state = self.transfers[at].on_answer(now, transfer, answer);
        if state == TransferState::Going {
            return;
        }
        self.transfers.remove(at);
        let installed = state == TransferState::Installed;
        let counter = if installed {
            &mut out.counters.snapshots_sent
        } else {
            &mut out.counters.snapshots_failed
        };
        *counter += 1;
        consensus.report_snapshot(to, installed);
    }
}
