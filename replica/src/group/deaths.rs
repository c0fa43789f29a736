//! What when the leader's process has ended? Its members are told, and need not wait for an election timeout.
//!
//! A leader gives each voter the secret of its run. When its process has ended, another process on its machine tells
//! the secret to everybody, in a notice. A follower that hears it campaigns at once, as if the leader had transferred
//! leadership to it: voters need not keep the silence that they have promised to a leader that is gone.
//!
//! This is safe although a leader may answer reads under a lease:
//! - The secret is told only when no thread of that process runs any more. It answers nobody.
//! - A follower takes the secret only from the leader that it follows, for the term that this one leads. The notice
//!   counts only in this term and against this leader. A term has one leader, so the one that has ended is the one
//!   whose promise is broken. Another run of the same replica has another secret, and leads in later terms only.
//! - A notice that comes late, or again, finds a later term, and changes nothing.

use std::collections::BTreeMap;

use raft::eraftpb::{Message, MessageType};
use trine_canary as canary;
use trine_protocol::message::{Incarnation, LeaderSecret, MemberRole, ReplyToken, RunSecret, kind};
use trine_transport::time::Instant;

use super::Group;
use super::consensus::Consensus;
use super::local::Local;
use crate::outbox::{Outbox, PeerRequest, Purpose};
use crate::output::Class;
use crate::state_machine::StateMachine;

/// The secrets of runs, as one member knows them.
#[derive(Default)]
pub(super) struct Deaths {
    /// The secret of this run; nothing if nobody would tell it.
    own: Option<RunSecret>,
    /// The voters that have it, and those that are being told it (false), in the term that this replica leads.
    told: BTreeMap<Incarnation, bool>,
    /// What the leader has said that was followed last.
    of_leader: Option<LeaderSecret>,
    /// The leader, and its term, for whose end this replica has campaigned last.
    ended: Option<(Incarnation, u64)>,
}

impl Deaths {
    /// Leadership was won or lost.
    pub(super) fn on_role_change(&mut self) {
        self.told.clear();
    }

    /// A leader's work of one tick: tells the secret to the voters that do not have it.
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
        let own = local.own.incarnation;
        for member in state.members().all() {
            let to = member.incarnation;
            if to == own || member.role != MemberRole::Voter || self.told.contains_key(&to) {
                continue;
            }
            let peer_request = PeerRequest {
                to: member.address,
                expect: Some(to),
                kind: kind::LEADER_SECRET,
                class: Class::Raft,
                purpose: Purpose::Secret { to },
                timeout: local.election_timeout(),
                answer_bytes_max: 1,
            };
            let message = LeaderSecret {
                header: local.header_to(to),
                term: consensus.raft().term(),
                secret,
            };
            if out.send(peer_request, &message) {
                self.told.insert(to, false);
            }
        }
    }

    /// A voter has answered; nothing if it has not. An earlier release answers as one that has the secret.
    fn on_answer(&mut self, to: Incarnation, answer: Option<&[u8]>) {
        match answer {
            Some([]) => self.told.insert(to, true),
            _ => self.told.remove(&to),
        };
    }

    /// The process of a voter may have ended, and with it what it was told.
    fn on_unreachable(&mut self, voter: Incarnation) {
        self.told.remove(&voter);
    }

    /// Whether the secret of the leader that is followed is known.
    pub(super) fn is_awaited(&self, consensus: &Consensus) -> bool {
        let of_leader = self.of_leader.as_ref();
        of_leader.is_some_and(|of_leader| is_followed(of_leader, consensus))
    }

    /// The leader that has ended and the term that it led, if this is its secret, and it is still followed.
    fn take_ended(&self, secret: &RunSecret, consensus: &Consensus) -> Option<(u64, u64)> {
        let raft = consensus.raft();
        if canary::planted("death notice of any run") {
            return Some((raft.leader(), raft.term()));
        }
        let of_leader = self.of_leader.as_ref()?;
        let is_its = is_followed(of_leader, consensus) && of_leader.secret.is(secret);
        is_its.then_some((of_leader.header.from.0, of_leader.term))
    }
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
        let raft = self.consensus.raft();
        if raft.leader() != from.0 || raft.term() != said.term || raft.is_leader() {
            // It may only be early. The leader repeats itself.
            return out.reply_unreadable(token);
        }
        self.deaths.of_leader = Some(*said);
        out.reply_empty(token);
    }

    /// For checkers: the leader, and its term, for whose end this replica has campaigned last.
    pub(crate) fn last_death(&self) -> Option<(Incarnation, u64)> {
        self.deaths.ended
    }

    /// The end of the request that told a voter the secret.
    pub(crate) fn on_secret_answer(&mut self, to: Incarnation, answer: Option<&[u8]>) {
        self.deaths.on_answer(to, answer);
    }

    /// The session to a voter has ended.
    pub(super) fn forget_told(&mut self, voter: Incarnation) {
        self.deaths.on_unreachable(voter);
    }

    /// Somebody says that the run with this secret has ended.
    pub(crate) fn on_death_notice(&mut self, now: Instant, secret: &RunSecret, out: &mut Outbox) {
        if self.life.is_halted() {
            return;
        }
        let Some((leader, term)) = self.deaths.take_ended(secret, &self.consensus) else {
            out.counters.death_notices_ignored += 1;
            return;
        };
        let mut campaign = Message {
            from: leader,
            to: self.local.own.incarnation.0,
            term,
            ..Message::default()
        };
        campaign.set_msg_type(MessageType::MsgTimeoutNow);
        self.step(now, Incarnation(leader), campaign, None, out);
        if self.consensus.raft().term() > term {
            self.deaths.ended = Some((Incarnation(leader), term));
            out.counters.leader_deaths += 1;
        }
    }
}
