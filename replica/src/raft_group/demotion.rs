//! A leader that loses its vote, which raft 0.7 lets lead on as a learner for ever.
//!
//! A leader never proposes to take its own vote away. But a voter that is being replaced can be elected while the joint
//! configuration is in force, because its vote still counts in the outgoing half. And a voter can be elected that has
//! its own demotion in its log, not committed yet.
//!
//! - The first one keeps the joint configuration until another voter has taken over. Raft would leave the configuration
//!   by itself as soon as the leader has applied an entry of its term; [`RaftGroup::applied_to`] prevents that. The
//!   leader's maintenance transfers leadership.
//! - The second one learns of it when it applies the change. It tells the best voter to campaign, and steps down.

use raft::eraftpb::ConfState;
use trine_canary as canary;

use super::RaftGroup;
use crate::log::Log;

/// A change of the configuration counts as pending up to this index: none can be proposed, and raft does not leave a
/// joint configuration. Raft forgets it together with the leadership.
const HELD: u64 = u64::MAX;

impl<L: Log> RaftGroup<L> {
    /// Whether this replica leads, and has a vote only until the joint configuration ends.
    pub(crate) fn leads_until_replaced(&self) -> bool {
        let id = self.node.raft.id;
        let voters = self.node.raft.prs().conf().voters();
        let stays = self.conf_state().voters.contains(&id);
        self.is_leader()
            && !stays
            && voters.contains(id)
            && !canary::planted("a demoted leader stays")
    }

    /// Before raft learns that entries are applied: it may leave a joint configuration then.
    pub(super) fn hold_joint_configuration(&mut self) {
        // Looked at first because it costs nothing: configurations are seldom joint.
        let leaves_by_itself = *self.node.raft.prs().conf().auto_leave();
        if leaves_by_itself && self.leads_until_replaced() {
            self.node.raft.pending_conf_index = HELD;
        }
    }

    /// A leader has applied the change that took its vote.
    pub(super) fn step_down_without_vote(&mut self, conf: &ConfState) {
        let demoted = self.is_leader() && !self.is_voter();
        if !demoted || canary::planted("a demoted leader stays") {
            return;
        }
        // Nobody waits for its election timeout if that voter has the whole log.
        if let Some(successor) = self.best_voter(conf) {
            self.node.transfer_leader(successor);
        }
        let term = self.term();
        self.node.raft.become_follower(term, raft::INVALID_ID);
    }

    /// The voter with the longest log, as far as a leader knows; those first that have answered lately.
    fn best_voter(&self, conf: &ConfState) -> Option<u64> {
        let rank = |id: &&u64| {
            let progress = self.node.raft.prs().get(**id);
            progress.map(|progress| (progress.recent_active, progress.matched))
        };
        conf.voters.iter().max_by_key(rank).copied()
    }
}

#[cfg(test)]
mod tests {
    use raft::eraftpb::MessageType;
    use trine_protocol::message::Incarnation;
    use trine_transport::time::Instant;

    use super::*;
    use crate::log::MemoryLog;
    use crate::membership::{demote, leave_joint, replace};
    use crate::raft_group::Proposal;
    use crate::raft_group::tests::{message, round_numbers};

    const END: Proposal = Proposal { index: 3, term: 2 };

    /// Replica 1, which leads 2 and has learner 3 in its log. All its entries are committed and applied.
    fn leader() -> RaftGroup<MemoryLog> {
        let now = Instant::ZERO;
        let log = MemoryLog::with_base(1, 1, vec![1, 2]);
        let mut group = RaftGroup::new(&round_numbers(), 1, log, 1, 1, now, now);
        group.campaign();
        for kind in [
            MessageType::MsgRequestPreVoteResponse,
            MessageType::MsgRequestVoteResponse,
        ] {
            while group.poll_work().is_some() {}
            group.step(now, 2, message(kind, 2, 2)).unwrap();
        }
        acknowledge(&mut group, &[2]);
        let committed = group.committed();
        group.applied_to(committed);
        assert!(group.leads_with_commit());
        group
    }

    /// The others have the whole log; what is committed by that is not applied yet.
    fn acknowledge(group: &mut RaftGroup<MemoryLog>, others: &[u64]) {
        while group.poll_work().is_some() {}
        for &other in others {
            let mut acknowledged = message(MessageType::MsgAppendResponse, other, group.term());
            acknowledged.index = group.last_index();
            group.step(Instant::ZERO, other, acknowledged).unwrap();
        }
        while group.poll_work().is_some() {}
    }

    /// A joint configuration in which 3 replaces `old`, and how many entries were proposed when it was applied.
    fn replacing(old: u64) -> (RaftGroup<MemoryLog>, u64) {
        let mut group = leader();
        let change = replace(Incarnation(old), Incarnation(3));
        group.propose_conf_change(change.clone()).unwrap();
        acknowledge(&mut group, &[2]);
        group.apply_conf_change(END, &change).unwrap();
        let before = group.last_index();
        let committed = group.committed();
        group.applied_to(committed);
        let proposed = group.last_index() - before;
        (group, proposed)
    }

    fn is_told_to_campaign(group: &mut RaftGroup<MemoryLog>, who: u64) -> bool {
        let mut told = false;
        while let Some(work) = group.poll_work() {
            told |= work
                .messages
                .iter()
                .any(|m| m.to == who && m.get_msg_type() == MessageType::MsgTimeoutNow);
        }
        told
    }

    /// The rest of the group would wait for its election timeout otherwise.
    #[test]
    fn a_leader_that_has_lost_its_vote_tells_a_voter_to_campaign_and_steps_down() {
        let mut group = leader();
        let conf = group
            .apply_conf_change(END, &demote(Incarnation(1)))
            .unwrap();
        assert_eq!((conf.voters, conf.learners), (vec![2], vec![1]));
        assert!(!group.is_leader() && !group.read_index(7));
        assert!(is_told_to_campaign(&mut group, 2));
    }

    /// Raft left the joint configuration as soon as the leader had applied an entry of its term, and led on as a learner.
    #[test]
    fn a_leader_that_is_being_replaced_keeps_the_joint_configuration() {
        let (mut group, proposed) = replacing(1);
        assert!(group.leads_until_replaced());
        assert_eq!(proposed, 0, "raft does not propose the end");
        assert!(group.has_pending_conf() && group.is_leader());
        assert!(group.propose_conf_change(leave_joint()).is_err());
        acknowledge(&mut group, &[2, 3]);
        group.transfer_leader(3);
        assert!(is_told_to_campaign(&mut group, 3));
    }

    #[test]
    fn a_leader_that_stays_leaves_the_joint_configuration() {
        let (group, proposed) = replacing(2);
        assert!(!group.leads_until_replaced());
        assert_eq!(proposed, 1, "raft proposes the end by itself");
    }
}
