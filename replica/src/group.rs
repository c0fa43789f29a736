//! A replica that belongs to a group: raft, the replicated state, and everything that waits for either.

mod agreement;
mod clients;
mod clock;
mod consensus;
mod departure;
mod durability;
mod lease;
mod local;
mod members;
mod orders;
mod peers;
mod reads;
mod receiving;
#[cfg(test)]
mod receiving_tests;
mod report;
mod restored;
mod sending;
mod snapshots;
mod versions;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use raft::eraftpb::{Entry, EntryType, Message, MessageType};
use trine_canary as canary;
use trine_protocol::message::{ClusterId, Incarnation, Member, PeerHeader};
use trine_protocol::stages::WriteStages;
use trine_transport::time::Instant;

use crate::bootstrap::Origin;
use crate::config::{READY_ROUNDS_MAX, ReplicaConfig};
use crate::halt::Halt;
use crate::log::MemoryLog;
use crate::membership;
use crate::outbox::Outbox;
use crate::raft_group::{RaftGroup, Work};
use crate::reads::Reads;
use crate::state_machine::StateMachine;
use crate::state_machine::genesis::{FIRST_INDEX, FIRST_TERM};
use crate::timing::{Stopwatch, Watched};
use crate::writes::Writes;
use agreement::Agreement;
use clock::GroupClock;
use consensus::Consensus;
use departure::Doubt;
use durability::Durability;
use local::{Local, election_timeout};
use orders::{Remembered, Unconfirmed};
use receiving::Receiving;
use sending::Sending;
use versions::Heard;

/// A member of a group, or one that is being taken in.
pub(crate) struct Group {
    local: Local,
    consensus: Consensus,
    /// Nothing until the first snapshot has arrived, for a replica that joins.
    state: Option<StateMachine>,
    /// How the group began, if this replica was there: a first member that has missed it is told by anybody who knows.
    origin: Option<Origin>,
    writes: Writes,
    reads: Reads,
    clock: GroupClock,
    /// When each member was last heard from, and which state-machine version it understands.
    heard: BTreeMap<Incarnation, Heard>,
    /// The version that this leader has proposed to switch to, and the index of the entry.
    raising: Option<(u64, u8)>,
    doubt: Doubt,
    sending: Sending,
    receiving: Receiving,
    /// Orders that wait for a process to ask for its place.
    remembered: Vec<Remembered>,
    /// Orders that are done, if this replica still leads.
    unconfirmed: Vec<Unconfirmed>,
    agreement: Agreement,
    /// See [`crate::timing`].
    stopwatch: Option<Stopwatch>,
    stages: WriteStages,
    stopping: Option<Instant>,
    /// Why this replica takes part no more.
    halted: Option<Halt>,
    pumped_to_the_end: bool,
    /// Some exactly in disk mode.
    disk: Option<Box<Durability>>,
}

impl Group {
    /// A first member of a new group.
    pub(crate) fn first_member(
        config: ReplicaConfig,
        own: Member,
        origin: Origin,
        seed: u64,
        now: Instant,
    ) -> Self {
        let config = origin.genesis.adapt(&config);
        let voters = origin
            .members
            .0
            .iter()
            .map(|member| member.incarnation.0)
            .collect();
        let log = MemoryLog::with_base(FIRST_INDEX, FIRST_TERM, voters);
        // Nobody can have heard a promise in a group that begins only now: votes may be given at once.
        let raft = RaftGroup::new(&config, own.incarnation.0, log, FIRST_INDEX, seed, now, now);
        let state = StateMachine::new(
            origin.cluster,
            origin.genesis,
            &origin.members.0,
            FIRST_INDEX,
        );
        Self::with(
            config,
            own,
            origin.cluster,
            raft,
            Some(state),
            Some(origin),
            now,
        )
    }

    /// A new identity that a group has promised to take in.
    pub(crate) fn joining(
        config: ReplicaConfig,
        own: Member,
        cluster: ClusterId,
        seed: u64,
        now: Instant,
    ) -> Self {
        let mut votes_from = now + election_timeout(&config);
        if canary::planted("vote after amnesia") {
            votes_from = now;
        }
        let raft = RaftGroup::new(
            &config,
            own.incarnation.0,
            MemoryLog::new(),
            0,
            seed,
            now,
            votes_from,
        );
        Self::with(config, own, cluster, raft, None, None, now)
    }

    fn with(
        config: ReplicaConfig,
        own: Member,
        cluster: ClusterId,
        raft: RaftGroup<MemoryLog>,
        state: Option<StateMachine>,
        origin: Option<Origin>,
        now: Instant,
    ) -> Self {
        Self {
            local: Local {
                cluster,
                own,
                config,
            },
            consensus: Consensus::new(raft, now),
            state: state.map(|state| state.understanding(config.state_version)),
            origin,
            writes: Writes::default(),
            reads: Reads::default(),
            clock: GroupClock::new(now),
            heard: BTreeMap::new(),
            raising: None,
            doubt: Doubt::default(),
            sending: Sending::starting_at(1),
            receiving: Receiving::default(),
            remembered: Vec::new(),
            unconfirmed: Vec::new(),
            agreement: Agreement::default(),
            stopwatch: None,
            stages: WriteStages::default(),
            stopping: None,
            halted: None,
            pumped_to_the_end: true,
            disk: None,
        }
    }

    /// What writes are timed with, see [`crate::timing`].
    pub(crate) fn lend_stopwatch(&mut self, stopwatch: Option<Stopwatch>) {
        self.stopwatch = stopwatch;
    }

    /// The time to report about something that happens in the turn that began at `now`.
    fn look_at_stopwatch(&self, now: Instant) -> Instant {
        self.stopwatch.map_or(now, |stopwatch| stopwatch())
    }

    /// Asks for votes at once: the bootstrapper knows that there is no leader.
    pub(crate) fn campaign(&mut self) {
        self.consensus.campaign();
    }

    /// One turn: proposes what has arrived, ticks if a tick is due, and runs raft until it wants nothing.
    pub(crate) fn on_turn(
        &mut self,
        now: Instant,
        lanes: &BTreeMap<SocketAddr, usize>,
        out: &mut Outbox,
    ) {
        if self.halted.is_some() {
            if self.consensus.stop_leading() {
                self.abandon_clients(out);
            }
            return;
        }
        self.release_reads(now, out);
        self.propose_waiting(now, out);
        self.begin_read_round(now, out);
        let ticked = self.consensus.tick_if_due(now);
        if ticked {
            self.mind_forwarded_reads(now, out);
        }
        self.pump(now, out);
        if ticked {
            if let Some(state) = &self.state {
                let most = self.local.config.appends_in_flight_max;
                self.consensus.fit_appends(state.members(), lanes, most);
            }
            self.maintain(now, out);
            self.pump(now, out);
        }
        self.read_under_lease(now, out);
        self.compact();
        self.sending
            .send_chunks(now, self.state.as_mut(), &mut self.consensus, out);
        if let (Some(disk), Some(state)) = (&mut self.disk, &mut self.state) {
            disk.write_own_snapshot(state, out);
        }
    }

    /// When the next turn is due.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        if self.halted.is_some() {
            return None;
        }
        if !self.pumped_to_the_end || self.reads.holds_answers() {
            return Some(Instant::ZERO);
        }
        let tick = self.consensus.raft().next_tick();
        let chunk = self.sending.next_timeout();
        Some(chunk.map_or(tick, |chunk| chunk.min(tick)))
    }

    /// Runs raft's ready loop; bounded, so that clients and the clock get their turn.
    fn pump(&mut self, now: Instant, out: &mut Outbox) {
        self.pumped_to_the_end = false;
        for _ in 0..READY_ROUNDS_MAX {
            let work = match &mut self.disk {
                None => self.consensus.poll_work(),
                Some(disk) => {
                    let state = self.state.as_mut();
                    let submit =
                        |record, snapshot: Option<&_>| disk.submit(record, snapshot, state, out);
                    self.consensus.poll_work_durably(submit)
                }
            };
            let Some(work) = work else {
                self.pumped_to_the_end = true;
                break;
            };
            self.do_work(now, work, out);
            if self.halted.is_some() {
                return;
            }
        }
        self.answer_ready_reads(out);
    }

    fn do_work(&mut self, now: Instant, work: Work, out: &mut Outbox) {
        if let Some(snapshot) = work.snapshot {
            // Goes first: a member that had no state knows nobody whom it could send raft's own answer to.
            self.install(&snapshot, out);
            if self.halted.is_some() {
                return;
            }
        }
        for message in work.messages {
            self.dispatch(now, message, out);
        }
        let stopwatch = self.stopwatch;
        self.writes
            .on_appended(|| stopwatch.map_or(now, |stopwatch| stopwatch()));
        let mut applied = None;
        for entry in work.committed {
            let index = entry.index;
            self.apply(now, entry, out);
            self.report_state(index, out);
            if self.halted.is_some() {
                return;
            }
            applied = Some(index);
        }
        if let Some(index) = applied {
            self.consensus.applied_to(index);
        }
        for state in work.read_states {
            if let Some(context) = self.consensus.raft().own_context(&state.request_ctx) {
                self.on_round_confirmed(context, state.index);
                self.answer_confirmed_orders(context, out);
            }
        }
        self.follow_role(now, out);
    }

    /// Where a message of raft goes: with the response to the request that it answers, or on its own.
    fn dispatch(&mut self, now: Instant, message: Message, out: &mut Outbox) {
        if message.get_msg_type() == MessageType::MsgSnapshot {
            return self.sending.begin_transfer(
                now,
                &message,
                &self.local,
                self.state.as_ref(),
                &mut self.consensus,
                out,
            );
        }
        self.consensus
            .dispatch(&message, &self.local, self.state.as_ref(), out);
    }

    fn apply(&mut self, now: Instant, entry: Entry, out: &mut Outbox) {
        let Some(state) = &mut self.state else {
            self.halt(Halt::Broken(
                "the log holds entries that no state can be found for",
            ));
            return;
        };
        if entry.get_entry_type() == EntryType::EntryConfChangeV2 {
            return self.apply_conf_change(now, &entry);
        }
        let applied = self.writes.take_applied(entry.index, entry.term);
        let (cluster, stages) = (self.local.cluster, &mut self.stages);
        let mut watched = applied
            .as_ref()
            .and_then(|applied| Watched::of(&applied.traces, self.stopwatch, now));
        let result = state.apply(entry.index, &entry.data, |place, answer| {
            let tokens = applied.as_ref().map(|applied| &applied.tokens);
            if let Some(&token) = tokens.and_then(|tokens| tokens.get(place)) {
                let timing = watched
                    .as_mut()
                    .and_then(|watched| watched.on_answer(place, stages));
                clients::answer(token, cluster, &answer, timing, out);
            }
        });
        if canary::planted("TTL from the local clock") {
            state.store_mut().set_group_time(now.as_nanos());
        }
        if let Err(error) = result {
            return self.halt(Halt::Entry(error.to_string()));
        }
        if let Some(applied) = applied {
            self.writes.recycle(applied.tokens);
        }
        if self.consensus.begins_leadership(&entry) {
            // Everything that earlier leaders have stamped is applied now.
            self.anchor_time(now);
        }
    }

    fn apply_conf_change(&mut self, now: Instant, entry: &Entry) {
        // What cannot be read changes nothing, on every replica alike.
        let change = membership::decode_change(&entry.data);
        let named = change.as_ref().and_then(membership::named_member);
        let conf = self.consensus.apply_conf_change(now, change.as_ref());
        let mut was_member = false;
        if let Some(state) = &mut self.state {
            was_member = state.members().get(self.local.own.incarnation).is_some();
            state.apply_conf_change(entry.index, named.as_ref(), conf.as_ref());
            self.heard
                .retain(|incarnation, _| state.members().get(*incarnation).is_some());
        }
        self.notice_removal(was_member);
    }

    /// Notices that this replica has come to lead, or leads no more.
    fn follow_role(&mut self, now: Instant, out: &mut Outbox) {
        let Some(change) = self.consensus.follow_role(now) else {
            return;
        };
        if change.led {
            self.abandon_clients(out);
            self.sending
                .drop_image(self.state.as_mut(), &mut self.consensus);
            self.remembered.clear();
        }
        self.raising = None;
        // What was asked of an earlier leader is asked again.
        self.reads.ask_anew(Instant::FAR_FUTURE);
        if change.leads {
            out.counters.elections_won += 1;
            self.anchor_time(now);
        }
    }

    /// What is due once a tick: nothing here is urgent.
    fn maintain(&mut self, now: Instant, out: &mut Outbox) {
        self.maintain_snapshots(now, out);
        if self.consensus.raft().is_leader() {
            self.propose_tick(now, out);
            self.raise_version(now);
            self.change_members(now);
            self.sending.end_useless_transfers(&self.consensus);
            self.hand_over(now);
        }
        self.receiving
            .end_abandoned(now, &self.consensus, self.disk.as_deref_mut(), out);
        self.ask_whether_member(now, out);
        self.doubt_beginning(now);
        self.follow_suspicions(now, out);
        out.settle_debts(self.local.cluster);
    }

    fn compact(&mut self) {
        let needed = self.sending.log_needed_from();
        self.consensus.compact(&self.local.config, needed);
    }

    /// Takes part no more: whatever it did next could differ from what the others do.
    fn halt(&mut self, why: Halt) {
        self.halted.get_or_insert(why);
    }

    /// Why it takes part no more.
    pub(crate) fn halted(&self) -> Option<&Halt> {
        self.halted.as_ref()
    }

    /// Whether this replica has a vote.
    pub(crate) fn is_voter(&self) -> bool {
        self.state.is_some() && self.consensus.raft().is_voter()
    }

    /// The group that this replica belongs to.
    pub(crate) fn cluster(&self) -> ClusterId {
        self.local.cluster
    }

    /// Whether a message is for this life of this replica and names a member as its sender. Without a state nobody is
    /// known.
    pub(crate) fn is_from_member(&self, header: &PeerHeader) -> bool {
        let known = |state: &StateMachine| state.members().get(header.from).is_some();
        self.local.is_addressed_by(header) && self.state.as_ref().is_some_and(known)
    }

    /// Where the members are, as far as this replica knows them.
    pub(crate) fn member_addresses(&self) -> impl Iterator<Item = SocketAddr> {
        let members = self.state.iter().flat_map(|state| state.members().all());
        members.map(|member| member.address)
    }

    /// Whether the group's state has arrived here.
    pub(crate) fn has_state(&self) -> bool {
        self.state.is_some()
    }

    /// Whether this replica knows of a leader.
    pub(crate) fn has_leader(&self) -> bool {
        self.consensus.raft().leader() != 0
    }

    fn leader_address(&self) -> Option<SocketAddr> {
        let leader = Incarnation(self.consensus.raft().leader());
        self.state
            .as_ref()?
            .members()
            .get(leader)
            .map(|member| member.address)
    }

    /// Whether a member was heard from within two election timeouts.
    fn is_alive(&self, incarnation: Incarnation, now: Instant) -> bool {
        self.was_heard_since(incarnation, self.lately(now))
    }

    fn was_heard_since(&self, incarnation: Incarnation, since: Instant) -> bool {
        self.heard
            .get(&incarnation)
            .is_some_and(|heard| heard.at >= since)
    }

    /// Whoever was not heard from since then counts as dead.
    fn lately(&self, now: Instant) -> Instant {
        let patience = 2 * election_timeout(&self.local.config).as_nanos();
        Instant::from_nanos(now.as_nanos().saturating_sub(patience))
    }
}
