//! What others may know of a replica: its part in the group, its state for checkers, and its status.

use std::net::SocketAddr;

use trine_kvstore::Users;
use trine_protocol::message::{ClusterId, Discovery, Incarnation, PromisedPosition};
use trine_protocol::stages::WriteStages;
use trine_protocol::status::{
    Counters, LogStatus, ReceivingStatus, Role, SessionStatus, Status, StoreStatus,
};
use trine_transport::time::Instant;

use super::Replica;
use crate::bootstrap::Bootstrap;
use crate::halt::Halt;
use crate::replay::{AppliedEntry, Replay};
use crate::rights::{Caller, Subject, What};

impl Replica {
    /// Whether a caller may do that, by the users that this replica has applied. It counts nothing.
    #[must_use]
    pub fn permits(&self, caller: Caller, what: What<'_>) -> bool {
        self.is_subject(caller, |subject| subject.may(what).is_ok())
    }

    /// Whether a caller may touch the keys of a prefix alone, by the users that this replica has applied.
    #[must_use]
    pub fn has_prefix(&self, caller: Caller) -> bool {
        self.is_subject(caller, |subject| !subject.prefix().is_empty())
    }

    /// Whether that holds of a caller, by the users that this replica has applied.
    fn is_subject(&self, caller: Caller, holds: impl FnOnce(Subject<'_>) -> bool) -> bool {
        let none = Users::default();
        let users = self.users().unwrap_or(&none);
        Subject::of(caller, users).is_ok_and(holds)
    }

    /// Says where the request of this kind came from that came last. Asked only if an audit line wants to know: if a caller
    /// without a key has administrated.
    pub fn came_from(&mut self, message_kind: u8, address: impl FnOnce() -> Option<SocketAddr>) {
        if let Some(group) = self.life.group_mut() {
            group.came_from(message_kind, address);
        }
    }

    /// Whether this replica leads and is transferring leadership at the moment.
    pub fn is_handing_over(&self) -> bool {
        self.life
            .group()
            .is_some_and(|group| group.is_handing_over())
    }

    /// Why this replica has halted, if it has: whatever it did next could differ from what the others do.
    pub fn halted(&self) -> Option<&Halt> {
        let of_group = self.life.group().and_then(|group| group.halted());
        of_group.or(self.disk_failed.as_ref())
    }

    /// The cluster that this replica belongs to, [`ClusterId::NONE`] while it belongs to none.
    pub fn cluster(&self) -> ClusterId {
        self.life
            .group()
            .map_or(ClusterId::NONE, |group| group.cluster())
    }

    /// The incarnation of this replica.
    pub fn incarnation(&self) -> Incarnation {
        self.own.incarnation
    }

    /// The information that a client needs to find the leader.
    pub fn discovery(&self) -> Discovery {
        let mut discovery = Discovery {
            understands: self.config.state_version,
            ..Discovery::unattached(self.own.node_id, self.own.incarnation)
        };
        if let Some(group) = self.life.group() {
            group.discover(&self.out.places, &mut discovery);
        }
        discovery
    }

    /// What a member has promised to this replica, as far as this one has heard it since its start.
    #[must_use]
    pub fn promised_by(&self, member: Incarnation) -> Option<PromisedPosition> {
        self.life.group()?.promised_by(member)
    }

    /// For checkers: the voters of the configuration that this replica has applied, and, during a joint change, those of
    /// the one that it replaces. A decision takes a majority of either.
    pub fn voter_sides(&self) -> [Vec<Incarnation>; 2] {
        self.life
            .group()
            .map_or_else(Default::default, |group| group.voter_sides())
    }

    /// For checkers: a number that changes with the members that this replica knows and with their roles. Costs next to
    /// nothing.
    pub fn members_digest(&self) -> u64 {
        self.life.group().map_or(0, |group| group.members_digest())
    }

    /// For checkers: term and index of the last entry of the log; zeros while there is none.
    pub fn log_end(&self) -> (u64, u64) {
        self.life.group().map_or((0, 0), |group| group.log_end())
    }

    /// For checkers: term and index of the shortest log that gets a vote from this replica.
    pub fn least_log_voted_for(&self) -> (u64, u64) {
        self.life
            .group()
            .map_or((0, 0), |group| group.least_log_voted_for())
    }

    /// For checkers: whether entries that this replica knows to be committed are not applied yet, for instance because it
    /// has just started on its log.
    pub fn has_unapplied(&self) -> bool {
        self.life.group().is_some_and(|group| group.has_unapplied())
    }

    /// For checkers: whether this replica leads, and the configuration that it has applied gives it no vote.
    pub fn leads_without_vote(&self) -> bool {
        self.life
            .group()
            .is_some_and(|group| group.leads_without_vote())
    }

    /// The term in which this replica leads, if it does.
    pub fn leads_in(&self) -> Option<u64> {
        self.life.group()?.leads_in()
    }

    /// For checkers: the index of the last applied entry and a hash of the store after it, at no cost. Replicas at
    /// the same index have the same one.
    pub fn applied_state(&self) -> Option<(u64, u128)> {
        self.life.group()?.applied_state()
    }

    /// For checkers: the same over everything that replicas agree on, client sessions and members included. Costs a
    /// walk over all sessions.
    pub fn state_digest(&self) -> Option<(u64, u128)> {
        self.life.group()?.state_digest()
    }

    /// For checkers: the index of the last entry, if this replica leads and has applied it, and nothing keeps it from
    /// proposing another that removes expired items, of which some are left.
    pub fn rests_behind_sweep(&self) -> Option<u64> {
        self.life.group()?.rests_behind_sweep()
    }

    /// About how many bytes [`Replica::state_digest`] walks over.
    pub fn state_digest_bytes(&self) -> u64 {
        self.life
            .group()
            .map_or(0, |group| group.state_digest_bytes())
    }

    /// For checkers: the term of an entry that is still in the log, and a checksum over its content.
    pub fn entry_digest(&self, index: u64) -> Option<(u64, u64)> {
        self.life.group()?.entry_digest(index)
    }

    /// For checkers: keeps each entry that is applied from here on, until [`Replica::take_applied`].
    pub fn keep_applied(&mut self) {
        self.out.keep_applied();
    }

    /// For checkers: the entries that were applied since the last call.
    pub fn take_applied(&mut self) -> Vec<AppliedEntry> {
        self.out.take_applied()
    }

    /// For checkers: the state of the group as it began, to which [`Replica::take_applied`] adds.
    pub fn replay(&self) -> Option<Replay> {
        let (cluster, genesis) = self.life.group()?.beginning()?;
        Some(Replay::new(cluster, genesis))
    }

    /// How much of the group's state is here, while its leader sends it.
    pub fn receiving(&self) -> Option<ReceivingStatus> {
        self.life.group()?.receiving()
    }

    /// The other voters, while this replica leads. Those come first that could take over at once.
    pub fn successors(&self, now: Instant) -> Vec<SocketAddr> {
        let group = self.life.group();
        group.map_or_else(Vec::new, |group| group.successors(now, &self.out.places))
    }

    /// For checkers: the leader, and its term, for whose end this replica has campaigned last.
    pub fn last_death(&self) -> Option<(Incarnation, u64)> {
        self.life.group()?.last_death()
    }

    /// Counters since the start.
    pub fn counters(&self) -> Counters {
        self.out.counters
    }

    /// Everything that there is to say about this replica.
    pub fn status(&self, now: Instant) -> Status {
        let mut status = Status {
            node_id: self.own.node_id.0,
            incarnation: self.own.incarnation.to_string(),
            cluster: None,
            address: self.own.address,
            role: Role::Unattached,
            not_serving: None,
            receiving: None,
            backup: None,
            watch: None,
            term: 0,
            leader: None,
            patience_ns: 0,
            awaits_death_notice: false,
            committed: 0,
            applied: 0,
            group_time_ns: 0,
            lease: None,
            state_version: 0,
            upgrade: None,
            members: Vec::new(),
            change_in_progress: false,
            log: LogStatus {
                fsync: self.fsync.map(Into::into),
                ..LogStatus::default()
            },
            sessions: SessionStatus::default(),
            store: StoreStatus::default(),
            counters: self.out.counters,
            stages: WriteStages::default(),
        };
        match self.life.group() {
            Some(group) => {
                group.report(now, &self.out.places, &mut status);
                for (member, seen) in group.members().zip(&mut status.members) {
                    seen.also_at = self.searches.also_at(member.incarnation);
                }
            }
            None => {
                let bootstrap = self.life.bootstrap().map(Bootstrap::problem);
                let problem = bootstrap.unwrap_or_else(|| self.joiner.problem());
                status.not_serving = Some(problem.to_owned());
            }
        }
        status
    }
}
