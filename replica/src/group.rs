//! A replica that belongs to a group: raft, the replicated state, and everything that waits for either.
//!
//! The parts are values with private state: consensus, service, membership, durability, and the snapshots that go out
//! and come in. A part takes the data of others as arguments. `Group` puts them together: it says in which order they
//! get their turn, and carries the results of one to the next.

mod agreement;
mod asking;
#[cfg(test)]
mod asking_tests;
mod backups;
#[cfg(test)]
mod backups_tests;
mod clock;
mod consensus;
mod cx;
mod deaths;
mod durability;
mod hanging;
mod lease;
mod life;
mod local;
mod members;
mod peers;
mod promised;
mod receiving;
#[cfg(test)]
mod receiving_tests;
mod replayed;
mod report;
mod rest;
mod restored;
mod sending;
mod service;
mod snapshots;
mod sweep;
mod watches;
#[cfg(test)]
mod watches_tests;

use std::net::SocketAddr;

use raft::eraftpb::{Entry, EntryType, Message, MessageType};
use trine_canary as canary;
use trine_protocol::message::{
    AdminRequest, BackupReply, BackupRequest, ClientRequest, ClusterId, JoinReply, JoinRequest,
    Member, ReplyToken, WatchReply, WatchRequest,
};
use trine_transport::Holder;
use trine_transport::time::Instant;

use crate::addresses::Addresses;
use crate::audit::{By, ToldBefore};
use crate::bootstrap::Origin;
use crate::config::{READY_ROUNDS_MAX, ReplicaConfig, WATCH_BEHIND_MAX, WATCH_PAUSE_MS};
use crate::halt::Halt;
use crate::log::MemoryLog;
use crate::membership;
use crate::outbox::Outbox;
use crate::raft_group::{Proposal, RaftGroup, Work};
use crate::rights::Caller;
use crate::state_machine::StateMachine;
use crate::state_machine::entry::moved_member;
use crate::state_machine::genesis::{FIRST_INDEX, FIRST_TERM};
use crate::timing::Stopwatch;
use agreement::Agreement;
use asking::Asking;
use backups::{BackupCx, Backups};
use clock::GroupClock;
use consensus::Consensus;
use cx::Cx;
use deaths::Deaths;
use durability::Durability;
use hanging::{Ends, HangingDisk};
use life::Life;
use local::{Local, election_timeout};
use members::Membership;
use promised::Promised;
use receiving::Receiving;
use replayed::Replayed;
use sending::Sending;
use service::Service;
use watches::{WatchCx, Watches};

/// What watchers hear of a replica that may be cut off from its group.
const NO_LEADER: &str = "this replica knows no leader";

/// A member of a group, or one that is being taken in.
pub(crate) struct Group {
    local: Local,
    life: Life,
    consensus: Consensus,
    /// Nothing until the first snapshot has arrived, for a replica that joins.
    state: Option<StateMachine>,
    service: Service,
    clock: GroupClock,
    membership: Membership,
    agreement: Agreement,
    /// What the other members have promised to this one.
    promised: Promised,
    /// Some after a start from files, until the others have said what this member has promised to them.
    asking: Option<Asking>,
    /// An operator has lifted the quarantine of the files: it goes on with them, whatever others remember.
    is_lifted: bool,
    deaths: Deaths,
    sending: Sending,
    receiving: Receiving,
    backups: Backups,
    watches: Watches,
    /// What is applied a second time; nothing once that is over.
    replayed: Option<Replayed>,
    /// Some exactly in disk mode.
    disk: Option<Box<Durability>>,
    /// Whether that has stopped.
    hanging: HangingDisk,
    /// Whether raft wanted nothing more when its ready loop ended last.
    pumped_to_the_end: bool,
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
        // No replica can have heard a promise in a group that begins only now: votes may be given at once.
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
            (seed, now),
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
        Self::with(config, own, cluster, raft, None, None, (seed, now))
    }

    fn with(
        config: ReplicaConfig,
        own: Member,
        cluster: ClusterId,
        raft: RaftGroup<MemoryLog>,
        state: Option<StateMachine>,
        origin: Option<Origin>,
        (seed, now): (u64, Instant),
    ) -> Self {
        Self {
            local: Local {
                cluster,
                own,
                config,
            },
            life: Life::Running,
            consensus: Consensus::new(raft, now),
            state: state.map(|state| {
                state
                    .understanding(config.state_version)
                    .with_history(config.watch_history_bytes)
                    .retaining(config.retain_bytes)
            }),
            service: Service::starting_at(0),
            clock: GroupClock::new(now, config.watch_history_bytes),
            membership: Membership::new(origin),
            agreement: Agreement::default(),
            promised: Promised::default(),
            asking: None,
            is_lifted: false,
            deaths: Deaths::default(),
            sending: Sending::starting_at(1),
            receiving: Receiving::default(),
            backups: Backups::new(seed ^ own.incarnation.0.rotate_left(17)),
            watches: Watches::default(),
            replayed: None,
            disk: None,
            hanging: HangingDisk::default(),
            pumped_to_the_end: true,
        }
    }

    /// Measures the times of writes, see [`crate::timing`].
    pub(crate) fn lend_stopwatch(&mut self, stopwatch: Option<Stopwatch>) {
        self.service.lend_stopwatch(stopwatch);
    }

    /// Asks for votes at once: the bootstrapper knows that there is no leader.
    pub(crate) fn campaign(&mut self) {
        self.consensus.campaign();
    }

    /// The arguments that a call lends to the parts that propose through consensus, and these
    /// parts.
    fn lend<'a>(
        &'a mut self,
        now: Instant,
        out: &'a mut Outbox,
    ) -> (Cx<'a>, &'a mut Service, &'a mut Membership) {
        let cx = Cx {
            now,
            local: &self.local,
            state: self.state.as_ref(),
            clock: &mut self.clock,
            halted: self.life.is_halted(),
            consensus: &mut self.consensus,
            out,
        };
        (cx, &mut self.service, &mut self.membership)
    }

    /// One turn: proposes the arrived requests, ticks if a tick is due, and runs raft until it has nothing to do.
    pub(crate) fn on_turn(&mut self, now: Instant, out: &mut Outbox) {
        self.take_turn(now, out);
        // What was appended and applied in this turn.
        self.announce_places(out);
        // Last: messages and ticks of this turn change what raft waits for.
        self.consensus.plan_ticks();
    }

    fn take_turn(&mut self, now: Instant, out: &mut Outbox) {
        if self.life.is_halted() {
            if self.consensus.stop_leading() {
                self.abandon_clients(now, out);
            }
            self.watches.give_up("the replica has halted", out);
            let state = self.state.as_mut();
            return self.backups.give_up(state, "the replica has halted", out);
        }
        // Arrived requests go in first, so that the ready loop below sends them together with the tick's messages.
        self.propose(now, out);
        let ticked = self.consensus.tick_if_due(now);
        if ticked {
            // After the tick, which may have given leadership up: without a leader these reads cannot be answered.
            let (mut cx, service, _) = self.lend(now, out);
            service.mind_forwarded_reads(&mut cx);
        }
        // Once for all of it: each round of the loop costs a message to every follower.
        self.pump(now, out);
        if ticked {
            // After the loop, which may have added a member: raft has no limit for it yet.
            if let Some(state) = &self.state {
                let most = self.local.config.appends_in_flight_max;
                self.consensus.fit_appends(state.members(), out, most);
            }
            // After the loop: it decides by the applied entries, and by who leads.
            self.maintain(now, out);
            // Proposals of maintenance do not wait for the next turn.
            self.pump(now, out);
        }
        // After the loops: only a state that has applied everything committed may be read under the lease.
        let (mut cx, service, _) = self.lend(now, out);
        service.read_under_lease(&mut cx);
        // After the loops: only applied entries may go, and the appends of this turn are made by now.
        let needed = self.sending.log_needed_from();
        self.consensus.compact(&self.local.config, needed);
        // Bulk data goes last: messages and writes that a quorum waits for are ahead of it on the network and on the
        // disk.
        self.sending
            .send_chunks(now, self.state.as_mut(), &mut self.consensus, out);
        if let (Some(disk), Some(state)) = (&mut self.disk, &mut self.state) {
            disk.write_own_snapshot(state, out);
        }
        if self.has_no_leader(now) {
            self.watches.give_up(NO_LEADER, out);
        }
        self.watches.serve(now, self.state.as_ref(), out);
        self.backups.serve(self.state.as_mut(), out);
        if let Some(state) = &mut self.state {
            state.store_mut().free_flushed();
            state.store_mut().free_shadows();
        }
    }

    /// Hands raft the requests that have arrived since the last turn.
    fn propose(&mut self, now: Instant, out: &mut Outbox) {
        let (mut cx, service, _) = self.lend(now, out);
        // First: `now` is the second reading of the clock, which the answers of the last turn wait
        // for.
        service.release_reads(&mut cx);
        // Anywhere ahead of the ready loop would do for the writes.
        service.propose_waiting(&mut cx);
        // After the writes: their entry moves an index on and removes expired items as well.
        let (state, consensus) = (self.state.as_ref(), &mut self.consensus);
        self.clock.propose_work(now, state, consensus, out);
        let (mut cx, service, membership) = self.lend(now, out);
        // After the release: a read whose lease has ended rides in the round that begins now.
        service.begin_read_round(&mut cx, membership.has_unconfirmed());
    }

    /// Members are where the log says, also ahead of the moment at which this replica hears that it is committed: at a member's
    /// former address an old copy of its directory may speak, and this replica may be cut off from all others by then.
    fn announce_places(&self, out: &mut Outbox) {
        if self.consensus.raft().awaits_snapshot() {
            // The log is empty already, and the table is still the old one.
            return;
        }
        let moves = self.consensus.raft().unapplied_moves();
        out.places
            .announce(moves.map(|entry| (entry.member, entry.to)));
    }

    /// When the next turn is due.
    pub(crate) fn next_timeout(&self, out: &Outbox) -> Option<Instant> {
        if self.life.is_halted() {
            return None;
        }
        if !self.pumped_to_the_end
            || self.service.holds_answers()
            || self.service.has_ready_reads(self.state.as_ref())
            || self.backups.has_waiting()
            || self.watches.has_work()
        {
            return Some(Instant::ZERO);
        }
        let mut tick = self.next_tick(out);
        let raft = self.consensus.raft();
        if let Some(sweep) = self.clock.next_sweep(self.state.as_ref(), raft) {
            tick = tick.min(sweep);
        }
        let (chunk, asking) = (self.sending.next_timeout(), &self.asking);
        let asking = asking.as_ref().map(Asking::next_timeout);
        Some(
            [chunk, asking]
                .into_iter()
                .flatten()
                .fold(tick, Instant::min),
        )
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
            if self.life.is_halted() {
                return;
            }
        }
        let (mut cx, service, _) = self.lend(now, out);
        service.answer_ready_reads(&mut cx);
    }

    fn do_work(&mut self, now: Instant, work: Work, out: &mut Outbox) {
        if let Some(snapshot) = work.snapshot {
            // Goes first: a member that had no state knows no member to which it could send raft's own answer.
            self.install(&snapshot, out);
            if self.life.is_halted() {
                return;
            }
        }
        for message in work.messages {
            self.dispatch(now, &message, out);
        }
        self.service.on_appended(now);
        let mut applied = None;
        for entry in work.committed {
            self.apply(now, &entry, out);
            self.check_agreement(entry.index, out);
            if self.life.is_halted() {
                return;
            }
            applied = Some(entry.index);
        }
        if let Some(index) = applied {
            self.consensus.applied_to(index);
        }
        for state in work.read_states {
            if let Some(context) = self.consensus.raft().own_context(&state.request_ctx) {
                self.on_round_confirmed(now, context, state.index, out);
            }
        }
        self.follow_role(now, out);
    }

    /// A quorum has confirmed a ReadIndex round, and with it the leadership when that began.
    fn on_round_confirmed(&mut self, now: Instant, context: u64, index: u64, out: &mut Outbox) {
        let (mut cx, service, membership) = self.lend(now, out);
        service.on_round_confirmed(&mut cx, context, index);
        membership.on_round_confirmed(&mut cx, context);
    }

    fn dispatch(&mut self, now: Instant, message: &Message, out: &mut Outbox) {
        let (local, state) = (&self.local, self.state.as_ref());
        let consensus = &mut self.consensus;
        if message.get_msg_type() == MessageType::MsgSnapshot {
            self.sending
                .begin_transfer(now, message, local, state, consensus, out);
        } else {
            consensus.dispatch(message, local, state, out);
        }
    }

    fn apply(&mut self, now: Instant, entry: &Entry, out: &mut Outbox) {
        let Some(state) = &mut self.state else {
            return self.life.halt(Halt::Broken(
                "the log holds entries that no state can be found for",
            ));
        };
        if entry.get_entry_type() == EntryType::EntryConfChangeV2 {
            out.note_applied(entry.index, &[]);
            return self.apply_conf_change(now, entry);
        }
        let told = self.replayed.as_ref();
        let told = told.map_or(ToldBefore::No, |own| own.told(entry.index, entry.term));
        state.set_told_before(told);
        if told != ToldBefore::No {
            self.replayed.take_if(|own| own.is_over(entry.index));
        }
        let cluster = self.local.cluster;
        let took = match self.service.apply(now, entry, cluster, state, out) {
            Ok(took) => took,
            Err(error) => return self.life.halt(Halt::Entry(error.to_string())),
        };
        if let Some((member, to)) = moved_member(&entry.data) {
            out.places.on_agreed(member, to);
        }
        self.clock.on_applied(now, entry.index, state, took);
        out.note_applied(entry.index, &entry.data);
        if self.consensus.begins_leadership(entry) {
            self.clock.begin(now, state);
        }
    }

    fn apply_conf_change(&mut self, now: Instant, entry: &Entry) {
        // An unreadable entry changes nothing, on every replica alike.
        let change = membership::decode_change(&entry.data);
        let named = change.as_ref().and_then(membership::named_member);
        let at = Proposal {
            index: entry.index,
            term: entry.term,
        };
        let conf = self.consensus.apply_conf_change(now, at, change.as_ref());
        let Some(state) = &mut self.state else { return };
        let own = self.local.own.incarnation;
        let was_member = state.members().get(own).is_some();
        state.apply_conf_change(entry.index, named.as_ref(), conf.as_ref());
        self.membership.on_members_changed(state.members());
        self.promised.retain(state.members());
        if was_member && state.members().get(own).is_none() {
            self.leave();
        }
    }

    /// This replica is no member any more.
    fn leave(&mut self) {
        let (node_id, cluster) = (self.local.own.node_id, self.local.cluster);
        self.life.halt(Halt::Removed { node_id, cluster });
    }

    /// Everything up to `index` is applied: a check of the states may be due.
    fn check_agreement(&mut self, index: u64, out: &mut Outbox) {
        let state = self.state.as_ref();
        let diverged = self
            .agreement
            .on_applied(index, &self.local, state, &self.consensus, out);
        if let Some(why) = diverged {
            self.halt_and_quarantine(why, out);
        }
    }

    /// Halts a member that has diverged or was rolled back. Its state on disk must not be used again: with its vote a
    /// majority could lose what was acknowledged.
    fn halt_and_quarantine(&mut self, why: Halt, out: &mut Outbox) {
        if self.disk.is_some() && !self.life.is_halted() {
            Durability::quarantine(why.to_string(), out);
        }
        self.life.halt(why);
    }

    /// Notices that this replica has become the leader, or is no longer.
    fn follow_role(&mut self, now: Instant, out: &mut Outbox) {
        let Some(change) = self.consensus.follow_role(now) else {
            return;
        };
        if change.led {
            self.abandon_clients(now, out);
            self.sending
                .drop_image(self.state.as_mut(), &mut self.consensus);
            self.membership.on_leadership_lost();
        }
        self.membership.on_role_change();
        self.deaths.on_role_change();
        self.service.ask_again();
        self.service.expect_switch(None);
        if change.leads {
            out.counters.elections_won += 1;
            self.clock.anchor(now, self.state.as_ref());
            let (local, state) = (&self.local, self.state.as_ref());
            self.deaths.tell(local, state, &self.consensus, out);
        }
    }

    /// Leadership is lost: clients that wait here have to ask another replica.
    fn abandon_clients(&mut self, now: Instant, out: &mut Outbox) {
        let (mut cx, service, membership) = self.lend(now, out);
        service.abandon_clients(&mut cx);
        membership.abandon_admin_clients(&mut cx);
    }

    /// The work of one tick: nothing here is urgent.
    fn maintain(&mut self, now: Instant, out: &mut Outbox) {
        // Ahead of the proposals: raft can be set up again for other settings only while nothing waits.
        self.maintain_snapshots(now, out);
        if self.consensus.raft().is_leader() {
            self.lead(now, out);
        }
        // After a leader's proposals, as with any transfer.
        self.attend_disk(now, out);
        let disk = self.disk.as_deref_mut();
        self.receiving
            .end_abandoned(now, &self.consensus, disk, out);
        let (mut cx, _, membership) = self.lend(now, out);
        membership.probe_membership(&mut cx);
        // A disk remembers, and others may be slow to come back to it.
        if self.disk.is_none() && self.membership.never_began(now, &self.consensus) {
            let cluster = self.local.cluster;
            self.life.halt(Halt::NeverBegan { cluster });
        }
        let (local, state) = (&self.local, self.state.as_ref());
        self.agreement
            .follow_suspicions(now, local, state, &self.consensus, out);
        // Last, so that it covers the answers which found no buffer just now.
        out.settle_debts(self.local.cluster);
    }

    /// A leader's work of one tick.
    fn lead(&mut self, now: Instant, out: &mut Outbox) {
        let stopping = self.life.is_stopping();
        let (state, consensus) = (self.state.as_ref(), &mut self.consensus);
        self.clock.propose_tick(now, state, consensus, out);
        let (mut cx, service, membership) = self.lend(now, out);
        // Ahead of the changes: a replica that is admitted after it has to understand the new
        // version.
        membership.raise_version(&mut cx, stopping);
        service.expect_switch(membership.next_switch(&cx));
        membership.change_members(&mut cx, stopping);
        membership.agree_on_places(&mut cx, stopping);
        self.sending.end_useless_transfers(&self.consensus);
        let (local, state) = (&self.local, self.state.as_ref());
        self.deaths.tell(local, state, &self.consensus, out);
        // After all proposals: raft takes none while leadership is transferred.
        self.hand_over(now, out);
    }

    /// A leader whose disk hangs hands over to a voter that has everything committed.
    fn attend_disk(&mut self, now: Instant, out: &mut Outbox) {
        if self.disk.is_none() {
            return;
        }
        let raft = self.consensus.raft();
        let ends = Ends {
            persisted: raft.persisted(),
            committed: raft.committed(),
            last: raft.last_index(),
        };
        let hangs = self
            .hanging
            .follow(now, ends, self.local.election_timeout());
        if hangs && !canary::planted("a hanging leader keeps leading") {
            let (mut cx, _, membership) = self.lend(now, out);
            let hands_over = membership.hand_over_committed(&mut cx);
            out.counters.disk_handovers += u64::from(hands_over);
        }
    }

    /// A client's request, whose envelope could be read, from a session that has proven this.
    pub(crate) fn on_client(
        &mut self,
        now: Instant,
        token: ReplyToken,
        caller: Caller,
        request: &ClientRequest<'_>,
        holder: &dyn Fn() -> Holder,
        out: &mut Outbox,
    ) {
        if !self.life.is_halted() {
            // The vote that decides may have come in the same burst: nothing is taken, or stamped, as an earlier leader.
            self.follow_role(now, out);
        }
        let (mut cx, service, _) = self.lend(now, out);
        service.on_client(&mut cx, token, caller, request, holder);
    }

    /// A new identity asks to be taken in.
    pub(crate) fn on_join(
        &mut self,
        now: Instant,
        request: &JoinRequest,
        known: &Addresses,
        comes_from: impl Fn(SocketAddr) -> bool,
        out: &mut Outbox,
    ) -> JoinReply {
        let (mut cx, _, membership) = self.lend(now, out);
        membership.on_join(&mut cx, request, known, comes_from)
    }

    /// An admin command has arrived.
    pub(crate) fn on_admin_command(
        &mut self,
        now: Instant,
        token: ReplyToken,
        caller: Caller,
        request: &AdminRequest,
        known: &Addresses,
        out: &mut Outbox,
    ) {
        let by = By::caller(caller, self.users());
        let (mut cx, service, membership) = self.lend(now, out);
        let next_round = service.next_round();
        membership.on_admin_command(&mut cx, token, (by, request), known, next_round);
    }

    /// A request about a backup has arrived, from a caller that may ask.
    pub(crate) fn on_backup(
        &mut self,
        now: Instant,
        token: ReplyToken,
        caller: Caller,
        request: &BackupRequest,
        out: &mut Outbox,
    ) {
        if self.life.is_halted() || self.life.is_stopping() {
            return out.reply(token, &BackupReply::Gone("this replica is about to end"));
        }
        let by = By::caller(caller, self.users());
        let writes = self
            .disk
            .as_ref()
            .is_some_and(|disk| disk.writes_own_snapshot());
        let cx = BackupCx {
            now,
            local: &self.local,
            state: self.state.as_mut(),
            consensus: &self.consensus,
            store_is_taken: writes || self.sending.has_image() || self.receiving.is_installing(),
            out,
        };
        self.backups.on_request(cx, token, by, request);
    }

    /// A watch request has arrived from a caller that is counted for this holder.
    pub(crate) fn on_watch(
        &mut self,
        now: Instant,
        token: ReplyToken,
        (caller, holder): (Caller, Holder),
        request: &WatchRequest<'_>,
        out: &mut Outbox,
    ) {
        if self.life.is_halted() || self.life.is_stopping() {
            let (pause_ms, why) = (WATCH_PAUSE_MS, "this replica is about to end");
            return out.reply(token, &WatchReply::Later { pause_ms, why });
        }
        if self.has_no_leader(now) {
            let (pause_ms, why) = (WATCH_PAUSE_MS, NO_LEADER);
            return out.reply(token, &WatchReply::Later { pause_ms, why });
        }
        let raft = self.consensus.raft();
        // Whatever was committed before this leadership is in its log.
        let knows_all = raft.is_leader() && raft.has_applied_in_term();
        let cx = WatchCx {
            now,
            local: &self.local,
            state: self.state.as_ref(),
            last_index: knows_all.then(|| raft.last_index()),
            out,
        };
        self.watches.on_request(cx, token, caller, holder, request);
    }

    /// Whether there has been no leader, or no word of it, for so long that another replica may know more.
    fn has_no_leader(&self, now: Instant) -> bool {
        // A leader that is there may be silent for up to an election timeout.
        let most =
            WATCH_BEHIND_MAX.max(self.local.election_timeout() + self.local.election_timeout());
        let leaderless = self.consensus.leaderless_since();
        leaderless.is_some_and(|since| now.saturating_since(since) >= WATCH_BEHIND_MAX)
            || self.consensus.raft().silence() >= most
    }

    /// Begins a graceful stop.
    pub(crate) fn stop(&mut self, now: Instant, out: &mut Outbox) {
        self.life.stop(now + self.local.config.handover_timeout);
        self.watches.give_up("this replica is about to end", out);
        self.hand_over(now, out);
    }

    /// A leader that stops transfers leadership.
    fn hand_over(&mut self, now: Instant, out: &mut Outbox) {
        if self.life.is_stopping() {
            let (mut cx, _, membership) = self.lend(now, out);
            membership.hand_over(&mut cx);
        }
    }

    /// Whether another one leads, no other one can lead, or none has come to lead in time.
    pub(crate) fn is_stopped(&self, now: Instant) -> bool {
        let is_over = |until: Instant| now >= until;
        let raft = self.consensus.raft();
        !raft.is_leader()
            || (self.is_only_voter() && self.has_answered_everything())
            || self.life.stop_until().is_some_and(is_over)
    }

    /// Whether everything that was proposed here is applied, and its answers are on their way.
    fn has_answered_everything(&self) -> bool {
        let raft = self.consensus.raft();
        self.pumped_to_the_end
            && raft.applied() == raft.last_index()
            && !self.service.holds_answers()
            && !self.service.has_ready_reads(self.state.as_ref())
    }

    /// Whether nobody else votes: leadership cannot be transferred.
    fn is_only_voter(&self) -> bool {
        let Some(state) = &self.state else {
            return false;
        };
        let own = self.local.own.incarnation;
        state.members().voters_but(own).next().is_none()
    }
}
