//! A member's report on itself.

use std::net::SocketAddr;

use trine_kvstore::checksum::crc32c;
use trine_kvstore::command::SWEEP_VERSION;
use trine_kvstore::{Ordered, Users};

use raft::{GetEntriesContext, StateRole, Storage};
use trine_protocol::message::{
    ClusterId, Discovery, Incarnation, Member, MemberRole, Members, PeerHeader, RoleCode, kind,
};
use trine_protocol::status::{
    LeaseStatus, LogStatus, MemberStatus, OrderedStatus, ReceivingStatus, Role, SessionStatus,
    Status, StoreStatus,
};
use trine_transport::time::Instant;

use super::Group;
use super::cx::leader_address;
use crate::audit::Audit;
use crate::config::ReadMode;
use crate::halt::Halt;
use crate::log::Log;
use crate::places::Places;
use crate::state_machine::{Genesis, StateMachine};

impl Group {
    /// Why it has halted, if it has.
    pub(crate) fn halted(&self) -> Option<&Halt> {
        self.life.halted()
    }

    /// Whether this replica has a vote.
    pub(crate) fn is_voter(&self) -> bool {
        self.state.is_some() && self.consensus.raft().is_voter()
    }

    /// The users, unless there is no state yet.
    pub(crate) fn users(&self) -> Option<&Users> {
        Some(self.state.as_ref()?.store().users())
    }

    /// The oldest audit line that was not read yet, and how many were lost before it.
    pub(crate) fn next_audit(&mut self) -> Option<(Audit, u64)> {
        let applied = self.state.as_mut().and_then(|state| state.next_audit());
        let applied = applied.map(|(mut line, lost)| {
            let author = line.asked.and_then(|asked| self.service.author_of(asked));
            line.by = author.unwrap_or(line.by);
            (line, lost)
        });
        applied
            .or_else(|| self.service.next_audit())
            .or_else(|| self.membership.next_audit())
            .or_else(|| self.backups.next_audit())
    }

    /// The caller without a key of the request that came last, if that administrates, is at this address.
    pub(crate) fn came_from(
        &mut self,
        message_kind: u8,
        address: impl FnOnce() -> Option<SocketAddr>,
    ) {
        match message_kind {
            kind::ADMIN => self.membership.came_from(address),
            kind::BACKUP => self.backups.came_from(address),
            _ => self.service.came_from(address),
        }
    }

    /// The group that this replica belongs to.
    pub(crate) fn cluster(&self) -> ClusterId {
        self.local.cluster
    }

    /// Whether a message is for this incarnation and names a member as its sender. Without a state no member is known.
    pub(crate) fn is_from_member(&self, header: &PeerHeader) -> bool {
        let known = |state: &StateMachine| state.members().get(header.from).is_some();
        self.local.is_addressed_by(header) && self.state.as_ref().is_some_and(known)
    }

    /// The members, as far as this replica knows them.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Member> {
        self.state.iter().flat_map(|state| state.members().all())
    }

    /// Whether the group's state has arrived here.
    pub(crate) fn has_state(&self) -> bool {
        self.state.is_some()
    }

    /// Where the leader is, if this replica knows one.
    pub(crate) fn leader_address(&self, places: &Places) -> Option<SocketAddr> {
        leader_address(&self.consensus, self.state.as_ref(), places)
    }

    /// Whether a member was heard from lately.
    pub(crate) fn is_alive(&self, now: Instant, member: Incarnation) -> bool {
        self.membership.is_alive(member, now, &self.local)
    }

    /// Whether this replica knows of a leader.
    pub(crate) fn has_leader(&self) -> bool {
        self.consensus.raft().leader() != 0
    }

    fn role(&self) -> Role {
        if self.state.is_none() {
            return Role::Joining;
        }
        match self.consensus.raft().role() {
            StateRole::Leader => Role::Leader,
            StateRole::Candidate | StateRole::PreCandidate => Role::Candidate,
            StateRole::Follower if self.consensus.raft().is_voter() => Role::Follower,
            StateRole::Follower => Role::Learner,
        }
    }

    /// Fills in the information that a client needs to find the leader.
    pub(crate) fn discover(&self, places: &Places, discovery: &mut Discovery) {
        discovery.cluster = self.local.cluster;
        discovery.term = self.consensus.raft().term();
        discovery.leader = self.leader_address(places);
        discovery.role = match self.role() {
            Role::Unattached => RoleCode::Unattached,
            Role::Joining => RoleCode::Joining,
            Role::Learner => RoleCode::Learner,
            Role::Follower => RoleCode::Follower,
            Role::Candidate => RoleCode::Candidate,
            Role::Leader => RoleCode::Leader,
            Role::Unknown => RoleCode::Unknown,
        };
        discovery.state_version = self.state.as_ref().map_or(0, StateMachine::version);
        let members = self.members();
        discovery.members = Members(members.map(|member| places.seen(member)).collect());
    }

    /// See [`crate::Replica::leads_in`].
    pub(crate) fn leads_in(&self) -> Option<u64> {
        self.consensus
            .raft()
            .is_leader()
            .then(|| self.consensus.raft().term())
    }

    /// See [`crate::Replica::is_handing_over`].
    pub(crate) fn is_handing_over(&self) -> bool {
        self.consensus.raft().is_leader() && self.consensus.raft().is_transferring()
    }

    /// See [`crate::Replica::entry_digest`].
    pub(crate) fn entry_digest(&self, index: u64) -> Option<(u64, u64)> {
        let log = self.consensus.raft().log();
        let context = GetEntriesContext::empty(false);
        let held = log.first_index().ok()?..=log.last_index().ok()?;
        let entries = held
            .contains(&index)
            .then(|| log.entries(index, index + 1, None, context))?;
        let entry = entries.ok()?.pop()?;
        let checksum = crc32c([&entry.data, &entry.context]);
        Some((
            entry.term,
            u64::from(checksum) << 8 | entry.entry_type as u64,
        ))
    }

    /// What the group's state began with, as a snapshot or its first entry has told. Nothing while there is no state.
    pub(crate) fn beginning(&self) -> Option<(ClusterId, Genesis)> {
        let state = self.state.as_ref()?;
        Some((state.cluster(), *state.genesis()))
    }

    /// See [`crate::Replica::applied_state`].
    pub(crate) fn applied_state(&self) -> Option<(u64, u128)> {
        let state = self.state.as_ref()?;
        Some((state.applied_index(), state.store().state_hash()))
    }

    /// See [`crate::Replica::voter_sides`].
    pub(crate) fn voter_sides(&self) -> [Vec<Incarnation>; 2] {
        self.consensus.voter_sides()
    }

    /// See [`crate::Replica::members_digest`].
    pub(crate) fn members_digest(&self) -> u64 {
        let members = self.state.iter().flat_map(|state| state.members().all());
        members.fold(0, |digest: u64, member| {
            let word = member.incarnation.0 ^ member.role as u64;
            (digest.rotate_left(9) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        })
    }

    /// See [`crate::Replica::least_log_voted_for`].
    pub(crate) fn least_log_voted_for(&self) -> (u64, u64) {
        self.consensus.raft().least_log_voted_for()
    }

    /// See [`crate::Replica::log_end`].
    pub(crate) fn log_end(&self) -> (u64, u64) {
        self.consensus.raft().log_end()
    }

    /// See [`crate::Replica::has_unapplied`].
    pub(crate) fn has_unapplied(&self) -> bool {
        let raft = self.consensus.raft();
        raft.committed() > raft.applied()
    }

    /// See [`crate::Replica::leads_without_vote`].
    pub(crate) fn leads_without_vote(&self) -> bool {
        let raft = self.consensus.raft();
        raft.is_leader() && !raft.is_voter()
    }

    /// See [`crate::Replica::state_digest`].
    pub(crate) fn state_digest(&self) -> Option<(u64, u128)> {
        let state = self.state.as_ref()?;
        Some((state.applied_index(), state.digest()))
    }

    /// See [`crate::Replica::rests_behind_sweep`].
    pub(crate) fn rests_behind_sweep(&self) -> Option<u64> {
        let (raft, state) = (self.consensus.raft(), self.state.as_ref()?);
        let is_free = raft.leads_with_commit()
            && !raft.is_transferring()
            && !self.life.is_halted()
            && raft.last_index() == state.applied_index();
        let is_behind = state.version() >= SWEEP_VERSION && state.store().has_expired_items();
        (is_free && is_behind).then_some(raft.last_index())
    }

    /// See [`crate::Replica::state_digest_bytes`].
    pub(crate) fn state_digest_bytes(&self) -> u64 {
        self.state
            .as_ref()
            .map_or(0, |state| state.sessions().bytes())
    }

    /// See [`crate::Replica::receiving`].
    pub(crate) fn receiving(&self) -> Option<ReceivingStatus> {
        self.receiving.progress()
    }

    /// Fills in everything that there is to say.
    pub(crate) fn report(&self, now: Instant, places: &Places, status: &mut Status) {
        status.cluster = Some(self.local.cluster.to_string());
        status.role = self.role();
        status.not_serving = self.why_not_serving(now);
        status.receiving = self.receiving();
        status.backup = self.backups.status();
        let state = self.state.as_ref();
        let history = state.and_then(|state| state.store().history());
        status.watch = history.map(|history| self.watches.status(history));
        status.term = self.consensus.raft().term();
        status.leader = self.leader_address(places);
        status.committed = self.consensus.raft().committed();
        let raft = self.consensus.raft();
        status.change_in_progress = raft.has_pending_conf() || raft.is_joint();
        let log = self.consensus.raft().log();
        status.log = LogStatus {
            first_index: log.first_index().unwrap_or_default(),
            last_index: self.consensus.raft().last_index(),
            entries: log.entry_count() as u64,
            bytes: log.bytes() as u64,
            compactions: self.consensus.compactions(),
            ..status.log
        };
        status.lease = self.lease_status(now);
        status.stages = self.service.stages().clone();
        let Some(state) = &self.state else { return };
        status.applied = state.applied_index();
        status.patience_ns = self.consensus.raft().patience().as_nanos();
        status.awaits_death_notice = self.deaths.is_awaited(&self.consensus);
        status.state_version = state.version();
        status.upgrade = (self.consensus.raft().is_leader())
            .then(|| self.membership.upgrade_status(now, &self.local, state));
        status.group_time_ns = state.group_time_ns();
        status.members = state
            .members()
            .all()
            .iter()
            .map(|member| self.member_status(now, &places.seen(member)))
            .collect();
        status.sessions = session_status(state);
        status.store = store_status(state);
        status.counters.commands_applied = state.commands_applied();
    }

    fn lease_status(&self, now: Instant) -> Option<LeaseStatus> {
        let local = &self.local;
        let until = self.consensus.lease_until(now, local);
        (local.config.reads == ReadMode::Lease).then(|| LeaseStatus {
            left_ns: until.map(|until| until.saturating_since(now).as_nanos()),
            length_ns: local.lease_length(self.state.as_ref()).as_nanos(),
            drift_ns: local.config.lease_drift.as_nanos(),
        })
    }

    fn member_status(&self, now: Instant, member: &Member) -> MemberStatus {
        let this = member.incarnation == self.local.own.incarnation;
        let progress = self
            .consensus
            .raft()
            .is_leader()
            .then(|| self.consensus.raft().progress(member.incarnation.0))
            .flatten();
        // Raft never takes an acknowledgement back. A member that lost entries shows the end of its log by rejections.
        let log_end = self.membership.log_end(member.incarnation);
        let matched = progress.map(|progress| progress.matched.min(log_end.unwrap_or(u64::MAX)));
        let last_index = self.consensus.raft().last_index();
        MemberStatus {
            node_id: member.node_id.0,
            incarnation: member.incarnation.to_string(),
            address: member.address,
            voter: member.role == MemberRole::Voter,
            this,
            matched,
            lag: matched.map(|matched| last_index.saturating_sub(matched)),
            in_snapshot: progress.map(|progress| progress.in_snapshot),
            state_version: Some(self.membership.understands(member.incarnation, &self.local))
                .filter(|&version| version != 0),
            silent_ns: self.membership.silence_ns(now, member.incarnation),
            also_at: None,
        }
    }

    fn why_not_serving(&self, now: Instant) -> Option<String> {
        if let Some(why) = self.life.halted() {
            return Some(format!("stopped taking part: {why}"));
        }
        let Some(state) = &self.state else {
            return Some("waiting for the group's state".to_owned());
        };
        if state.members().get(self.local.own.incarnation).is_none() {
            let node_id = self.local.own.node_id;
            return Some(format!(
                "this replica is not a member any more: node {node_id} was removed, or another replica has taken its id"
            ));
        }
        if self.consensus.raft().leader() != 0 {
            return None;
        }
        let voters = state
            .members()
            .all()
            .iter()
            .filter(|member| member.role == MemberRole::Voter);
        let (alive, all) = voters.fold((0, 0), |(alive, all), member| {
            let lives = member.incarnation == self.local.own.incarnation
                || self
                    .membership
                    .is_alive(member.incarnation, now, &self.local);
            (alive + u32::from(lives), all + 1)
        });
        let quorum = all / 2 + 1;
        Some(if alive < quorum {
            format!(
                "no quorum: {alive} of {all} voters were heard from lately, {quorum} are needed"
            )
        } else {
            "no leader yet: an election is under way".to_owned()
        })
    }
}

fn session_status(state: &StateMachine) -> SessionStatus {
    let (sessions, counters) = (state.sessions(), state.sessions().counters());
    SessionStatus {
        open: sessions.open_count(),
        closed: sessions.closed_count(),
        reply_bytes: sessions.bytes(),
        evicted: counters.evicted,
        gave_way: counters.gave_way,
        refused: counters.refused,
        duplicates: counters.duplicates,
        sequences_used: counters.sequences_used,
    }
}

fn store_status(state: &StateMachine) -> StoreStatus {
    let (stats, hash) = (state.store().stats(), state.store().state_hash());
    let (pins, pinned_bytes) = state.store().pin_usage();
    StoreStatus {
        items: stats.items,
        expiring: stats.expiring,
        logical_bytes: stats.logical_bytes,
        memory_bytes: state.store().limits().memory_bytes,
        hash: [(hash >> 64) as u64, hash as u64],
        ordered: match state.store().ordered() {
            Ordered::Off => OrderedStatus::Off,
            Ordered::Building(walk) => OrderedStatus::Building {
                permille: walk.permille(),
            },
            Ordered::On => OrderedStatus::On,
        },
        ordered_bytes: stats.ordered_bytes,
        pins: pins as u64,
        pinned_bytes,
    }
}
