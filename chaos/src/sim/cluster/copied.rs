//! Old copies of replicas' disks: somebody starts one, and the group must not take it for the member.
//!
//! A copy runs at a machine that its member has left, once the group has had the time to agree on the new place. Or it runs
//! where the name of its member leads, while that answers at its place. Nothing tells a copy from its original where the
//! original is silent and the copy is at a place where the member may be: such a copy is not started here. Neither are the
//! copies of a majority, which are a group of their own.

use super::{Cluster, Seat, node_id_of};
use crate::checker::Verdict;
use crate::sim::Host;
use crate::sim::disk::SimDisk;
use crate::sim::member::Member;
use std::collections::{BTreeMap, BTreeSet};
use trine_kvstore::command::STATE_VERSION;

use trine_protocol::message::Incarnation;
use trine_replica::{Node, Replica};
use trine_transport::prng::Prng;
use trine_transport::time::{Duration, Instant};

/// A leader writes the place of one member into the log at most so often, and a little more.
const AGREED_AFTER: Duration = Duration::from_secs(12);
/// A leader that reaches all replicas has found out by then where they are, and has proposed it.
const REACHES_FOR: Duration = Duration::from_secs(3);
/// For so long a replica remembers where a copy has answered, and a little more.
const REMEMBERED_FOR: Duration = Duration::from_secs(20);

/// The copies of a group's disks.
pub(super) struct Copies {
    /// The disks as they were when their replicas got other addresses.
    kept: BTreeMap<Seat, SimDisk>,
    running: BTreeMap<Seat, Copy>,
    /// When a copy of each node's disk ran last.
    ended: BTreeMap<Seat, Instant>,
    /// The first replica that has taken a copy for the member, or has not told of a copy.
    mistake: Option<String>,
    /// Apart from all others.
    prng: Prng,
}

struct Copy {
    at: Host,
    /// Whom its disk says that it is.
    of: Incarnation,
    /// The replicas that have told of it, if the name leads to it.
    told: Option<BTreeSet<Host>>,
}

/// How far the group is on the way to agree where a member is.
#[derive(Clone, Copy)]
pub(crate) enum Settling {
    /// It may not have noticed yet.
    Not,
    /// The leader of this term had this entry last: once all have applied it, it reaches all.
    Reaching { term: u64, end: u64 },
    /// It reaches all, since then.
    Reaches { term: u64, since: Instant },
    /// Whatever it had to propose is up to this entry.
    Agreeing { term: u64, end: u64 },
    /// All have applied that.
    Settled,
}

impl Copies {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            kept: BTreeMap::new(),
            running: BTreeMap::new(),
            ended: BTreeMap::new(),
            mistake: None,
            prng: Prng::new(seed ^ 0x0c0b_1e5d_0c0b_1e5d),
        }
    }

    /// Whether a machine runs a copy.
    pub(super) fn are_at(&self, host: Host) -> bool {
        self.running.values().any(|copy| copy.at == host)
    }

    /// A replica tells of a member that answers there, too. Returns whether that is a copy.
    pub(super) fn are_told_of(&mut self, by: Host, at: Host) -> bool {
        let copy = self.running.values_mut().find(|copy| copy.at == at);
        let Some(copy) = copy else { return false };
        if let Some(told) = &mut copy.told {
            told.insert(by);
        }
        true
    }
}

impl Cluster {
    /// Keeps a copy of the disk of a replica that is about to start at this machine.
    pub(super) fn copy_disk(&mut self, seat: Seat, at: Host) {
        let is_agreed = self.config.first_state_version == STATE_VERSION;
        if let Some(disk) = self.disks.get(&at).filter(|_| is_agreed) {
            let copy = disk.copy(self.copies.prng.fork());
            self.copies.kept.insert(seat, copy);
        }
    }

    /// Whether a copy runs: one at a time is less than a majority of any group.
    pub(crate) fn is_copy_running(&self) -> bool {
        !self.copies.running.is_empty()
    }

    /// What comes next on the way to a group that has agreed where this node's replica is.
    pub(crate) fn settle_further(&self, seat: Seat, before: Settling) -> Settling {
        let is_right = self.is_settled_for(seat, AGREED_AFTER);
        let Some((term, end)) = self.calm_leader().filter(|_| is_right) else {
            return Settling::Not;
        };
        let now = self.world.now();
        match before {
            Settling::Reaching { term: led, .. }
            | Settling::Reaches { term: led, .. }
            | Settling::Agreeing { term: led, .. }
                if led != term =>
            {
                Settling::Not
            }
            Settling::Not => Settling::Reaching { term, end },
            Settling::Reaching { end, .. } if self.all_have_applied(end) => {
                Settling::Reaches { term, since: now }
            }
            Settling::Reaches { since, .. } if now >= since + REACHES_FOR => {
                Settling::Agreeing { term, end }
            }
            Settling::Agreeing { end, .. } if self.all_have_applied(end) => Settling::Settled,
            on_the_way => on_the_way,
        }
    }

    /// Term of the leader whom all replicas follow, and the last index of its log.
    fn calm_leader(&self) -> Option<(u64, u64)> {
        let (leader, term) = self.leader()?;
        let follows = |seat: Seat| {
            let place = self.place_of(seat);
            let replica = self.replica_at(place)?;
            let is_calm = replica.halted().is_none()
                && !self.is_moving(seat)
                && !self.is_leaving(seat)
                && !self.is_stopping(place);
            let discovery = replica.discovery();
            (is_calm && discovery.term == term && discovery.leader.is_some()).then_some(())
        };
        let all = self.replica_hosts().all(|seat| follows(seat).is_some());
        let (_, end) = self.replica_at(leader)?.log_end();
        all.then_some((term, end))
    }

    fn all_have_applied(&self, index: u64) -> bool {
        let has = |seat: Seat| {
            let replica = self.replica_at(self.place_of(seat))?;
            replica.applied_state().map(|(applied, _)| applied >= index)
        };
        self.replica_hosts().all(|seat| has(seat) == Some(true))
    }

    fn replica_at(&self, host: Host) -> Option<&Replica> {
        let node = self.world.program(host).and_then(Member::replica);
        node.map(Node::replica)
    }

    /// The machine of a node at which its replica is not.
    fn other_machine(&self, seat: Seat) -> Option<Host> {
        let place = self.place_of(seat);
        let mut machines = self.machines_of(seat).into_iter();
        machines.find(|&machine| machine != place)
    }

    /// Whether all replicas run and follow one leader that reaches them, and the name of this node is right.
    pub(crate) fn is_whole(&self, seat: Seat) -> bool {
        self.is_settled_for(seat, Duration::from_secs(1)) && self.calm_leader().is_some()
    }

    /// Whose disk is copied in the quiet time.
    pub(crate) fn seat_to_copy(&mut self) -> Seat {
        let seats = self.config.replicas as u64;
        Host(self.copies.prng.below(seats) as u16)
    }

    /// Somebody starts the old copy of a replica's disk where the replica was. False if there is none.
    pub(crate) fn start_old_copy(&mut self, seat: Seat) -> bool {
        let copy = self.copies.kept.remove(&seat);
        copy.is_some_and(|disk| self.start_copy(seat, disk, None))
    }

    /// Somebody copies the disk of a replica that runs, starts the copy at the other machine, and the name leads there. False
    /// if that cannot be now.
    pub(crate) fn start_copy_by_name(&mut self, seat: Seat) -> bool {
        let place = self.place_of(seat);
        let Some(disk) = self.disks.get(&place) else {
            return false;
        };
        let copy = disk.copy(self.copies.prng.fork());
        let started = self.start_copy(seat, copy, Some(BTreeSet::new()));
        if started && let Some(at) = self.other_machine(seat) {
            self.set_name(seat, at);
        }
        started
    }

    fn start_copy(&mut self, seat: Seat, disk: SimDisk, told: Option<BTreeSet<Host>>) -> bool {
        let free = self.other_machine(seat);
        let free = free.filter(|&at| self.world.program(at).is_none());
        let Some(at) = free.filter(|_| !self.is_moving(seat)) else {
            return false;
        };
        self.disks.insert(at, disk);
        // Ahead of its start: nothing that it says may count.
        let of = Incarnation::NONE;
        self.copies.running.insert(seat, Copy { at, of, told });
        let started = self.start_replica(at, false);
        let of = self.replica_at(at).map(Replica::incarnation);
        match (self.copies.running.get_mut(&seat), of) {
            (Some(copy), Some(of)) if started => copy.of = of,
            _ => {
                self.copies.running.remove(&seat);
                return false;
            }
        }
        let note = || format!("a copy of node {} runs at {at}", node_id_of(seat).0);
        self.world.trace.note(self.world.now(), note);
        true
    }

    /// The copy of a node's replica ends.
    pub(crate) fn end_copy(&mut self, seat: Seat) {
        let Some(copy) = self.copies.running.remove(&seat) else {
            return;
        };
        self.copies.ended.insert(seat, self.world.now());
        self.world.kill(copy.at);
        self.empty_disk(copy.at);
        if let Some(told) = copy.told {
            self.set_name_right(seat);
            let mut others = self.replica_hosts().filter(|&other| other != seat);
            let silent = others.find(|&other| !told.contains(&self.place_of(other)));
            let text = |other: Seat| {
                let (other, of) = (node_id_of(other).0, node_id_of(seat).0);
                format!("node {other} has not told that node {of} answers at two addresses")
            };
            if let Some(other) = silent {
                self.copies.mistake.get_or_insert_with(|| text(other));
            }
        }
    }

    /// Whether a copy of the disk of a node's replica runs, will run, or is remembered by others: the replica stays where it
    /// is until that is over. Nobody follows a member to the place of a copy that is remembered.
    pub(crate) fn is_copied(&self, seat: Seat) -> bool {
        let is_remembered = |at: &Instant| self.world.now() < *at + REMEMBERED_FOR;
        self.copies.running.contains_key(&seat)
            || self.copies.kept.contains_key(&seat)
            || self.copies.ended.get(&seat).is_some_and(is_remembered)
    }

    /// Copies that wait for a calm group are not started any more.
    pub(crate) fn forget_copies(&mut self) {
        self.copies.kept.clear();
    }

    /// No replica takes a copy for the member.
    pub(super) fn attend_copies(&mut self) {
        for (&seat, copy) in &self.copies.running {
            let (of, at) = (copy.of, copy.at.address());
            let takes = |replica: &Replica| {
                let members = replica.discovery().members.0;
                let mut members = members.iter();
                members.any(|member| member.incarnation == of && member.address == at)
            };
            let mut places = self.replica_hosts().map(|seat| self.place_of(seat));
            let deceived = places.find(|&place| self.replica_at(place).is_some_and(takes));
            if let Some(deceived) = deceived {
                let text = format!(
                    "{deceived} takes the copy at {} for the replica of node {}",
                    copy.at,
                    node_id_of(seat).0
                );
                self.copies.mistake.get_or_insert(text);
            }
        }
    }

    /// Copies were told of, and taken for no member.
    pub(crate) fn copy_verdict(&self) -> Verdict {
        let mistake = self.copies.mistake.as_ref();
        mistake.map_or(Verdict::Pass, |text| Verdict::violation(text.clone()))
    }
}
