//! What a leader changes by itself: it ends joint configurations, makes learners voters, and removes members that have
//! left.

use raft::eraftpb::ConfChangeV2;
use trine_canary as canary;
use trine_protocol::message::{AdminCommand, Incarnation, Member, MemberRole};

use super::Membership;
use crate::group::cx::Cx;
use crate::membership::{MemberTable, leave_joint, promote, remove, replace};

impl Membership {
    /// Proposes the next change that is due, if any: at most one is under way at a time.
    pub(in crate::group) fn change_members(&mut self, cx: &mut Cx<'_>, stopping: bool) {
        if !cx.raft().leads_with_commit() || stopping {
            return;
        }
        if cx.raft().leads_until_replaced() {
            // Once the joint configuration has ended this replica has no vote, and raft would let it lead all the same.
            return self.hand_over_to_staying(cx);
        }
        if cx.raft().has_pending_conf() {
            return;
        }
        self.see_spares(cx);
        // Raft refuses while it is busy with something else; the next tick asks again.
        if cx.raft().is_joint() {
            let _ = cx.consensus.propose_conf_change(leave_joint());
        } else if let Some((learner, due)) = self.due_change(cx)
            && cx
                .consensus
                .propose_conf_change(due.change(learner))
                .is_ok()
        {
            match due {
                Due::Removal => self.pending.forget_of(learner.incarnation),
                Due::Promotion | Due::Succession(_) => self.pending.forget_all_of(learner.node_id),
            }
        }
    }

    fn due_change<'a>(&self, cx: &Cx<'a>) -> Option<(&'a Member, Due)> {
        let members = cx.members()?;
        learners(members).find_map(|learner| {
            let due = self.due_change_of(learner, members, cx)?;
            Some((learner, due))
        })
    }

    /// A learner that has left its place is removed. One that has caught up becomes the successor of the voter with its
    /// node id, or one voter more.
    ///
    /// The removal needs no condition of its own: this leader has applied the change that took the vote, or the member
    /// would still be a voter here.
    fn due_change_of(&self, learner: &Member, members: &MemberTable, cx: &Cx<'_>) -> Option<Due> {
        let (new, node_id) = (learner.incarnation, learner.node_id);
        if members.has_left(new) && !canary::planted("a learner takes its seat back") {
            return Some(Due::Removal);
        }
        let caught_up = || self.has_caught_up(new, cx);
        let wants_vote = || {
            let add = AdminCommand::Add { voter: true };
            self.pending.wants(cx.now, node_id, add)
        };
        match members.voter_at(node_id, new) {
            Some(old) if self.may_be_replaced(old, cx) && caught_up() => {
                Some(Due::Succession(old.incarnation))
            }
            Some(_) if self.spares.forgotten(cx.now) == Some(new) => Some(Due::Removal),
            Some(_) => None,
            // It was a voter until the first half of its removal.
            None if self.pending.wants_of(cx.now, learner, AdminCommand::Remove) => {
                Some(Due::Removal)
            }
            None if wants_vote() && caught_up() => Some(Due::Promotion),
            None => None,
        }
    }

    /// Whether another replica may take the place of this member: it is silent, or an admin client has asked for that.
    pub(super) fn may_be_replaced(&self, old: &Member, cx: &Cx<'_>) -> bool {
        let silent = cx.is_settled() && !self.is_alive(old.incarnation, cx.now, cx.local);
        let asked = match canary::planted("a learner takes its seat back") {
            true => self
                .pending
                .wants(cx.now, old.node_id, AdminCommand::Replace),
            false => self.pending.wants_of(cx.now, old, AdminCommand::Replace),
        };
        (silent || asked) && old.incarnation != cx.local.own.incarnation
    }

    /// Notes which learners have a live voter beside them.
    fn see_spares(&mut self, cx: &Cx<'_>) {
        let Some(members) = cx.members() else { return };
        let own = cx.local.own.incarnation;
        let is_spare = |learner: &&Member| {
            let voter = members.voter_at(learner.node_id, learner.incarnation);
            voter.is_some_and(|voter| {
                voter.incarnation == own || self.is_alive(voter.incarnation, cx.now, cx.local)
            })
        };
        let spares = learners(members).filter(is_spare);
        let spares: Vec<_> = spares.map(|m| (m.incarnation, m.node_id)).collect();
        self.spares.see(cx.now, &spares);
    }
}

/// What is due for a learner.
#[derive(Clone, Copy)]
enum Due {
    /// It becomes one voter more.
    Promotion,
    /// It takes the place of this voter.
    Succession(Incarnation),
    Removal,
}

impl Due {
    fn change(self, learner: &Member) -> ConfChangeV2 {
        match self {
            Self::Promotion => promote(learner.incarnation),
            Self::Succession(old) => replace(old, learner.incarnation),
            Self::Removal => remove(learner.incarnation),
        }
    }
}

fn learners(members: &MemberTable) -> impl Iterator<Item = &Member> {
    let is_learner = |member: &&Member| member.role == MemberRole::Learner;
    members.all().iter().filter(is_learner)
}
