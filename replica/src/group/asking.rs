//! What a member that starts from files asks the others first: how much it has promised to each of them.
//!
//! A machine may have been set back, and its disk with it. Nothing in the files tells: they are whole, and older than what
//! this member has said. Those to whom it has said it know. Until each of them has answered, for one election timeout at
//! most, messages of members are dropped here. A member gives no vote and does not campaign for so long after a start
//! anyway, and a leader sends again what was dropped, so nothing is held back for later. So when an answer comes, this
//! member is where its files are.

use trine_protocol::message::{Incarnation, Member, PromisedPosition};
use trine_transport::time::{Duration, Instant};

use super::Group;
use super::local::election_timeout;
use crate::config::ReplicaConfig;
use crate::halt::Halt;
use crate::outbox::Outbox;

/// The questions of one start.
#[derive(Debug)]
pub(super) struct Asking {
    until: Instant,
    /// Who may not be asked again before then.
    again_at: Instant,
    pause: Duration,
    answered: Vec<Incarnation>,
    under_way: Vec<Incarnation>,
}

impl Asking {
    /// From now on, for the least election timeout of these settings.
    pub(super) fn new(now: Instant, config: &ReplicaConfig) -> Self {
        Self {
            until: now + election_timeout(config),
            again_at: now,
            pause: config.tick,
            answered: Vec::new(),
            under_way: Vec::new(),
        }
    }

    /// When there is something to do: a question to repeat, or the end of the time.
    pub(super) fn next_timeout(&self) -> Instant {
        self.again_at.min(self.until)
    }

    /// Whom to ask now; nothing once all have answered or the time is over.
    fn due(&mut self, now: Instant, others: &[Incarnation]) -> Option<Vec<Incarnation>> {
        let is_over = now >= self.until || others.iter().all(|of| self.answered.contains(of));
        if is_over {
            return None;
        }
        if now < self.again_at {
            return Some(Vec::new());
        }
        self.again_at = now + self.pause;
        let open = |of: &&Incarnation| !self.answered.contains(of) && !self.under_way.contains(of);
        let due: Vec<Incarnation> = others.iter().filter(open).copied().collect();
        self.under_way.extend(&due);
        Some(due)
    }

    fn on_end(&mut self, of: Incarnation, is_answer: bool) {
        self.under_way.retain(|asked| *asked != of);
        if is_answer && !self.answered.contains(&of) {
            self.answered.push(of);
        }
    }
}

impl Group {
    /// The members that are to be asked now what this one has promised to them, after a start from files.
    pub(crate) fn promises_to_ask_for(&mut self, now: Instant) -> Vec<Member> {
        if self.asking.is_none() {
            return Vec::new();
        }
        let own = self.local.own.incarnation;
        let members = self.members().filter(|member| member.incarnation != own);
        let others: Vec<Member> = members.copied().collect();
        let names: Vec<Incarnation> = others.iter().map(|other| other.incarnation).collect();
        let is_halted = self.life.is_halted();
        let due = self.asking.as_mut().filter(|_| !is_halted);
        let Some(due) = due.and_then(|asking| asking.due(now, &names)) else {
            self.asking = None;
            return Vec::new();
        };
        let is_due = |other: &Member| due.contains(&other.incarnation);
        others.into_iter().filter(is_due).collect()
    }

    /// The question to a member has ended without an answer of it.
    pub(crate) fn on_no_promise(&mut self, of: Incarnation) {
        if let Some(asking) = &mut self.asking {
            asking.on_end(of, false);
        }
    }

    /// A member has said what it remembers of this one. In disk mode less than that must not be here, whenever it says so:
    /// what is promised is durable, and what is here is no less.
    pub(crate) fn on_promise(
        &mut self,
        of: Incarnation,
        remembered: Option<PromisedPosition>,
        out: &mut Outbox,
    ) {
        let mut members = self.members();
        let Some(member) = members.find(|member| member.incarnation == of).copied() else {
            return;
        };
        drop(members);
        if let Some(asking) = &mut self.asking {
            asking.on_end(of, true);
        }
        let raft = self.consensus.raft();
        let own = PromisedPosition {
            term: raft.term(),
            index: raft.last_index(),
        };
        let is_own = of == self.local.own.incarnation;
        let Some(remembered) = remembered.filter(|remembered| *remembered > own && !is_own) else {
            return;
        };
        if self.disk.is_some() {
            let why = Halt::OlderCopy {
                node_id: member.node_id,
                address: out.places.of(&member),
                remembered: (remembered.term, remembered.index),
                own: (own.term, own.index),
            };
            self.halt_and_quarantine(why, out);
        }
    }

    /// What a member has promised to this one, as far as this one has heard it since its start.
    pub(crate) fn promised_by(&self, member: Incarnation) -> Option<PromisedPosition> {
        self.promised.by(member)
    }
}
