//! Replicas that move while they run: each node has a second machine, and a new process at one of the two replaces the
//! old one at the other.

use super::{Cluster, Seat, View, node_id_of};
use crate::sim::Host;
use crate::sim::disk::SimDisk;
use crate::sim::member::Member;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use trine_protocol::message::{AdminCommand, Incarnation, MemberRole, NodeId};
use trine_replica::{Halt, Node};
use trine_transport::prng::Prng;
use trine_transport::time::{Duration, Instant};

/// An operator whose command was refused gives it again after this.
const ASK_AGAIN: Duration = Duration::from_millis(300);

/// Where the replicas are.
pub(super) struct Moves {
    /// The first of the second machines, if there are any.
    spares_from: Option<Host>,
    /// Nodes whose replica is at its second machine.
    away: BTreeSet<Seat>,
    under_way: BTreeMap<Seat, Move>,
    /// Apart from all others.
    prng: Prng,
}

struct Move {
    from: Host,
    to: Host,
    /// The incarnation that is to go.
    old: Incarnation,
    asked_at: Instant,
}

impl Moves {
    pub(super) fn new(seed: u64, spares_from: Option<Host>) -> Self {
        Self {
            spares_from,
            away: BTreeSet::new(),
            under_way: BTreeMap::new(),
            prng: Prng::new(seed ^ 0x0a0b_11e5_0a0b_11e5),
        }
    }

    pub(super) fn are_under_way(&self) -> bool {
        !self.under_way.is_empty()
    }
}

impl Cluster {
    pub(super) fn spare_of(&self, seat: Seat) -> Option<Host> {
        let first = self.moves.spares_from?;
        Some(Host(first.0 + seat.0))
    }

    /// The node whose replica runs, or may run, at a machine of replicas. It is called by its first machine.
    pub(crate) fn seat_of(&self, host: Host) -> Seat {
        match self.moves.spares_from {
            Some(first) if host >= first => Host(host.0 - first.0),
            _ => host,
        }
    }

    /// The machines of a node.
    pub(super) fn machines_of(&self, seat: Seat) -> Vec<Host> {
        [Some(seat), self.spare_of(seat)]
            .into_iter()
            .flatten()
            .collect()
    }

    /// Where the replica of a node is, or is to be when it starts. While it moves it is where it was.
    pub(crate) fn place_of(&self, seat: Seat) -> Host {
        match self.spare_of(seat) {
            Some(spare) if self.moves.away.contains(&seat) => spare,
            _ => seat,
        }
    }

    /// Where replicas are, those under way to a place included.
    pub(crate) fn places(&self) -> Vec<Host> {
        let places = self.replica_hosts().map(|seat| self.place_of(seat));
        let coming = self.moves.under_way.values().map(|under_way| under_way.to);
        places.chain(coming).collect()
    }

    /// Whether the replica of a node is under way to another machine.
    pub(crate) fn is_moving(&self, seat: Seat) -> bool {
        self.moves.under_way.contains_key(&seat)
    }

    /// Whether a replica that has died is to be started again where it was. One that is to go is started again with its
    /// memory, because the others may still need its vote, and not once it is gone.
    pub(crate) fn comes_back(&self, host: Host) -> bool {
        let seat = self.seat_of(host);
        let Some(under_way) = self.moves.under_way.get(&seat) else {
            return host == self.place_of(seat);
        };
        let is_needed =
            || self.leader().is_none() || self.other_holder(seat, under_way.to).is_some();
        host == under_way.to || self.keeps_memory() && is_needed()
    }

    /// Starts a replica at the other machine of the node, and has an operator replace the present one by it. False if
    /// that cannot be now.
    pub(crate) fn begin_to_move(&mut self, seat: Seat) -> bool {
        let from = self.place_of(seat);
        let other = match from == seat {
            true => self.spare_of(seat),
            false => Some(seat),
        };
        let busy = self.is_moving(seat)
            || self.is_leaving(seat)
            || self.is_stopping(from)
            || self.is_copied(seat);
        let node = self.world.program(from).and_then(Member::replica);
        let voter = node.map(Node::replica).filter(|replica| {
            let own = replica.incarnation();
            let [voters, _] = replica.voter_sides();
            replica.halted().is_none() && voters.contains(&own)
        });
        let (Some(to), Some(voter), false) = (other, voter, busy) else {
            return false;
        };
        let (old, asked_at) = (voter.incarnation(), self.world.now());
        let under_way = Move {
            from,
            to,
            old,
            asked_at,
        };
        self.moves.under_way.insert(seat, under_way);
        self.empty_disk(to);
        self.start_replica(to, false);
        self.ask_to_move(seat, to, old);
        true
    }

    /// What was on the machine before is not there any more.
    pub(super) fn empty_disk(&mut self, host: Host) {
        if let Some(disk) = self.disks.get_mut(&host) {
            *disk = SimDisk::new(self.moves.prng.fork());
        }
    }

    fn ask_to_move(&mut self, seat: Seat, to: Host, old: Incarnation) {
        self.run_admin_about(seat, AdminCommand::Replace, old, Some(to.address()));
    }

    /// Ends the moves that are done, and has operators ask again for those that were refused.
    pub(crate) fn attend_moves(&mut self) {
        let seats: Vec<Seat> = self.moves.under_way.keys().copied().collect();
        for seat in seats {
            self.attend_move(seat);
        }
    }

    fn attend_move(&mut self, seat: Seat) {
        let now = self.world.now();
        let Some(under_way) = self.moves.under_way.get(&seat) else {
            return;
        };
        let Move {
            from,
            to,
            old,
            asked_at,
        } = *under_way;
        if self.holds_seat(seat, to) && !self.is_member(old) {
            self.moves.under_way.remove(&seat);
            self.kill(from);
            self.empty_disk(from);
            match to == seat {
                true => self.moves.away.remove(&seat),
                false => self.moves.away.insert(seat),
            };
            let note = || format!("node {} has moved to {to}", node_id_of(seat).0);
            return self.world.trace.note(now, note);
        }
        if self.was_removed(to) {
            // An earlier incarnation at this place was in the way of this one, or the move was given up.
            self.kill(to);
            self.empty_disk(to);
            self.start_replica(to, false);
        }
        if self.operator_is_idle(seat) && now >= asked_at + ASK_AGAIN {
            // The old one may have lost its memory meanwhile, and be another member now.
            let old = match self.is_member(old) {
                true => old,
                false => self.other_holder(seat, to).unwrap_or(old),
            };
            if let Some(under_way) = self.moves.under_way.get_mut(&seat) {
                (under_way.asked_at, under_way.old) = (now, old);
            }
            self.ask_to_move(seat, to, old);
        }
    }

    /// The machine of a node gets another address: its replica ends, and its disk is at the node's other machine from then
    /// on. Returns that, or nothing if that cannot be now.
    pub(super) fn change_machine(&mut self, seat: Seat) -> Option<Host> {
        let from = self.place_of(seat);
        let to = match from == seat {
            true => self.spare_of(seat)?,
            false => seat,
        };
        let busy = self.is_moving(seat) || self.is_leaving(seat) || self.is_copied(seat);
        if busy || self.world.program(from).is_none() {
            return None;
        }
        self.kill_replica(from, false);
        self.empty_disk(to);
        let emptied = self.disks.remove(&to)?;
        let kept = self.disks.insert(from, emptied)?;
        // What was wrong with the old machine is not wrong with the new one.
        kept.device().recover();
        self.disks.insert(to, kept);
        match to == seat {
            true => self.moves.away.remove(&seat),
            false => self.moves.away.insert(seat),
        };
        Some(to)
    }

    /// Nodes that have no voter, or one that is not the process which runs there. Once nothing goes wrong any more,
    /// the group must accept each process that has lost its memory, whatever has happened to the incarnations and
    /// leaders before it.
    pub(crate) fn nodes_without_vote(&self) -> Vec<NodeId> {
        let votes = |seat: &Seat| self.holds_seat(*seat, self.place_of(*seat));
        let seats = self.replica_hosts().filter(|seat| !votes(seat));
        seats.map(node_id_of).collect()
    }

    /// The members that the leader knows; none without a leader.
    fn leaders_members(&self) -> Vec<trine_protocol::message::Member> {
        let leader = self
            .leader()
            .and_then(|(leader, _)| self.world.program(leader)?.replica());
        leader.map_or_else(Vec::new, |leader| leader.replica().discovery().members.0)
    }

    /// Whether any replica has a joint configuration.
    pub(crate) fn is_joint(&self) -> bool {
        let joint = |view: &View| view.sides.iter().all(|side| !side.is_empty());
        self.views().iter().any(joint)
    }

    /// Whether no operator gives a command about a node at the moment.
    fn operator_is_idle(&self, seat: Seat) -> bool {
        self.world.program(self.operator_of(seat)).is_none()
    }

    /// Whether no member sees a voter with the node id of `host`.
    pub(crate) fn is_no_voter(&self, host: Host) -> bool {
        let node_id = node_id_of(self.seat_of(host));
        let votes = |view: &View| {
            let mut members = view.discovery.members.0.iter();
            view.host != host
                && members
                    .any(|member| member.node_id == node_id && member.role == MemberRole::Voter)
        };
        !self.views().iter().any(votes)
    }

    /// What a replica that starts at a machine is told about where the others are.
    pub(super) fn peers_of(&self, host: Host) -> Vec<(NodeId, SocketAddr)> {
        let own_seat = self.seat_of(host);
        let place_of = |seat: Seat| match seat == own_seat {
            true => host,
            false => self.place_of(seat),
        };
        let seats = self.replica_hosts();
        seats
            .map(|seat| (node_id_of(seat), place_of(seat).address()))
            .collect()
    }

    /// Whether the process at a machine is the voter with the node id, for the leader, and the only member with it.
    fn holds_seat(&self, seat: Seat, host: Host) -> bool {
        let node = self.world.program(host).and_then(Member::replica);
        let running = node.map(Node::replica).filter(|r| r.halted().is_none());
        let incarnation = running.map(|replica| replica.incarnation());
        let members = self.leaders_members();
        let mut at_node = members.iter().filter(|m| m.node_id == node_id_of(seat));
        match (at_node.next(), at_node.next()) {
            (Some(only), None) => {
                only.role == MemberRole::Voter && Some(only.incarnation) == incarnation
            }
            _ => false,
        }
    }

    /// A voter with the node id that is not the process at this machine, for the leader; or a learner, if no such voter is.
    fn other_holder(&self, seat: Seat, host: Host) -> Option<Incarnation> {
        let node = self.world.program(host).and_then(Member::replica);
        let present = node.map(|node| node.replica().incarnation());
        let members = self.leaders_members();
        let others = members.iter().filter(|member| {
            member.node_id == node_id_of(seat) && Some(member.incarnation) != present
        });
        let holder = others.max_by_key(|member| member.role == MemberRole::Voter);
        holder.map(|member| member.incarnation)
    }

    fn is_member(&self, incarnation: Incarnation) -> bool {
        let members = self.leaders_members();
        members.iter().any(|m| m.incarnation == incarnation)
    }

    fn was_removed(&self, host: Host) -> bool {
        let node = self.world.program(host).and_then(Member::replica);
        node.is_some_and(|node| matches!(node.replica().halted(), Some(Halt::Removed { .. })))
    }
}
