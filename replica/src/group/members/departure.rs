//! The ends of a membership: this replica was removed, or the group that it was told of never began.
//!
//! A member that is removed may never hear of it: members send nothing to a replica that is not a member. So one that
//! has heard of no leader for long asks the members that it knows whether it still is one. A first member that has never had
//! a leader has promised and acknowledged nothing. The replica that should have begun the group with it is gone, and it
//! is of more use as a new one.

use trine_protocol::message::{ClusterId, JoinRefusal, JoinReply, JoinRequest, Member, kind};
use trine_transport::time::{Duration, Instant};

use super::Membership;
use crate::config::{BEGIN_PATIENCE, MEMBERSHIP_QUESTION_EVERY};
use crate::group::consensus::Consensus;
use crate::group::cx::Cx;
use crate::join::REPLY_BYTES_MAX;
use crate::outbox::{PeerRequest, Purpose};
use crate::output::Class;
use crate::state_machine::genesis::FIRST_INDEX;

/// A member without a leader asks the others in turn whether it still is one.
#[derive(Default)]
pub(super) struct MembershipProbe {
    /// Which of the members is asked next.
    turn: usize,
    ask_at: Instant,
}

impl MembershipProbe {
    /// The member to ask now, if any.
    fn next<'m>(&mut self, now: Instant, others: &[&'m Member]) -> Option<&'m Member> {
        self.ask_at = now + MEMBERSHIP_QUESTION_EVERY;
        self.turn = self.turn.wrapping_add(1);
        others.get(self.turn % others.len().max(1)).copied()
    }
}

impl Membership {
    /// Asks another member, now and then while there is no leader.
    pub(in crate::group) fn probe_membership(&mut self, cx: &mut Cx<'_>) {
        let Some(members) = cx.members() else { return };
        let patience = 4 * cx.local.election_timeout().as_nanos();
        let long = |since: Instant| cx.now.saturating_since(since).as_nanos() > patience;
        let leaderless = cx.consensus.leaderless_since().is_some_and(long);
        // A learner never looks for another leader, so raft names its last one for ever.
        let unheard = !cx.raft().is_voter() && cx.raft().silence().as_nanos() > patience;
        if !(leaderless || unheard) || cx.now < self.probe.ask_at {
            return;
        }
        let (own, cluster) = (cx.local.own, cx.local.cluster);
        let is_other = |member: &&Member| member.incarnation != own.incarnation;
        let others: Vec<_> = members.all().iter().filter(is_other).collect();
        let Some(member) = self.probe.next(cx.now, &others) else {
            return;
        };
        let to = cx.out.places.of(member);
        let peer_request = PeerRequest {
            to,
            expect: None,
            kind: kind::JOIN,
            class: Class::Bulk,
            purpose: Purpose::Join(to),
            timeout: Duration::from_nanos(patience),
            answer_bytes_max: REPLY_BYTES_MAX,
        };
        let question = JoinRequest {
            node_id: own.node_id,
            incarnation: own.incarnation,
            address: own.address,
            cluster,
            state_version: cx.local.config.state_version,
            member: true,
        };
        cx.out.send(peer_request, &question);
    }

    /// Whether a first member has waited in vain for its group to begin.
    pub(in crate::group) fn never_began(&self, now: Instant, consensus: &Consensus) -> bool {
        let long = |since: Instant| now.saturating_since(since) > BEGIN_PATIENCE;
        self.origin.is_some()
            && consensus.raft().last_index() == FIRST_INDEX
            && consensus.leaderless_since().is_some_and(long)
    }
}

/// Whether the answer to a membership probe says that this replica was removed from `cluster`.
pub(in crate::group) fn says_removed(answer: &[u8], cluster: ClusterId) -> bool {
    let removed = |reply: JoinReply| matches!(reply, JoinReply::Refused { reason: JoinRefusal::Removed, cluster: theirs, .. } if theirs == cluster);
    JoinReply::decode(answer).is_ok_and(removed)
}
