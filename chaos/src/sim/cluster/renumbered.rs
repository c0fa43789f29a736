//! Machines of replicas that get other addresses, and what the names of the replicas say meanwhile.

use super::{Cluster, Seat, node_id_of};
use crate::checker::Verdict;
use crate::fault::Name;
use crate::sim::Host;
use crate::sim::member::Member;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use trine_protocol::message::NodeId;
use trine_replica::{PlaceNews, Replica};
use trine_transport::time::{Duration, Instant};

/// Once the names are right, the group needs so long until it is whole again.
const SETTLED_AFTER: Duration = Duration::from_secs(5);

/// What a name service says.
#[derive(Default)]
pub(super) struct Names {
    /// Names that lead elsewhere than to the node's replica.
    wrong: BTreeMap<Seat, SocketAddr>,
    /// Names that are told once to each process, and then no more.
    vanishing: BTreeSet<Seat>,
    changed_at: Option<Instant>,
    /// When the machine of a node got another address last.
    moved_at: BTreeMap<Seat, Instant>,
    /// The first place to which a member was followed wrongly.
    mistake: Option<String>,
}

impl Cluster {
    /// The machine of a node gets another address: its replica ends, to be started there. Returns where, or nothing if that
    /// cannot be now.
    pub(crate) fn renumber(&mut self, seat: Seat, name: Name, copied: bool) -> Option<Host> {
        let before = self.place_of(seat);
        let to = self.change_machine(seat)?;
        if copied {
            self.copy_disk(seat, to);
        }
        self.names.moved_at.insert(seat, self.world.now());
        self.names.vanishing.remove(&seat);
        self.names.wrong.remove(&seat);
        let wrong = match name {
            Name::Late(_) => Some(before),
            Name::Lies(_) => {
                let others = self.replica_hosts().filter(|&other| other != seat);
                others.map(|other| self.place_of(other)).next()
            }
            Name::Vanishes => {
                self.names.vanishing.insert(seat);
                None
            }
        };
        if let Some(wrong) = wrong {
            self.names.wrong.insert(seat, wrong.address());
        }
        self.names.changed_at = Some(self.world.now());
        self.tell_name(seat);
        Some(to)
    }

    /// The name of a node says where its replica is, to all who ask for it.
    pub(crate) fn set_name_right(&mut self, seat: Seat) {
        self.names.wrong.remove(&seat);
        self.names.changed_at = Some(self.world.now());
        self.tell_name(seat);
    }

    /// The name of a node leads to this machine.
    pub(super) fn set_name(&mut self, seat: Seat, to: Host) {
        self.names.wrong.insert(seat, to.address());
        self.names.changed_at = Some(self.world.now());
        self.tell_name(seat);
    }

    /// Whether the name of a node is right, and its replica has been there for so long.
    pub(super) fn is_settled_for(&self, seat: Seat, span: Duration) -> bool {
        let moved = self.names.moved_at.get(&seat);
        let is_old = moved.is_none_or(|&at| self.world.now() >= at + span);
        is_old && !self.names.wrong.contains_key(&seat)
    }

    /// A lookup of a node's name fails at each replica that asks for it again. False if it is there again.
    pub(crate) fn fail_name(&mut self, seat: Seat) -> bool {
        let vanishes = self.names.vanishing.contains(&seat);
        if vanishes {
            self.tell_all(node_id_of(seat), &[]);
        }
        vanishes
    }

    /// A replica that starts asks for all names.
    pub(super) fn resolve_names(&self, replica: &mut Replica) {
        for (&seat, &address) in &self.names.wrong {
            replica.set_listed(node_id_of(seat), &[address]);
        }
    }

    /// Whether names have changed lately, or will.
    pub(super) fn are_names_news(&self) -> bool {
        !self.names.wrong.is_empty() || self.have_names_changed_within(SETTLED_AFTER)
    }

    fn have_names_changed_within(&self, span: Duration) -> bool {
        let changed = self.names.changed_at;
        changed.is_some_and(|at| self.world.now() < at + span)
    }

    /// Reads what replicas have found out about places, as an operator would.
    pub(super) fn attend_names(&mut self) {
        for host in self.places() {
            while let Some(Member::Replica(observed)) = self.world.program_mut(host)
                && let Some(news) = observed.replica_mut().next_place_news()
            {
                self.judge_place(host, news);
            }
        }
    }

    /// Machines belong to nodes: a replica that is on one of another node is another one. And only copies make two.
    fn judge_place(&mut self, by: Host, news: PlaceNews) {
        let is_wrong = match news {
            PlaceNews::Moved { node_id, to, .. } => {
                let mut seats = self.replica_hosts();
                let seat = seats.find(|&seat| node_id_of(seat) == node_id);
                let machines = seat.map(|seat| self.machines_of(seat));
                let there = |machines: &Vec<Host>| machines.iter().any(|at| at.address() == to);
                !machines.as_ref().is_some_and(there)
            }
            PlaceNews::AtTwo { other, .. } => {
                let is_told = |at| self.copies.are_told_of(by, at);
                !Host::of_address(other).is_some_and(is_told)
            }
        };
        let now = self.world.now();
        self.world
            .trace
            .note(now, || format!("{by} says: {news:?}"));
        if is_wrong {
            let text = || format!("a member is not where {by} has followed it: {news:?}");
            self.names.mistake.get_or_insert_with(text);
        }
    }

    /// Members were followed to their places only.
    pub(crate) fn place_verdict(&self) -> Verdict {
        let mistake = self.names.mistake.as_ref();
        mistake.map_or(Verdict::Pass, |text| Verdict::violation(text.clone()))
    }

    fn tell_name(&mut self, seat: Seat) {
        let right = self.place_of(seat).address();
        let says = self.names.wrong.get(&seat).copied().unwrap_or(right);
        self.tell_all(node_id_of(seat), &[says]);
    }

    fn tell_all(&mut self, node_id: NodeId, addresses: &[SocketAddr]) {
        for host in self.places() {
            if let Some(Member::Replica(observed)) = self.world.program_mut(host) {
                observed.replica_mut().set_listed(node_id, addresses);
                self.world.poke(host);
            }
        }
    }

    /// All clients end, and others ask for the replicas by their names.
    pub(crate) fn replace_callers(&mut self) {
        for machine in 0..self.config.client_machines {
            self.world.kill(self.caller_host(machine));
            self.start_callers(machine);
        }
    }
}
