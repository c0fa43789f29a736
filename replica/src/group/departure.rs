//! The ends of a membership: this replica was removed, or the group that it was told of never began.
//!
//! A member that is removed may never hear of it: nobody sends anything to somebody who is none. So one that has had no
//! leader for long asks the members that it knows whether it still is one. And a first member that nobody has ever led
//! has promised and acknowledged nothing: whoever should have begun with it is gone, and it is of more use as a new one.

use trine_protocol::message::{ClusterId, Encode, JoinRefusal, JoinReply, JoinRequest, kind};
use trine_transport::time::{Duration, Instant};

use super::Group;
use super::local::election_timeout;
use crate::config::{BEGIN_PATIENCE, MEMBERSHIP_QUESTION_EVERY};
use crate::halt::Halt;
use crate::outbox::{Letter, Outbox, Purpose};
use crate::output::Class;
use crate::state_machine::genesis::FIRST_INDEX;

/// What a member without a leader has asked.
#[derive(Default)]
pub(super) struct Doubt {
    /// Which of the members is asked next.
    turn: usize,
    ask_at: Instant,
}

impl Group {
    /// This replica is no member any more.
    pub(super) fn leave(&mut self) {
        let (place, cluster) = (self.local.own.place, self.local.cluster);
        self.halt(Halt::Removed { place, cluster });
    }

    /// The configuration has changed: this replica may have been a member until now.
    pub(super) fn notice_removal(&mut self, was_member: bool) {
        let members = self.state.as_ref().map(|state| state.members());
        let is_member = members.is_some_and(|m| m.get(self.local.own.incarnation).is_some());
        if was_member && !is_member {
            self.leave();
        }
    }

    /// Asks another member, now and then while nobody leads.
    pub(super) fn ask_whether_member(&mut self, now: Instant, out: &mut Outbox) {
        let Some(state) = &self.state else { return };
        let patience = 4 * election_timeout(&self.local.config).as_nanos();
        let long = |since: Instant| now.saturating_since(since).as_nanos() > patience;
        if !self.consensus.leaderless_since().is_some_and(long) || now < self.doubt.ask_at {
            return;
        }
        self.doubt.ask_at = now + MEMBERSHIP_QUESTION_EVERY;
        let own = self.local.own.incarnation;
        let others: Vec<_> = state
            .members()
            .all()
            .iter()
            .filter(|member| member.incarnation != own)
            .collect();
        self.doubt.turn = self.doubt.turn.wrapping_add(1);
        let Some(member) = others.get(self.doubt.turn % others.len().max(1)) else {
            return;
        };
        let cluster = self.local.cluster;
        let answer_bytes_max = JoinReply::Accepted {
            cluster,
            leader: own,
        }
        .encoded_len();
        let letter = Letter {
            to: member.address,
            expect: None,
            kind: kind::JOIN,
            class: Class::Bulk,
            purpose: Purpose::Join(member.address),
            timeout: Duration::from_nanos(patience),
            answer_bytes_max,
        };
        let question = JoinRequest {
            place: self.local.own.place,
            incarnation: own,
            address: self.local.own.address,
            cluster,
            state_version: self.local.config.state_version,
            member: true,
        };
        out.send(letter, &question);
    }

    /// Whoever was asked has answered.
    pub(crate) fn on_membership_answer(&mut self, answer: &[u8]) {
        let removed = |reply: JoinReply, cluster: ClusterId| matches!(reply, JoinReply::Refused { reason: JoinRefusal::Removed, cluster: theirs, .. } if theirs == cluster);
        let reply = JoinReply::decode(answer);
        if reply.is_ok_and(|reply| removed(reply, self.local.cluster)) && self.halted.is_none() {
            self.leave();
        }
    }

    /// Gives up a group that was begun here and that nobody has ever led.
    pub(super) fn doubt_beginning(&mut self, now: Instant) {
        let long = |since: Instant| now.saturating_since(since) > BEGIN_PATIENCE;
        // A disk remembers, and others may be slow to come back to it.
        if self.origin.is_some()
            && self.disk.is_none()
            && self.consensus.raft().last_index() == FIRST_INDEX
            && self.consensus.leaderless_since().is_some_and(long)
        {
            let cluster = self.local.cluster;
            self.halt(Halt::NeverBegan { cluster });
        }
    }
}
