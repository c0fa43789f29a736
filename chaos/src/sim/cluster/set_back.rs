//! A machine that is set back: its replica starts on an older copy of its own disk, and must not take part.
//!
//! That is promised as long as somebody remembers what the replica has promised, and can be asked. So it happens while a
//! leader runs on that the replica has followed, and nothing else goes wrong. The leader may have handed over meanwhile:
//! a leader of a later term does not count on what the copy lacks, and only the one before knows of it.

use super::{Cluster, Seat, node_id_of};
use crate::checker::Verdict;
use crate::sim::Host;
use crate::sim::disk::SimDisk;
use crate::sim::member::Member;
use std::collections::BTreeSet;
use trine_protocol::message::{AdminCommand, Incarnation, RunSecret};
use trine_replica::{Halt, Node, Replica};
use trine_transport::prng::Prng;
use trine_transport::time::{Duration, Instant};

/// An older copy has noticed by then that it is one: the longest election timeout, and the time to write that down.
const NOTICED_WITHIN: Duration = Duration::from_secs(2);

/// Copies of disks, and the replicas that were started on them.
pub(super) struct SetBacks {
    kept: Option<KeptCopy>,
    /// The replicas that were set back; others must not find that they were.
    were: BTreeSet<Incarnation>,
    judged: Option<JudgedStart>,
    /// The first one that took part, or found that it was set back although it was not.
    mistake: Option<String>,
    /// Apart from all others.
    prng: Prng,
}

/// One replica, and the one that remembers what it has promised.
#[derive(Clone, Copy)]
struct Witnessed {
    seat: Seat,
    host: Host,
    incarnation: Incarnation,
    leader: Host,
    /// A leader that is started again has forgotten.
    leader_run: RunSecret,
    term: u64,
}

/// The copy of a disk.
struct KeptCopy {
    pair: Witnessed,
    disk: SimDisk,
    /// An entry that the leader has heard of: the replica had applied it for a while when it died.
    heard_of: u64,
}

struct JudgedStart {
    pair: Witnessed,
    /// The copy lacks something that it has promised.
    until: Instant,
}

impl SetBacks {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            kept: None,
            were: BTreeSet::new(),
            judged: None,
            mistake: None,
            prng: Prng::new(seed ^ 0x05e7_bac4_05e7_bac4),
        }
    }
}

impl Cluster {
    /// Copies the disk of a node's replica, or of another one if that leads. False if that cannot be now.
    pub(crate) fn copy_to_set_back(&mut self, seat: Seat) -> Option<Seat> {
        let seats = self.config.replicas as u16;
        let pair = (self.pair_of(seat)).or_else(|| self.pair_of(Host((seat.0 + 1) % seats)))?;
        let disk = self.disks.get(&pair.host)?.copy(self.set_backs.prng.fork());
        self.set_backs.kept = Some(KeptCopy {
            pair,
            disk,
            heard_of: 0,
        });
        Some(pair.seat)
    }

    /// A follower of a calm group, and its leader.
    fn pair_of(&self, seat: Seat) -> Option<Witnessed> {
        let host = self.place_of(seat);
        let (leader, term) = self.leader()?;
        let busy = |seat: Seat| self.is_moving(seat) || self.is_leaving(seat);
        let is_copied = self.is_copy_running() || self.is_copied(seat);
        if host == leader || is_copied || self.replica_hosts().any(busy) || !self.is_prompt(host) {
            return None;
        }
        self.calm_leader()?;
        Some(Witnessed {
            seat,
            host,
            incarnation: self.replica_at(host)?.incarnation(),
            leader,
            leader_run: self.companions.run_at(leader)?,
            term,
        })
    }

    /// Whether a disk takes in the usual time what the replica has to promise. One that hangs keeps it from promising anything in
    /// a leader's term, although it has applied what came before.
    fn is_prompt(&self, host: Host) -> bool {
        self.device(host).is_some_and(|device| device.is_sound())
    }

    /// What the replica has applied by now its leader has heard of a moment later.
    pub(crate) fn note_heard_of(&mut self) {
        let applied = |kept: &KeptCopy| {
            let replica = self.replica_at(kept.pair.host);
            let replica = replica.filter(|_| self.is_prompt(kept.pair.host));
            Some(replica?.applied_state()?.0)
        };
        let applied = self.set_backs.kept.as_ref().and_then(applied);
        match (&mut self.set_backs.kept, applied) {
            (Some(kept), Some(applied)) => kept.heard_of = applied,
            _ => self.set_backs.kept = None,
        }
    }

    /// The machine of that replica dies, to be set back. False if the group cannot spare it, or is another one by now.
    pub(crate) fn die_to_be_set_back(&mut self, hands_over: bool) -> bool {
        let Some(pair) = self.set_backs.kept.as_ref().map(|kept| kept.pair) else {
            return false;
        };
        let is_same = self.leader() == Some((pair.leader, pair.term))
            && self.place_of(pair.seat) == pair.host
            && self.runs_on(pair)
            && self.is_prompt(pair.host)
            && self.replica_at(pair.host).map(Replica::incarnation) == Some(pair.incarnation);
        if !is_same || !self.survives_without(pair.host) {
            self.set_backs.kept = None;
            return false;
        }
        self.kill_replica(pair.host, false);
        let mut others = self.replica_hosts();
        let is_other = |seat: &Seat| ![pair.leader, pair.host].contains(&self.place_of(*seat));
        if let Some(heir) = others.find(is_other).filter(|_| hands_over) {
            self.run_admin(heir, AdminCommand::TransferLeadership);
        }
        true
    }

    /// Whether the leader that remembers runs since then, and can be asked.
    fn runs_on(&self, pair: Witnessed) -> bool {
        self.companions.run_at(pair.leader) == Some(pair.leader_run)
            && self
                .replica_at(pair.leader)
                .is_some_and(|r| r.halted().is_none())
            && !self.world.is_paused(pair.leader)
            && self.world.network.is_calm(self.world.now())
    }

    /// The replica starts on the copy of its disk. False if nobody would remember, so that it starts on its own.
    pub(crate) fn start_set_back(&mut self, seat: Seat) -> bool {
        let kept = self.set_backs.kept.take();
        let Some(KeptCopy {
            pair,
            disk,
            heard_of,
        }) = kept.filter(|kept| kept.pair.seat == seat)
        else {
            return false;
        };
        if self.world.program(pair.host).is_some() || !self.runs_on(pair) {
            return false;
        }
        self.disks.insert(pair.host, disk);
        self.set_backs.were.insert(pair.incarnation);
        if !self.start_replica(pair.host, false) {
            return true;
        }
        let is_it = |replica: &&Replica| replica.incarnation() == pair.incarnation;
        let Some(replica) = self.replica_at(pair.host).filter(is_it) else {
            return true;
        };
        let lacks = (replica.discovery().term, replica.log_end().1) < (pair.term, heard_of);
        let now = self.world.now();
        let note = || {
            let node = node_id_of(seat).0;
            format!("node {node} is set back, to less than entry {heard_of}: {lacks}")
        };
        self.world.trace.note(now, note);
        if lacks {
            let until = now + NOTICED_WITHIN;
            self.set_backs.judged = Some(JudgedStart { pair, until });
        }
        true
    }

    /// Whether a replica that was set back has not written down yet that it was: its process ends only then.
    pub(crate) fn is_writing_that_it_was_set_back(&self, host: Host) -> bool {
        let replica = self.replica_at(host);
        let was = replica.is_some_and(|r| self.set_backs.were.contains(&r.incarnation()));
        was && self
            .device(host)
            .is_some_and(|device| device.is_sound() && !device.has_durable("condemned"))
    }

    /// Replicas that find that they were set back are those that were.
    pub(super) fn attend_set_backs(&mut self) {
        for host in self.places() {
            let Some(replica) = self.replica_at(host) else {
                continue;
            };
            let was = self.set_backs.were.contains(&replica.incarnation());
            let why = replica.halted().filter(|why| {
                matches!(why, Halt::OlderCopy { .. } | Halt::RolledBack { .. }) && !was
            });
            let text =
                why.map(|why| format!("the disk of {host} lacks what it has promised: {why}"));
            if let Some(text) = text {
                self.set_backs.mistake.get_or_insert(text);
            }
        }
        let Some(JudgedStart { pair, until }) = &self.set_backs.judged else {
            return;
        };
        let (pair, is_due) = (*pair, self.world.now() >= *until);
        let program = self.world.program(pair.host).and_then(Member::replica);
        let takes_part = |replica: &Replica| {
            replica.incarnation() == pair.incarnation && replica.halted().is_none()
        };
        let takes_part = program.map(Node::replica).is_some_and(takes_part);
        if !takes_part || !self.runs_on(pair) {
            self.set_backs.judged = None;
        } else if is_due {
            self.set_backs.judged = None;
            let (node, leader) = (node_id_of(pair.seat).0, pair.leader);
            let text = format!(
                "node {node} takes part on an older copy of its disk, and {leader} remembers what it has promised"
            );
            self.set_backs.mistake.get_or_insert(text);
        }
    }

    /// The replica that was set back has noticed it, and no other replica took itself for one.
    pub(crate) fn set_back_verdict(&self) -> Verdict {
        let mistake = self.set_backs.mistake.as_ref();
        mistake.map_or(Verdict::Pass, |text| Verdict::violation(text.clone()))
    }
}
