//! The one place that owns raft's `RawNode`: what may go in, when it ticks, and what comes out of its ready loop.

mod demotion;
mod durable;
mod former_voter;
mod patience;
mod terms;
mod ticks;
mod validate;

use std::collections::VecDeque;

use raft::eraftpb::{ConfChangeV2, ConfState, Entry, Message, MessageType, Snapshot};
use raft::{
    CAMPAIGN_TRANSFER, Config, ProgressState, RawNode, ReadOnlyOption, ReadState, Ready,
    SnapshotStatus, StateRole,
};
use trine_canary as canary;
use trine_transport::time::{Duration, Instant};

use patience::Patience;
use terms::TermAllowance;
use ticks::TickPlan;
pub(crate) use validate::{Refusal, TERM_MAX, validate};

use crate::config::ReplicaConfig;
use crate::log::{Log, MoveEntry};
use crate::raft_log::raft_logger;

/// Ticks for which followers hear of each commit at once after one of them has asked for an index.
const PROMPT_COMMIT_TICKS: usize = 100;

/// Raft and its log as one value on virtual time.
pub(crate) struct RaftGroup<L: Log> {
    node: RawNode<L>,
    config: ReplicaConfig,
    seed: u64,
    ticks: TickPlan,
    /// No vote is given before this moment: this replica may have promised a leader its silence
    /// before a restart.
    votes_from: Instant,
    /// Ticks since a leader was last followed here. Raft counts the same, but forgets it together with the leader as
    /// soon as any message names a later term. A lease may rely on a promise from before that.
    ticks_since_leader: usize,
    /// Ticks since this replica last knew of a leader, itself or another. Time in which it led is no silence.
    ticks_unled: usize,
    /// How late a leader's messages have been lately.
    patience: Patience,
    /// For so many ticks after a leader's last message no replica gets a vote from here, not even this replica itself.
    /// More than the election timeout only while a longer one waits to be adopted.
    silence_ticks: usize,
    /// Followers serve reads: for so many ticks more they hear of each commit at once, not with the next append.
    prompt_commit_ticks: usize,
    /// Rounds of the ready loop that the disk does not have yet, oldest first. Always empty in memory mode.
    unwritten: VecDeque<durable::Unwritten>,
    /// The newest term that the disk is known to have. Means nothing in memory mode.
    written_term: u64,
    /// How far messages may still raise the term.
    terms: TermAllowance,
    /// The entry by which this replica lost its vote, if it may overlook what is behind: see `former_voter`.
    vote_ended: Option<Proposal>,
}

/// The requests of one round of the ready loop, in the order in which they have to be done.
#[derive(Default)]
pub(crate) struct Work {
    /// To be sent. Whatever they promise has been written to the log already.
    pub(crate) messages: Vec<Message>,
    /// The log now begins at this snapshot: install the state that belongs to it before applying anything.
    pub(crate) snapshot: Option<Snapshot>,
    /// To be applied, in this order.
    pub(crate) committed: Vec<Entry>,
    /// Index rounds that a quorum has confirmed.
    pub(crate) read_states: Vec<ReadState>,
}

/// Raft's output of one round of the ready loop, before it is known which parts have to wait for the disk.
struct Round {
    messages: Vec<Message>,
    /// They promise what the round writes, and leave after it is written.
    persisted_messages: Vec<Message>,
    snapshot: Option<Snapshot>,
    committed: Vec<Entry>,
    read_states: Vec<ReadState>,
}

/// The position in the log of an entry that was proposed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Proposal {
    pub(crate) index: u64,
    pub(crate) term: u64,
}

/// Why raft did not take a proposal. It has put nothing into the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum ProposeError {
    /// This replica does not lead.
    #[error("this replica does not lead")]
    NotLeader,
    /// Too much is uncommitted, or leadership is being transferred.
    #[error("raft takes no proposals at the moment")]
    Dropped,
    /// Another change of the configuration is under way.
    #[error("another change of the configuration is under way")]
    ChangeInProgress,
}

/// The leader's knowledge of one member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MemberProgress {
    /// Greatest index known to be in its log.
    pub(crate) matched: u64,
    /// Whether it is sent a snapshot at the moment.
    pub(crate) in_snapshot: bool,
}

impl<L: Log> RaftGroup<L> {
    /// Raft for the identity `id` on `log`, which says how far it is; `applied` is the last entry in the state machine.
    ///
    /// # Panics
    /// When `log` contradicts itself: that is damage which must not be built upon.
    pub(crate) fn new(
        config: &ReplicaConfig,
        id: u64,
        log: L,
        applied: u64,
        seed: u64,
        now: Instant,
        votes_from: Instant,
    ) -> Self {
        let node = new_node(config, id, log, applied);
        let written_term = node.raft.term;
        Self {
            node,
            config: *config,
            seed,
            ticks: TickPlan::starting_at(now + config.tick),
            votes_from,
            ticks_since_leader: usize::MAX,
            ticks_unled: usize::MAX,
            patience: Patience::default(),
            silence_ticks: config.election_ticks,
            prompt_commit_ticks: 0,
            unwritten: VecDeque::new(),
            written_term,
            terms: TermAllowance::new(now),
            vote_ended: None,
        }
    }

    /// Steps a message that `sender` is known to have sent. Returns whether raft has answered it to the sender.
    ///
    /// # Errors
    /// The message made no sense and was dropped.
    pub(crate) fn step(
        &mut self,
        now: Instant,
        sender: u64,
        mut message: Message,
    ) -> Result<bool, Refusal> {
        self.catch_up(now);
        match validate(&self.node.raft, sender, &message) {
            // It is followed from now on. Its next heartbeat then proves that entries were lost.
            Err(Refusal::LaterLeader { .. }) => message.commit = self.node.raft.raft_log.committed,
            checked => checked?,
        }
        let term = self.term();
        if !self.terms.allows(now, message.term.saturating_sub(term)) && self.has_history() {
            return Err(Refusal::TermTooFarAhead);
        }
        let vote = matches!(
            message.get_msg_type(),
            MessageType::MsgRequestVote | MessageType::MsgRequestPreVote
        );
        if vote && (now < self.votes_from || self.has_promised_silence(&message)) {
            return Err(Refusal::TooEarlyToVote);
        }
        if vote {
            self.overlook_entries_behind_vote(&mut message);
        }
        if message.get_msg_type() == MessageType::MsgTimeoutNow && self.must_not_campaign_yet() {
            return Err(Refusal::NotEntitled);
        }
        if canary::planted("vote forgotten") && vote {
            self.node.raft.vote = raft::INVALID_ID;
        }
        let from_leader = matches!(
            message.get_msg_type(),
            MessageType::MsgAppend | MessageType::MsgHeartbeat | MessageType::MsgSnapshot
        );
        if message.get_msg_type() == MessageType::MsgSnapshot {
            self.vote_ended = None;
        }
        if message.get_msg_type() == MessageType::MsgReadIndex {
            self.commit_promptly();
        }
        let before = self.node.raft.msgs.len();
        let stepped = self.node.step(message);
        // The term that the message names does not count: a pre-vote question raises no term.
        self.terms.draw(self.term().saturating_sub(term));
        stepped.map_err(|_| Refusal::NotEntitled)?;
        if from_leader && self.leader() == sender {
            self.patience.heard(self.term(), self.ticks_since_leader);
            self.ticks_since_leader = 0;
            self.ticks_unled = 0;
            self.ticks.on_leader();
        }
        Ok(self.node.raft.msgs[before..]
            .iter()
            .any(|m| m.to == sender && is_answer(m)))
    }

    /// Whether this replica has a log. One that has none yet takes the term of the group that takes it in, whatever it is.
    fn has_history(&self) -> bool {
        self.last_index() > 0
    }

    /// Whether a leader was followed here too lately for a vote to be given to another one. Where a leader is known,
    /// raft itself refuses messages of its term. The replica to which leadership was transferred is let through, as by
    /// raft.
    fn has_promised_silence(&self, vote: &Message) -> bool {
        self.ticks_since_leader < self.silence_ticks
            && vote.context[..] != *CAMPAIGN_TRANSFER
            && (vote.term > self.term() || self.leader() == raft::INVALID_ID)
    }

    /// Checks a message that may be stepped later.
    ///
    /// # Errors
    /// The message makes no sense.
    pub(crate) fn check(&self, sender: u64, message: &Message) -> Result<(), Refusal> {
        validate(&self.node.raft, sender, message)
    }

    /// Whether entries wait for the log. Raft may only be made a candidate or a leader when none do.
    pub(crate) fn has_unwritten(&self) -> bool {
        !self.node.raft.raft_log.unstable_entries().is_empty()
            || self.node.raft.raft_log.unstable_snapshot().is_some()
    }

    /// Proposes one entry.
    ///
    /// # Errors
    /// Nothing was proposed.
    pub(crate) fn propose(&mut self, data: Vec<u8>) -> Result<Proposal, ProposeError> {
        // A follower would forward the proposal without a word.
        if !self.is_leader() {
            return Err(ProposeError::NotLeader);
        }
        self.node
            .propose(Vec::new(), data)
            .map_err(|_| ProposeError::Dropped)?;
        Ok(Proposal {
            index: self.last_index(),
            term: self.term(),
        })
    }

    /// Proposes a change of the configuration and returns the index of its entry.
    ///
    /// # Errors
    /// Nothing was proposed.
    pub(crate) fn propose_conf_change(
        &mut self,
        change: ConfChangeV2,
    ) -> Result<u64, ProposeError> {
        if !self.is_leader() {
            return Err(ProposeError::NotLeader);
        }
        // Raft would put an empty entry in its place.
        let joint = self.is_joint();
        let leaves = change.changes.is_empty();
        if self.node.raft.has_pending_conf() || joint != leaves {
            return Err(ProposeError::ChangeInProgress);
        }
        self.node
            .propose_conf_change(Vec::new(), change)
            .map_err(|_| ProposeError::Dropped)?;
        Ok(self.last_index())
    }

    /// Asks a quorum whether this replica still leads, or the leader whether it does. The context comes back in
    /// [`Work::read_states`] once it is confirmed, or never. Returns false when raft would drop the question silently.
    pub(crate) fn read_index(&mut self, context: u64) -> bool {
        let asks = match self.role() {
            StateRole::Leader => self.node.raft.commit_to_current_term(),
            StateRole::Follower => self.leader() != raft::INVALID_ID,
            StateRole::Candidate | StateRole::PreCandidate => false,
        };
        if asks {
            self.node
                .read_index(read_context(self.node.raft.id, context));
        }
        asks
    }

    /// The question of this replica that a confirmed context answers.
    pub(crate) fn own_context(&self, context: &[u8]) -> Option<u64> {
        let (id, number) = context.split_at_checked(8)?;
        let number = number.try_into().ok().map(u64::from_le_bytes);
        number.filter(|_| id == self.node.raft.id.to_le_bytes())
    }

    /// A follower serves reads, and answers them only when it knows that the entries they have to see are committed.
    fn commit_promptly(&mut self) {
        if self.prompt_commit_ticks == 0 {
            self.node.skip_bcast_commit(false);
        }
        self.prompt_commit_ticks = PROMPT_COMMIT_TICKS;
    }

    /// The group has promised its leaders this much silence: it counts at once, whenever raft can be set up again for
    /// it.
    pub(crate) fn promise_silence(&mut self, election_ticks: usize) {
        self.silence_ticks = self.silence_ticks.max(election_ticks);
    }

    /// How long nothing was heard of a leader, by the ticks of this replica; of one that led itself, since it stepped down. A
    /// learner never looks for another leader: raft names its old one for as long as it is cut off.
    pub(crate) fn silence(&self) -> Duration {
        match self.ticks_unled {
            // None was heard of yet: then raft names none either.
            usize::MAX => Duration::ZERO,
            _ if self.is_leader() => Duration::ZERO,
            ticks => Duration::from_nanos(self.config.tick.as_nanos().saturating_mul(ticks as u64)),
        }
    }

    /// The silence after which this replica campaigns, at the earliest; zero if it leads or has no vote.
    pub(crate) fn patience(&self) -> Duration {
        if self.is_leader() || !self.is_voter() {
            return Duration::ZERO;
        }
        let ticks = self.patience.least_ticks(self.config.election_ticks);
        Duration::from_nanos(self.config.tick.as_nanos().saturating_mul(ticks as u64))
    }

    /// In place of raft's own draw from a thread-local generator, which could not be replayed.
    fn drawn_election_timeout(&self) -> usize {
        let mixed = mix(self.seed ^ mix(self.node.raft.id ^ mix(self.node.raft.term)));
        self.patience
            .ticks_to_campaign(self.config.election_ticks, mixed)
    }

    /// One round of the ready loop in memory mode, or nothing if raft wants nothing.
    pub(crate) fn poll_work(&mut self) -> Option<Work> {
        if canary::planted("commit without quorum") && self.is_leader() {
            let own = self.node.store().last_index().unwrap_or(0);
            self.node.raft.raft_log.commit_to(own);
        }
        let (ready, round) = self.begin_round()?;
        Some(self.finish_in_memory(ready, round))
    }

    /// The part of a round that both log modes share: raft hands it out, and the log in memory takes the new entries.
    fn begin_round(&mut self) -> Option<(Ready, Round)> {
        if !self.node.has_ready() {
            return None;
        }
        let mut ready = self.node.ready();
        let round = Round {
            read_states: ready.take_read_states(),
            messages: ready.take_messages(),
            persisted_messages: ready.take_persisted_messages(),
            snapshot: (!ready.snapshot().is_empty()).then(|| ready.snapshot().clone()),
            committed: ready.take_committed_entries(),
        };
        let log = self.node.mut_store();
        if let Some(snapshot) = &round.snapshot {
            log.restore(snapshot);
        }
        log.append(ready.entries());
        if let Some(state) = ready.hs() {
            log.set_hard_state(state.clone());
        }
        Some((ready, round))
    }

    /// In memory mode a round is durable as soon as the log has it.
    ///
    /// Disk mode's code would do the same with a disk that is durable at once. It was measured, and costs 2 %: 4,510
    /// instructions for each PUT of the leader instead of 4,423, in batches of 64
    /// (`cargo bench -p trine-replica -- put_instructions_leader`). Here raft gives out in the same round the work that
    /// the write releases. After `on_persist_ready` it asks for a round of its own, and messages would leave in another
    /// order.
    fn finish_in_memory(&mut self, ready: Ready, round: Round) -> Work {
        // Only a leader has messages that come ahead of the others; they may leave before its own write.
        let mut work = Work {
            messages: round.messages,
            snapshot: round.snapshot,
            committed: round.committed,
            read_states: round.read_states,
        };
        let mut persisted = round.persisted_messages;
        work.messages.append(&mut persisted);
        let mut light = self.node.advance_append(ready);
        if let Some(commit) = light.commit_index() {
            self.node.mut_store().set_commit(commit);
        }
        work.messages.append(&mut light.take_messages());
        work.committed.append(&mut light.take_committed_entries());
        work
    }

    /// Puts a change of the configuration that is committed as the entry `at` into force. Raft may refuse it: then it is as if it said nothing,
    /// on every replica alike, because all apply it to the same configuration.
    pub(crate) fn apply_conf_change(
        &mut self,
        at: Proposal,
        change: &ConfChangeV2,
    ) -> Option<ConfState> {
        let (voted, before) = (self.is_voter(), self.conf_state());
        let state = self.node.apply_conf_change(change).ok()?;
        self.node.mut_store().set_conf_state(state.clone());
        if self.is_voter() {
            self.vote_ended = None;
        } else if voted && former_voter::may_overlook(&before) {
            self.vote_ended = Some(at);
        }
        // Raft leaves it in its role, and would take a single voter that is left for itself.
        self.step_down_without_vote(&state);
        Some(state)
    }

    /// The state machine holds everything up to `index`.
    pub(crate) fn applied_to(&mut self, index: u64) {
        self.hold_joint_configuration();
        self.node.advance_apply_to(index);
    }

    /// Appends to `id` may have been lost.
    pub(crate) fn report_unreachable(&mut self, id: u64) {
        self.node.report_unreachable(id);
    }

    /// At most `most` appends to `id` are in flight.
    pub(crate) fn limit_appends(&mut self, id: u64, most: usize) {
        self.node.raft.adjust_max_inflight_msgs(id, most);
    }

    /// The snapshot for `id` has arrived or failed.
    pub(crate) fn report_snapshot(&mut self, id: u64, arrived: bool) {
        let status = if arrived {
            SnapshotStatus::Finish
        } else {
            SnapshotStatus::Failure
        };
        self.node.report_snapshot(id, status);
    }

    /// Begins to transfer leadership to `id`.
    pub(crate) fn transfer_leader(&mut self, id: u64) {
        self.node.transfer_leader(id);
    }

    /// Whether leadership is being transferred.
    pub(crate) fn is_transferring(&self) -> bool {
        self.node.raft.lead_transferee.is_some()
    }

    /// Asks for votes at once, without waiting for the election timeout.
    pub(crate) fn campaign(&mut self) {
        // Raft's only error here is that it is not in a position to campaign, which the next timeout mends.
        let _ = self.node.campaign();
    }

    /// The present term.
    pub(crate) fn term(&self) -> u64 {
        self.node.raft.term
    }

    /// The present role.
    pub(crate) fn role(&self) -> StateRole {
        self.node.raft.state
    }

    /// Uses other settings from here on: raft is set up again on the same log. Nothing may be waiting in the ready
    /// loop, or for the disk.
    pub(crate) fn adopt(&mut self, config: &ReplicaConfig)
    where
        L: Default,
    {
        let (id, applied) = (self.node.raft.id, self.applied());
        let log = std::mem::take(self.node.mut_store());
        self.node = new_node(config, id, log, applied);
        self.node.skip_bcast_commit(self.prompt_commit_ticks == 0);
        self.config = *config;
        self.silence_ticks = config.election_ticks;
        self.ticks.give_up();
    }

    /// Whether this replica leads, as far as it knows.
    pub(crate) fn is_leader(&self) -> bool {
        self.node.raft.state == StateRole::Leader
    }

    /// Whether it leads and has committed an entry of its own term, so that its commit index is the group's.
    pub(crate) fn leads_with_commit(&self) -> bool {
        self.is_leader() && self.node.raft.commit_to_current_term()
    }

    /// Whether an entry of the present term is applied: then everything that earlier leaders have acknowledged is, too.
    pub(crate) fn has_applied_in_term(&self) -> bool {
        self.term_at(self.applied()) == Some(self.term())
    }

    /// Who leads, as far as this replica knows; zero if no leader is known.
    pub(crate) fn leader(&self) -> u64 {
        self.node.raft.leader_id
    }

    /// Whether this replica votes.
    pub(crate) fn is_voter(&self) -> bool {
        self.node.raft.promotable()
    }

    /// The commit index.
    pub(crate) fn committed(&self) -> u64 {
        self.node.raft.raft_log.committed
    }

    /// The applied index, as raft was told.
    pub(crate) fn applied(&self) -> u64 {
        self.node.raft.raft_log.applied
    }

    /// The entries behind the applied ones that say where members are, the latest first.
    pub(crate) fn unapplied_moves(&self) -> impl Iterator<Item = &MoveEntry> {
        let applied = self.applied();
        let moves = self.node.store().moves().iter().rev();
        moves.take_while(move |entry| entry.index > applied)
    }

    /// Index of the last entry, written or not.
    pub(crate) fn last_index(&self) -> u64 {
        self.node.raft.raft_log.last_index()
    }

    /// The configuration in force.
    pub(crate) fn conf_state(&self) -> ConfState {
        self.node.raft.prs().conf().to_conf_state()
    }

    /// Whether the configuration in force is a joint one.
    pub(crate) fn is_joint(&self) -> bool {
        !self.conf_state().voters_outgoing.is_empty()
    }

    /// Whether a change of the configuration may still be unapplied.
    pub(crate) fn has_pending_conf(&self) -> bool {
        self.node.raft.has_pending_conf()
    }

    /// Term of the entry at `index`, if it is still known.
    pub(crate) fn term_at(&self, index: u64) -> Option<u64> {
        self.node
            .raft
            .raft_log
            .term(index)
            .ok()
            .filter(|&term| term != 0)
    }

    /// The leader's knowledge of the member `id`.
    pub(crate) fn progress(&self, id: u64) -> Option<MemberProgress> {
        self.node.raft.prs().get(id).map(|progress| MemberProgress {
            matched: progress.matched,
            in_snapshot: progress.state == ProgressState::Snapshot,
        })
    }

    /// The log.
    pub(crate) fn log(&self) -> &L {
        self.node.store()
    }

    /// The log, for tasks outside of raft: compaction, snapshots on offer.
    pub(crate) fn log_mut(&mut self) -> &mut L {
        self.node.mut_store()
    }
}

fn new_node<L: Log>(config: &ReplicaConfig, id: u64, log: L, applied: u64) -> RawNode<L> {
    let raft_config = Config {
        id,
        election_tick: config.election_ticks,
        max_election_tick: patience::ticks_beyond(config.election_ticks),
        heartbeat_tick: config.heartbeat_ticks,
        applied,
        max_size_per_msg: config.append_bytes_max,
        max_inflight_msgs: config.appends_in_flight_max,
        check_quorum: true,
        pre_vote: true,
        read_only_option: ReadOnlyOption::Safe,
        skip_bcast_commit: true,
        // Raft would glue all that a follower lacks into one message, whatever `max_size_per_msg` says: a window of them,
        // larger than a message can be.
        batch_append: false,
        max_uncommitted_size: (config.pending_bytes_max as u64).saturating_mul(2),
        max_committed_size_per_ready: 1 << 20,
        ..Config::default()
    };
    RawNode::new(&raft_config, log, &raft_logger())
        .expect("the settings were validated, and the log answers for its own bounds")
}

/// Names a question for a read index among those of all members: contexts that two replicas share would be one to raft.
fn read_context(id: u64, number: u64) -> Vec<u8> {
    let mut context = Vec::with_capacity(READ_CONTEXT_BYTES);
    context.extend_from_slice(&id.to_le_bytes());
    context.extend_from_slice(&number.to_le_bytes());
    context
}

/// Length of such a name.
pub(crate) const READ_CONTEXT_BYTES: usize = 16;

/// Whether `message` answers a request, so that it rides in the response to it.
pub(crate) fn is_answer(message: &Message) -> bool {
    matches!(
        message.get_msg_type(),
        MessageType::MsgAppendResponse
            | MessageType::MsgHeartbeatResponse
            | MessageType::MsgRequestVoteResponse
            | MessageType::MsgRequestPreVoteResponse
    )
}

/// The finalizer of SplitMix64: every input bit reaches every output bit.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use trine_transport::time::Duration;

    use super::validate::tests::heartbeat;
    use super::*;
    use crate::log::MemoryLog;

    /// Settings whose times are round numbers.
    pub(super) fn round_numbers() -> ReplicaConfig {
        ReplicaConfig {
            tick: Duration::from_millis(10),
            heartbeat_ticks: 3,
            election_ticks: 15,
            ..ReplicaConfig::default()
        }
    }

    pub(super) fn follower(seed: u64) -> RaftGroup<MemoryLog> {
        let log = MemoryLog::with_base(1, 1, vec![1, 2, 3]);
        RaftGroup::new(
            &round_numbers(),
            1,
            log,
            1,
            seed,
            Instant::ZERO,
            Instant::ZERO,
        )
    }

    /// A replica on an old copy of its directory heard an old leader first. The new leader's heartbeats were then dropped
    /// whole, so it could have voted against the entries that it had lost.
    #[test]
    fn a_later_leader_is_followed_before_its_index_counts() {
        let mut group = follower(1);
        assert_eq!(group.step(Instant::ZERO, 2, heartbeat(2, 5, 1)), Ok(true));
        let committed = group.committed();
        assert_eq!(group.step(Instant::ZERO, 3, heartbeat(3, 6, 100)), Ok(true));
        assert_eq!((group.leader(), group.term()), (3, 6));
        assert_eq!(group.committed(), committed);
        let lost = Refusal::LogTooShort {
            commit: 100,
            last: 1,
        };
        assert_eq!(
            group.step(Instant::ZERO, 3, heartbeat(3, 6, 100)),
            Err(lost)
        );
    }

    #[test]
    fn the_election_timeout_is_drawn_from_seed_identity_and_term() {
        let draws = |seed| {
            let group = follower(seed);
            group.drawn_election_timeout()
        };
        assert_eq!(draws(1), draws(1));
        let many: std::collections::BTreeSet<usize> = (0..200).map(draws).collect();
        assert_eq!(
            (many.first(), many.last()),
            (Some(&15), Some(&22)),
            "the whole range is used, and no more"
        );
    }

    pub(super) fn message(kind: MessageType, from: u64, term: u64) -> Message {
        let mut message = Message::default();
        message.set_msg_type(kind);
        (message.from, message.to, message.term) = (from, 1, term);
        if kind == MessageType::MsgRequestVote {
            (message.index, message.log_term) = (1, 1);
        }
        message
    }

    /// A follower has acknowledged the heartbeat that a lease begins with. Then comes a late refusal of a question that
    /// it had asked before, from a replica that is a term ahead: raft forgets the leader over it. The candidate of that
    /// term used to get the vote at once, and could lead while the old leader still answered reads under its lease.
    #[test]
    fn a_later_term_does_not_void_the_promise_that_a_heartbeat_was_acknowledged_with() {
        let config = round_numbers();
        for late in [
            MessageType::MsgRequestPreVoteResponse,
            MessageType::MsgAppendResponse,
        ] {
            let mut group = follower(1);
            let mut now = Instant::ZERO;
            group
                .step(now, 2, message(MessageType::MsgHeartbeat, 2, 2))
                .unwrap();
            assert_eq!(group.leader(), 2);
            let mut refusal = message(late, 3, 3);
            refusal.reject = true;
            group.step(now, 3, refusal).unwrap();
            assert_eq!((group.term(), group.leader()), (3, 0));
            let vote = || message(MessageType::MsgRequestVote, 3, 3);
            for _ in 1..config.election_ticks {
                now += config.tick;
                group.tick_if_due(now);
                assert_eq!(group.step(now, 3, vote()), Err(Refusal::TooEarlyToVote));
            }
            now += config.tick;
            group.tick_if_due(now);
            assert_eq!(group.step(now, 3, vote()), Ok(true));
        }
    }

    /// The replica to which leadership is transferred need not wait: the old leader has ended its
    /// lease before.
    #[test]
    fn a_leadership_transfer_is_not_held_up_by_the_promise() {
        let mut group = follower(1);
        let now = Instant::ZERO;
        group
            .step(now, 2, message(MessageType::MsgHeartbeat, 2, 2))
            .unwrap();
        let mut vote = message(MessageType::MsgRequestVote, 3, 3);
        vote.context = CAMPAIGN_TRANSFER.to_vec();
        assert_eq!(group.step(now, 3, vote), Ok(true));
        let work = group.poll_work().unwrap();
        let answer = work.messages.first().unwrap();
        assert!(!answer.reject, "{answer:?}");
    }

    /// One of two replicas came to lead while its own removal was in its log. Raft leaves a removed leader in its role,
    /// and with a single voter left it confirms reads without asking any replica. Cut off from that voter, which can
    /// elect itself and write alone, the removed leader answered with values that were overwritten already.
    #[test]
    fn a_leader_that_is_removed_no_longer_leads() {
        let now = Instant::ZERO;
        let log = MemoryLog::with_base(1, 1, vec![1, 2]);
        let mut group = RaftGroup::new(&round_numbers(), 1, log, 1, 1, now, now);
        group.campaign();
        for kind in [
            MessageType::MsgRequestPreVoteResponse,
            MessageType::MsgRequestVoteResponse,
        ] {
            while group.poll_work().is_some() {}
            group.step(now, 2, message(kind, 2, 2)).unwrap();
        }
        while group.poll_work().is_some() {}
        let mut acknowledged = message(MessageType::MsgAppendResponse, 2, 2);
        acknowledged.index = 2;
        group.step(now, 2, acknowledged).unwrap();
        while group.poll_work().is_some() {}
        group.applied_to(2);
        assert!(group.leads_with_commit());
        let removal = crate::membership::remove(trine_protocol::message::Incarnation(1));
        let at = Proposal { index: 2, term: 2 };
        let conf = group.apply_conf_change(at, &removal).unwrap();
        assert_eq!(conf.voters, [2]);
        assert!(!group.read_index(7));
        assert!(!group.is_leader());
        while let Some(work) = group.poll_work() {
            assert!(work.read_states.is_empty());
        }
    }

    #[test]
    fn a_fresh_identity_gives_no_vote_for_one_election_timeout() {
        let config = round_numbers();
        let log = MemoryLog::with_base(1, 1, vec![1, 2, 3]);
        let votes_from = Instant::ZERO + Duration::from_millis(150);
        let mut group = RaftGroup::new(&config, 1, log, 1, 1, Instant::ZERO, votes_from);
        let ask = || {
            let mut message = Message::default();
            message.set_msg_type(MessageType::MsgRequestVote);
            (message.from, message.to, message.term) = (2, 1, 5);
            (message.index, message.log_term) = (1, 1);
            message
        };
        let early = Instant::from_nanos(votes_from.as_nanos() - 1);
        assert_eq!(group.step(early, 2, ask()), Err(Refusal::TooEarlyToVote));
        assert_eq!(group.term(), 1);
        assert_eq!(group.step(votes_from, 2, ask()), Ok(true));
        assert_eq!(group.term(), 5);
    }
}
