//! Old copies of replicas' disks: one is started, and no replica may take it for the member.
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
    /// One at a time is less than a majority of any group.
    running: Option<Copy>,
    /// When a copy of each node's disk ran last.
    ended: BTreeMap<Seat, Instant>,
    /// The first replica that has taken a copy for the member, or has not told of a copy.
    mistake: Option<String>,
    /// Apart from all others.
    prng: Prng,
}

struct Copy {
    /// Whose disk it has.
    of: Seat,
    at: Host,
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
            running: None,
            ended: BTreeMap::new(),
            mistake: None,
            prng: Prng::new(seed ^ 0x0c0b_1e5d_0c0b_1e5d),
        }
    }

    /// Whether a machine runs a copy.
    pub(super) fn are_at(&self, host: Host) -> bool {
        self.running.as_ref().is_some_and(|copy| copy.at == host)
    }

    /// A replica tells of a member that answers there, too. Returns whether that is a copy.
    pub(super) fn are_told_of(&mut self, by: Host, at: Host) -> bool {
        let Some(copy) = self.running.as_mut().filter(|copy| copy.at == at) else {
            return false;
        };
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

    /// Whether a copy runs: no other one may be started.
    pub(crate) fn is_copy_running(&self) -> bool {
        self.copies.running.is_some()
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
    pub(super) fn calm_leader(&self) -> Option<(u64, u64)> {
        let (leader, term) = self.leader()?;
        let follows = |seat: Seat| {
            let place = self.place_of(seat);
            let busy = self.is_moving(seat) || self.is_leaving(seat) || self.is_stopping(place);
            let does = |replica: &Replica| {
                let discovery = replica.discovery();
                replica.halted().is_none() && discovery.term == term && discovery.leader.is_some()
            };
            !busy && self.replica_at(place).is_some_and(does)
        };
        let all = self.replica_hosts().all(follows);
        let (_, end) = self.replica_at(leader)?.log_end();
        all.then_some((term, end))
    }

    fn all_have_applied(&self, index: u64) -> bool {
        let applied = |seat: Seat| self.replica_at(self.place_of(seat))?.applied_state();
        self.replica_hosts()
            .all(|seat| applied(seat).is_some_and(|(applied, _)| applied >= index))
    }

    pub(super) fn replica_at(&self, host: Host) -> Option<&Replica> {
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
        copy.is_some_and(|disk| self.start_copy(seat, disk, None).is_some())
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
        if let Some(at) = started {
            self.set_name(seat, at);
        }
        started.is_some()
    }

    /// Returns where it runs.
    fn start_copy(
        &mut self,
        of: Seat,
        disk: SimDisk,
        told: Option<BTreeSet<Host>>,
    ) -> Option<Host> {
        let free = self.other_machine(of);
        let at = free.filter(|&at| !self.is_moving(of) && self.world.program(at).is_none())?;
        self.disks.insert(at, disk);
        // Ahead of its start: nothing that it says may count.
        self.copies.running = Some(Copy { of, at, told });
        if !self.start_replica(at, false) {
            self.copies.running = None;
            return None;
        }
        let note = || format!("a copy of node {} runs at {at}", node_id_of(of).0);
        self.world.trace.note(self.world.now(), note);
        Some(at)
    }

    /// The copy of a node's replica ends.
    pub(crate) fn end_copy(&mut self, seat: Seat) {
        let Some(copy) = self.copies.running.take_if(|copy| copy.of == seat) else {
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
        let running = self.copies.running.as_ref();
        running.is_some_and(|copy| copy.of == seat)
            || self.copies.kept.contains_key(&seat)
            || self.copies.ended.get(&seat).is_some_and(is_remembered)
    }

    /// Copies that wait for a calm group are not started any more.
    pub(crate) fn forget_copies(&mut self) {
        self.copies.kept.clear();
    }

    /// No replica takes a copy for the member.
    pub(super) fn attend_copies(&mut self) {
        let Some(copy) = &self.copies.running else {
            return;
        };
        let (of, at) = (self.replica_at(copy.at), copy.at.address());
        let of = of.map(Replica::incarnation);
        let takes = |replica: &Replica| {
            let members = replica.discovery().members.0;
            let mut members = members.iter();
            members.any(|member| Some(member.incarnation) == of && member.address == at)
        };
        let mut places = self.replica_hosts().map(|seat| self.place_of(seat));
        let deceived = places.find(|&place| self.replica_at(place).is_some_and(takes));
        if let Some(deceived) = deceived {
            let (at, node) = (copy.at, node_id_of(copy.of).0);
            let text = format!("{deceived} takes the copy at {at} for the replica of node {node}");
            self.copies.mistake.get_or_insert(text);
        }
    }

    /// Copies were told of, and taken for no member.
    pub(crate) fn copy_verdict(&self) -> Verdict {
        let mistake = self.copies.mistake.as_ref();
        mistake.map_or(Verdict::Pass, |text| Verdict::violation(text.clone()))
    }
}
