//! What a member that starts from files asks the others first: how much it has promised to each of them.
//!
//! A machine may have been set back, and its disk with it. Nothing in the files tells: they are whole, and older than what
//! this member has said. Those to whom it has said it know. Until each voter has answered, messages of members are dropped
//! here. That lasts for one election timeout at most, from when the log is applied as far as it was known to be committed:
//! a voter may have come in by an entry of it, and applying it holds up the answers. A member gives no vote for so long after
//! a start anyway, its campaign gets no further than its first question, and a leader sends again what was dropped, so nothing
//! is held back for later. So when an answer comes, this member is where its files are. Learners are asked as well; nobody waits
//! for them.

use raft::eraftpb::{ConfChangeType, Entry, EntryType};
use trine_protocol::message::{Incarnation, Member, PromisedPosition};
use trine_transport::time::{Duration, Instant};

use super::Group;
use super::local::election_timeout;
use crate::config::ReplicaConfig;
use crate::disk::Write;
use crate::halt::Halt;
use crate::membership::{decode_change, named_member};
use crate::outbox::Outbox;

/// A question is asked anew after this part of the time that there is for all of them.
const LIMIT_DIVISOR: u64 = 3;

/// An entry of the log at the start that changes the members.
#[derive(Debug)]
struct MembersEntry {
    index: u64,
    named: Option<Member>,
    /// Who gets a vote by it.
    voters: Vec<Incarnation>,
}

impl MembersEntry {
    fn of(entry: &Entry) -> Option<Self> {
        let is_change = entry.get_entry_type() == EntryType::EntryConfChangeV2;
        let change = is_change.then(|| decode_change(&entry.data)).flatten()?;
        let votes = ConfChangeType::AddNode as i32;
        let voters = change.changes.iter();
        let voters = voters.filter(|single| single.change_type == votes);
        Some(Self {
            index: entry.index,
            named: named_member(&change),
            voters: voters.map(|single| Incarnation(single.node_id)).collect(),
        })
    }
}

/// The questions of one start.
#[derive(Debug)]
pub(super) struct Asking {
    /// There is so much time, once the log is applied.
    patience: Duration,
    until: Option<Instant>,
    /// The log up to here is known to be committed.
    commit: u64,
    is_applied: bool,
    /// Those that may not be applied yet, or never will be.
    changes: Vec<MembersEntry>,
    /// Who may not be asked again before then.
    again_at: Instant,
    pause: Duration,
    answered: Vec<Incarnation>,
    under_way: Vec<Incarnation>,
    /// Somebody remembers more than the files hold.
    is_short: bool,
}

impl Asking {
    /// From now on, for the least election timeout of these settings. `log` is what the files hold, and it is committed up
    /// to `commit`.
    pub(super) fn new(now: Instant, config: &ReplicaConfig, log: &[Entry], commit: u64) -> Self {
        Self {
            patience: election_timeout(config),
            until: None,
            commit,
            is_applied: false,
            changes: log.iter().filter_map(MembersEntry::of).collect(),
            again_at: now,
            pause: config.tick,
            answered: Vec::new(),
            under_way: Vec::new(),
            is_short: false,
        }
    }

    /// When there is something to do: a question to repeat, or the end of the time.
    pub(super) fn next_timeout(&self) -> Instant {
        let until = self.until.unwrap_or(self.again_at);
        self.again_at.min(until)
    }

    /// The log is applied up to `applied`; there may be no state to apply it to.
    fn on_applied(&mut self, now: Instant, applied: u64, has_state: bool) {
        self.changes.retain(|change| change.index > applied);
        if self.is_applied && self.until.is_none() {
            self.until = Some(now + self.patience);
        }
        // The time begins with the next turn: the clock was read before this one, which may have applied a long log.
        self.is_applied = applied >= self.commit || !has_state;
    }

    fn has_answers_of(&self, members: &[Incarnation]) -> bool {
        members.iter().all(|of| self.answered.contains(of))
    }

    fn is_over(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now >= until)
    }

    /// Whom to ask now.
    fn due(&mut self, now: Instant, others: &[Member]) -> Vec<Member> {
        if now < self.again_at {
            return Vec::new();
        }
        self.again_at = now + self.pause;
        let is_open = |of| !self.answered.contains(of) && !self.under_way.contains(of);
        let open = others.iter().filter(|other| is_open(&other.incarnation));
        let due: Vec<Member> = open.copied().collect();
        let is_under_way = |other: &Member| self.under_way.contains(&other.incarnation);
        assert!(
            !due.iter().any(is_under_way),
            "a member is asked one question at a time"
        );
        let asked = due.iter().map(|other| other.incarnation);
        self.under_way.extend(asked);
        due
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
    pub(crate) fn promises_to_ask_for(&mut self, now: Instant, out: &mut Outbox) -> Vec<Member> {
        let (applied, has_state) = (self.consensus.raft().applied(), self.has_state());
        let Some(asking) = &mut self.asking else {
            return Vec::new();
        };
        if self.life.is_halted() {
            self.asking = None;
            return Vec::new();
        }
        asking.on_applied(now, applied, has_state);
        let others = self.others_to_ask();
        let waited_for = match self.is_lifted {
            // The mark goes when nobody needs it any more, so everybody counts.
            true => others.iter().map(|other| other.incarnation).collect(),
            false => self.voters_to_wait_for(),
        };
        let Some(asking) = &mut self.asking else {
            return Vec::new();
        };
        if asking.is_over(now) {
            self.asking = None;
            return Vec::new();
        }
        let due = asking.due(now, &others);
        if has_state && asking.is_applied && asking.has_answers_of(&waited_for) {
            if self.is_lifted && !asking.is_short {
                self.is_lifted = false;
                out.write(Write::LiftEnded);
            }
            self.asking = None;
        }
        due
    }

    /// The other members, also those that the log brings in by entries that are not applied yet.
    fn others_to_ask(&self) -> Vec<Member> {
        let own = self.local.own.incarnation;
        let mut others: Vec<Member> = self.members().copied().collect();
        let changes = self.asking.iter().flat_map(|asking| &asking.changes);
        for named in changes.filter_map(|change| change.named) {
            let is_known = |other: &Member| other.incarnation == named.incarnation;
            if !others.iter().any(is_known) {
                others.push(named);
            }
        }
        others.retain(|other| other.incarnation != own);
        others
    }

    /// The other voters, of both sides of a joint change, and those that the log makes voters.
    fn voters_to_wait_for(&self) -> Vec<Incarnation> {
        let own = self.local.own.incarnation;
        let mut voters = self.consensus.voter_sides().concat();
        let changes = self.asking.iter().flat_map(|asking| &asking.changes);
        voters.extend(changes.flat_map(|change| &change.voters));
        voters.retain(|voter| *voter != own);
        voters
    }

    /// A question is given up after this, and asked anew: a shorter time than there is for all of them.
    pub(crate) fn promise_limit(&self) -> Duration {
        Duration::from_nanos(self.local.election_timeout().as_nanos() / LIMIT_DIVISOR)
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
        let others = self.others_to_ask();
        let Some(member) = others.into_iter().find(|other| other.incarnation == of) else {
            return;
        };
        if let Some(asking) = &mut self.asking {
            asking.on_end(of, true);
        }
        let raft = self.consensus.raft();
        let own = PromisedPosition {
            term: raft.term(),
            index: raft.last_index(),
        };
        let Some(remembered) = remembered.filter(|remembered| *remembered > own) else {
            return;
        };
        if let Some(asking) = &mut self.asking {
            asking.is_short = true;
        }
        // An operator wants to go on with these files.
        if self.disk.is_some() && !self.is_lifted {
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
