//! The ready loop of disk mode: what a round promises leaves only once the disk has the round.
//!
//! A leader's appends leave at once, before its own write is even under way: raft counts the leader itself in only when
//! [`RaftGroup::on_written`] says so, and gives entries out to be applied only when they are on this disk too.

use raft::StateRole;
use raft::eraftpb::{HardState, Message, Snapshot};

use super::{RaftGroup, Work, is_answer};
use crate::disk::Record;
use crate::log::Log;

/// A round of the ready loop that the disk does not have yet.
pub(super) struct Unwritten {
    /// The write that carries it, or the last one in front of it if it carries nothing.
    write: u64,
    /// Raft's number for it.
    number: u64,
    /// What leaves once it is written.
    messages: Vec<Message>,
    snapshot: Option<Snapshot>,
}

impl<L: Log> RaftGroup<L> {
    /// One round of the ready loop, or nothing if raft wants nothing. `submit` takes what has to be written, behind
    /// the snapshot that the log is to stand on if there is one, and numbers it.
    pub(crate) fn poll_work_durably(
        &mut self,
        submit: impl FnOnce(Record, Option<&Snapshot>) -> u64,
    ) -> Option<Work> {
        if !self.node.has_ready() {
            return None;
        }
        let mut ready = self.node.ready();
        let mut work = Work {
            read_states: ready.take_read_states(),
            messages: ready.take_messages(),
            ..Work::default()
        };
        let mut held = Vec::new();
        if !self.unwritten.is_empty() {
            // Answers leave in the order in which raft has made them: those of a follower may still be held.
            (held, work.messages) = work.messages.into_iter().partition(is_answer);
        }
        let mut record = Record::default();
        let snapshot = (!ready.snapshot().is_empty()).then(|| ready.snapshot().clone());
        if let Some(snapshot) = &snapshot {
            self.node.mut_store().restore(snapshot);
            record.restore(snapshot.get_metadata().index);
        }
        let entries = ready.take_entries();
        record.entries(&entries);
        self.node.mut_store().append(entries);
        if let Some(state) = ready.hs() {
            let state = state.clone();
            self.node.mut_store().set_hard_state(state);
        }
        held.append(&mut ready.take_persisted_messages());
        work.committed = ready.take_committed_entries();
        let (number, must_sync) = (ready.number(), ready.must_sync());
        self.node.advance_append_async(ready);
        let write = if must_sync {
            record.hard_state(&self.hard_state());
            submit(record, snapshot.as_ref())
        } else if let Some(before) = self.unwritten.back() {
            before.write
        } else {
            self.node.on_persist_ready(number);
            work.messages.append(&mut held);
            return Some(work);
        };
        self.unwritten.push_back(Unwritten {
            write,
            number,
            messages: held,
            snapshot,
        });
        Some(work)
    }

    fn hard_state(&self) -> HardState {
        let raft = &self.node.raft;
        HardState {
            term: raft.term,
            vote: raft.vote,
            commit: raft.raft_log.committed,
        }
    }

    /// Every write up to `write` is durable: what was held back for them may leave.
    pub(crate) fn on_written(&mut self, write: u64) -> Option<Work> {
        let mut work = None;
        while self
            .unwritten
            .front()
            .is_some_and(|front| front.write <= write)
            && let Some(mut front) = self.unwritten.pop_front()
        {
            self.node.on_persist_ready(front.number);
            let work = work.get_or_insert_with(Work::default);
            work.messages.append(&mut front.messages);
            work.snapshot = front.snapshot.or(work.snapshot.take());
        }
        work
    }

    /// Whether the disk has everything that raft has handed out.
    pub(crate) fn is_settled(&self) -> bool {
        self.unwritten.is_empty() && !self.node.has_ready()
    }

    /// Whether a snapshot is on its way to the disk.
    pub(crate) fn awaits_snapshot(&self) -> bool {
        self.unwritten.iter().any(|round| round.snapshot.is_some())
    }

    /// A single voter would make itself the leader at once, which raft allows only where its whole log is written.
    pub(super) fn must_not_campaign_yet(&self) -> bool {
        let alone = || {
            let conf = self.node.raft.prs().conf().to_conf_state();
            conf.voters.len() <= 1 && conf.voters_outgoing.is_empty()
        };
        !self.unwritten.is_empty() && self.node.raft.state != StateRole::Leader && alone()
    }
}
