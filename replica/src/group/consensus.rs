//! Raft as one member runs it: its log, its role, and until when it may answer by itself.

mod messages;

use std::collections::VecDeque;

use raft::eraftpb::{ConfChangeV2, ConfState, Entry, Message, MessageType, Snapshot};
use trine_canary as canary;
use trine_protocol::message::{Incarnation, ReplyToken};
use trine_transport::time::{Duration, Instant};

use super::lease::Lease;
use super::local::Local;
use crate::config::{APPENDS_PER_SLOT, COMPACTED_SHARE, ReadMode, ReplicaConfig};
use crate::disk::Record;
use crate::log::{Log, MemoryLog};
use crate::membership::MemberTable;
use crate::outbox::Outbox;
use crate::raft_group::{Proposal, ProposeError, RaftGroup, Refusal, Work};

/// One member's raft, and the consequences of its role.
///
/// All parts may read raft through [`Consensus::raft`]. It changes only through the methods here, so that the lease
/// ends whenever it has to.
pub(super) struct Consensus {
    raft: RaftGroup<MemoryLog>,
    /// One for each answer that raft has made and not handed out yet: the request that it belongs to, if it came as one.
    answers: VecDeque<Option<ReplyToken>>,
    /// The term in which this replica leads, as far as it has acted on it.
    leads_in: Option<u64>,
    leaderless_since: Option<Instant>,
    lease: Lease,
    compactions: u64,
}

/// Leadership was won or lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RoleChange {
    /// Whether this replica led before, in another term.
    pub(super) led: bool,
    /// Whether it leads now.
    pub(super) leads: bool,
}

impl Consensus {
    pub(super) fn new(raft: RaftGroup<MemoryLog>, now: Instant) -> Self {
        Self {
            raft,
            answers: VecDeque::new(),
            leads_in: None,
            leaderless_since: Some(now),
            lease: Lease::default(),
            compactions: 0,
        }
    }

    /// Raft, read-only.
    pub(super) fn raft(&self) -> &RaftGroup<MemoryLog> {
        &self.raft
    }

    /// Asks for votes at once.
    pub(super) fn campaign(&mut self) {
        self.raft.campaign();
    }

    /// See [`RaftGroup::tick_if_due`].
    pub(super) fn tick_if_due(&mut self, now: Instant) -> bool {
        self.raft.tick_if_due(now)
    }

    /// See [`RaftGroup::plan_ticks`].
    pub(super) fn plan_ticks(&mut self) {
        self.raft.plan_ticks();
    }

    /// See [`RaftGroup::poll_work`].
    pub(super) fn poll_work(&mut self) -> Option<Work> {
        self.raft.poll_work()
    }

    /// See [`RaftGroup::poll_work_durably`].
    pub(super) fn poll_work_durably(
        &mut self,
        submit: impl FnOnce(Record, Option<&Snapshot>) -> u64,
    ) -> Option<Work> {
        self.raft.poll_work_durably(submit)
    }

    /// See [`RaftGroup::on_written`].
    pub(super) fn on_written(&mut self, write: u64) -> Option<Work> {
        self.raft.on_written(write)
    }

    /// The state machine holds everything up to `index`.
    pub(super) fn applied_to(&mut self, index: u64) {
        self.raft.applied_to(index);
    }

    /// Proposes one entry.
    ///
    /// # Errors
    /// Nothing was proposed.
    pub(super) fn propose(&mut self, data: Vec<u8>) -> Result<Proposal, ProposeError> {
        self.raft.propose(data)
    }

    /// Proposes a change of the configuration.
    ///
    /// # Errors
    /// Nothing was proposed.
    pub(super) fn propose_conf_change(
        &mut self,
        change: ConfChangeV2,
    ) -> Result<u64, ProposeError> {
        self.raft.propose_conf_change(change)
    }

    /// A change of the configuration was committed as the entry `at`; nothing if it cannot be read. Ends the lease in any
    /// case.
    pub(super) fn apply_conf_change(
        &mut self,
        now: Instant,
        at: Proposal,
        change: Option<&ConfChangeV2>,
    ) -> Option<ConfState> {
        self.lease.interrupt(now);
        change.and_then(|change| self.raft.apply_conf_change(at, change))
    }

    /// Takes other settings from here on; see [`RaftGroup::adopt`].
    pub(super) fn adopt(&mut self, config: &ReplicaConfig) {
        self.raft.adopt(config);
    }

    /// See [`RaftGroup::promise_silence`].
    pub(super) fn promise_silence(&mut self, election_ticks: usize) {
        self.raft.promise_silence(election_ticks);
    }

    /// The snapshot for a member has arrived or failed.
    pub(super) fn report_snapshot(&mut self, to: Incarnation, arrived: bool) {
        self.raft.report_snapshot(to.0, arrived);
    }

    /// Appends to a member may have been lost.
    pub(super) fn report_unreachable(&mut self, to: Incarnation) {
        self.raft.report_unreachable(to.0);
    }

    /// The same as [`Self::take_snapshot_wanted`], which answers once more.
    pub(super) fn wants_snapshot(&self) -> bool {
        self.raft.log().wants_snapshot()
    }

    /// Whether raft has looked for a snapshot since it was asked last.
    pub(super) fn take_snapshot_wanted(&mut self) -> bool {
        self.raft.log_mut().take_snapshot_wanted()
    }

    /// The answer to raft when it looks for a snapshot.
    pub(super) fn offer_snapshot(&mut self, snapshot: Option<Snapshot>) {
        self.raft.log_mut().offer_snapshot(snapshot);
    }

    /// The voters of the configuration in force, and, during a joint change, those of the one that it replaces.
    pub(super) fn voter_sides(&self) -> [Vec<Incarnation>; 2] {
        let conf = self.raft.conf_state();
        [conf.voters, conf.voters_outgoing].map(|side| side.into_iter().map(Incarnation).collect())
    }

    /// Since when this replica knows of no leader, if it knows of none.
    pub(super) fn leaderless_since(&self) -> Option<Instant> {
        self.leaderless_since
    }

    /// Follows raft's role: tells whether leadership was won or lost since this was called last.
    pub(super) fn follow_role(&mut self, now: Instant) -> Option<RoleChange> {
        if self.raft.leader() != 0 {
            self.leaderless_since = None;
        } else if self.leaderless_since.is_none() {
            self.leaderless_since = Some(now);
        }
        let leads_in = self.raft.is_leader().then(|| self.raft.term());
        if leads_in == self.leads_in {
            return None;
        }
        let led = self.leads_in.is_some();
        self.leads_in = leads_in;
        self.lease.end();
        Some(RoleChange {
            led,
            leads: leads_in.is_some(),
        })
    }

    /// This replica has halted: it no longer leads, whatever raft's role is. Returns whether it led until now.
    pub(super) fn stop_leading(&mut self) -> bool {
        self.leads_in.take().is_some()
    }

    /// Begins a transfer of leadership. The new leader does not wait until the lease has ended, so it ends here.
    pub(super) fn transfer_leadership(&mut self, to: Incarnation) {
        if !canary::planted("lease survives a transfer") {
            self.lease.bar(self.raft.term());
        }
        self.raft.transfer_leader(to.0);
    }

    /// Asks a quorum whether this replica still leads, or the leader whether it does. Returns false if there is none to
    /// ask.
    pub(super) fn read_index(&mut self, context: u64) -> bool {
        self.raft.read_index(context)
    }

    /// A quorum has confirmed a round that began at `begun`.
    pub(super) fn extend_lease(&mut self, begun: Instant, length: Duration) {
        // A follower's news describes the state at its leader.
        if self.raft.is_leader() {
            self.lease.extend(begun, length, self.raft.term());
        }
    }

    /// Until when this leader may answer by itself; nothing if it may not.
    pub(super) fn lease_until(&self, now: Instant, local: &Local) -> Option<Instant> {
        if local.config.reads != ReadMode::Lease {
            return None;
        }
        let until = self.lease.until(now)?;
        let leads = self.leads_in == Some(self.raft.term()) && self.raft.leads_with_commit();
        leads.then_some(until)
    }

    /// How often log was given up because it had grown too long.
    pub(super) fn compactions(&self) -> u64 {
        self.compactions
    }

    /// Gives up the oldest entries if there are too many. Those after `needed` stay if possible.
    pub(super) fn compact(&mut self, config: &ReplicaConfig, needed: Option<u64>) {
        let log = self.raft.log();
        let (entries, bytes) = (config.log_entries_max, config.log_bytes_max);
        if log.bytes() <= bytes && log.entry_count() <= entries {
            return;
        }
        // In small steps: a step frees its memory within one turn, and a follower that lags needs the remaining
        // entries.
        let kept = |max: usize| max - max / COMPACTED_SHARE;
        let mut point = log.compaction_point(kept(entries), kept(bytes));
        if let Some(needed) = needed {
            point = point.min(needed).max(log.compaction_point(entries, bytes));
        }
        let through = point.min(self.raft.applied());
        self.raft.log_mut().compact(through);
        self.compactions += 1;
    }

    /// No more appends are in flight to a member than the session to it carries within a few of its rounds. Once a tick,
    /// because raft forgets it when a member is added, or with a snapshot.
    pub(super) fn fit_appends(&mut self, members: &MemberTable, out: &Outbox, appends_max: usize) {
        if !self.raft.is_leader() {
            return;
        }
        for member in members.all() {
            if let Some(slots) = out.slots_to(member) {
                let most = slots.max(1).saturating_mul(APPENDS_PER_SLOT);
                self.raft
                    .limit_appends(member.incarnation.0, most.min(appends_max));
            }
        }
    }

    /// Whether raft has to run before it may take this message: it asserts that a candidate's log is written.
    pub(super) fn must_run_before(&self, message: &Message) -> bool {
        // Not `get_msg_type`: that panics on a type that does not exist.
        let appends = matches!(
            MessageType::from_i32(message.msg_type),
            Some(MessageType::MsgAppend | MessageType::MsgHeartbeat)
        );
        !appends && self.raft.has_unwritten()
    }

    /// Steps a message. Returns whether its answer will come through the request's token.
    ///
    /// # Errors
    /// The message made no sense and was dropped.
    pub(super) fn step(
        &mut self,
        now: Instant,
        from: Incarnation,
        message: Message,
        token: Option<ReplyToken>,
    ) -> Result<bool, Refusal> {
        let answered = self.raft.step(now, from.0, message)?;
        if answered {
            self.answers.push_back(token);
        }
        Ok(answered && token.is_some())
    }

    /// Whether an entry is the first one of the term in which this replica leads: an empty one.
    pub(super) fn begins_leadership(&self, entry: &Entry) -> bool {
        entry.data.is_empty() && self.leads_in == Some(entry.term)
    }
}
