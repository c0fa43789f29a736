//! Notices of a leader's death: the members are told, and need not wait for an election timeout.
//!
//! A leader gives each voter the secret of its run. When its process has ended, another process on its machine tells
//! the secret to the other voters, in a notice. A follower that hears it campaigns at once, as if the leader had
//! transferred leadership to it. Voters need not keep the silence that they have promised to a leader that is gone.
//!
//! This is safe although a leader may answer reads under a lease:
//! - The secret is told only when the thread that runs the replica has ended. No other thread of that process answers
//!   clients out of the replica's state or on its lease. A front that still forwards an answer has it from before.
//! - A secret is one of a replica and a term. The notice counts only while that replica is followed in that term. A term
//!   has one leader, so the one that has ended is the one whose promise is broken. Another run of the same replica has
//!   another secret, and leads in later terms only.
//! - A notice that comes late, or again, finds a later term, and changes nothing. So an election that fails is not begun
//!   again for the same death: another replica may lead by then.
//!
//! In a group without a key a stranger can learn each leader's secret and tell it while that leader runs. So each voter
//! campaigns for notices at most once in two election timeouts: a stranger costs the group some of its time, and not all.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use raft::eraftpb::{Message, MessageType};
use trine_canary as canary;
use trine_protocol::message::{Incarnation, LeaderSecret, ReplyToken, RunSecret, kind};
use trine_transport::time::Instant;

use super::Group;
use super::consensus::Consensus;
use super::local::Local;
use crate::outbox::{Outbox, PeerRequest, Purpose};
use crate::output::Class;
use crate::places::Places;
use crate::state_machine::StateMachine;

/// A replica that has campaigned for a notice campaigns for no other one during so many election timeouts.
const PAUSE_ELECTION_TIMEOUTS: u64 = 2;

/// The secrets of runs, as one member knows them.
#[derive(Default)]
pub(super) struct Deaths {
    /// The secret of this run; none if no process would tell it.
    own: Option<RunSecret>,
    /// The voters that have it, or are being told it, in the term that this replica leads.
    told: BTreeSet<Incarnation>,
    /// The secrets of leaders, the latest first. The one before is kept to know its notice, when that comes late.
    of_leaders: [Option<LeaderSecret>; 2],
    /// The leader, and its term, for whose end this replica has campaigned last.
    ended: Option<(Incarnation, u64)>,
    /// When it did.
    campaigned_at: Option<Instant>,
}

impl Deaths {
    /// Leadership was won or lost.
    pub(super) fn on_role_change(&mut self) {
        self.told.clear();
    }

    /// A leader's work at its election and at each tick: tells the secret to the voters that do not have it.
    pub(super) fn tell(
        &mut self,
        local: &Local,
        state: Option<&StateMachine>,
        consensus: &Consensus,
        out: &mut Outbox,
    ) {
        let (Some(secret), Some(state)) = (self.own, state) else {
            return;
        };
        let term = consensus.raft().term();
        for member in state.members().voters_but(local.own.incarnation) {
            let to = member.incarnation;
            if self.told.contains(&to) {
                continue;
            }
            let peer_request = PeerRequest {
                to: member.address,
                expect: Some(to),
                kind: kind::LEADER_SECRET,
                class: Class::Raft,
                purpose: Purpose::Secret { to, term },
                timeout: local.election_timeout(),
                answer_bytes_max: 1,
            };
            let message = LeaderSecret {
                header: local.header_to(to),
                term,
                secret,
            };
            if out.send(peer_request, &message) {
                self.told.insert(to);
            }
        }
    }

    /// A voter does not have it: it has not answered, or its process may have ended. It is told again.
    pub(super) fn forget(&mut self, voter: Incarnation) {
        self.told.remove(&voter);
    }

    /// A leader of this term says so, or one that will be followed in it.
    fn note(&mut self, said: LeaderSecret) {
        let [latest, _] = &mut self.of_leaders;
        if latest
            .as_ref()
            .is_some_and(|latest| latest.term == said.term)
        {
            *latest = Some(said);
        } else {
            self.of_leaders = [Some(said), latest.take()];
        }
    }

    /// Whether the secret of the leader that is followed is known.
    pub(super) fn is_awaited(&self, consensus: &Consensus) -> bool {
        let mut known = self.of_leaders.iter().flatten();
        known.any(|said| is_followed(said, consensus))
    }

    fn judge(&self, secret: &RunSecret, consensus: &Consensus) -> Notice {
        if canary::planted("death notice of any run") {
            let raft = consensus.raft();
            return Notice::OfLeader(Incarnation(raft.leader()), raft.term());
        }
        let said = self.of_leaders.iter().flatten();
        let mut known = said.filter(|said| said.secret == *secret).peekable();
        if known.peek().is_none() {
            return Notice::Unknown;
        }
        match known.find(|said| is_followed(said, consensus)) {
            Some(said) => Notice::OfLeader(said.header.from, said.term),
            None => Notice::Late,
        }
    }
}

/// The meaning of a notice for a replica.
enum Notice {
    /// The leader that it follows, in this term, has ended.
    OfLeader(Incarnation, u64),
    /// It follows that run no more.
    Late,
    /// No leader that it remembers had this secret.
    Unknown,
}

fn is_followed(of_leader: &LeaderSecret, consensus: &Consensus) -> bool {
    let raft = consensus.raft();
    raft.leader() == of_leader.header.from.0 && raft.term() == of_leader.term
}

impl Group {
    /// From now on the voters learn the secret of this run from a leader.
    pub(crate) fn lend_secret(&mut self, secret: Option<RunSecret>) {
        self.deaths.own = secret;
    }

    /// A leader tells the secret of its run.
    pub(crate) fn on_leader_secret(
        &mut self,
        now: Instant,
        token: ReplyToken,
        said: &LeaderSecret,
        out: &mut Outbox,
    ) {
        if !self.concerns(&said.header, out) {
            return out.reply_unreadable(token);
        }
        let from = said.header.from;
        self.hear(now, from, said.header.state_version);
        let members = self.state.as_ref().map(StateMachine::members);
        let is_member = members.is_some_and(|members| members.get(from).is_some());
        if !is_member || said.term < self.consensus.raft().term() {
            out.counters.messages_refused += 1;
            return out.reply_unreadable(token);
        }
        // Its first append may come behind. Until then, and if it does not lead that term, the secret is of no use.
        self.deaths.note(*said);
        out.reply_empty(token);
    }

    /// For checkers: the leader, and its term, for whose end this replica has campaigned last.
    pub(crate) fn last_death(&self) -> Option<(Incarnation, u64)> {
        self.deaths.ended
    }

    /// The end of the request that told a voter the secret.
    pub(crate) fn on_secret_answer(&mut self, to: Incarnation, term: u64, answer: Option<&[u8]>) {
        let raft = self.consensus.raft();
        // An answer of an earlier term says nothing about this one. An earlier release answers as one that has the secret.
        if raft.is_leader() && raft.term() == term && answer != Some(&[]) {
            self.deaths.forget(to);
        }
    }

    /// The other voters, those first that could take over at once. None unless this replica leads.
    pub(crate) fn successors(&self, now: Instant, places: &Places) -> Vec<SocketAddr> {
        let (Some(state), true) = (&self.state, self.consensus.raft().is_leader()) else {
            return Vec::new();
        };
        let (members, raft) = (state.members(), self.consensus.raft());
        let members = self.membership.successors(now, &self.local, members, raft);
        members
            .into_iter()
            .map(|member| places.of(member))
            .collect()
    }

    /// A notice says that the run with this secret has ended.
    pub(crate) fn on_death_notice(&mut self, now: Instant, secret: &RunSecret, out: &mut Outbox) {
        if self.life.is_halted() {
            return;
        }
        let (leader, term) = match self.deaths.judge(secret, &self.consensus) {
            Notice::OfLeader(leader, term) => (leader, term),
            Notice::Late => return,
            Notice::Unknown => {
                out.counters.death_notices_unknown += 1;
                return;
            }
        };
        let pause = self
            .local
            .election_timeout()
            .saturating_mul(PAUSE_ELECTION_TIMEOUTS);
        let last = self.deaths.campaigned_at;
        if last.is_some_and(|last| now.saturating_since(last) < pause) {
            out.counters.death_notices_early += 1;
            return;
        }
        let mut campaign = Message {
            from: leader.0,
            to: self.local.own.incarnation.0,
            term,
            ..Message::default()
        };
        campaign.set_msg_type(MessageType::MsgTimeoutNow);
        self.step(now, leader, campaign, None, out);
        if self.consensus.raft().term() > term {
            self.deaths.ended = Some((leader, term));
            self.deaths.campaigned_at = Some(now);
            out.counters.leader_deaths += 1;
        }
    }
}
