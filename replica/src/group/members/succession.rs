//! Which voter should lead next, when a leader stops, loses its vote, or is to name its successors.

use trine_protocol::message::{Incarnation, Member};
use trine_transport::time::Instant;

use super::Membership;
use crate::group::cx::Cx;
use crate::group::local::Local;
use crate::log::MemoryLog;
use crate::membership::MemberTable;
use crate::raft_group::RaftGroup;

/// A voter that lacks no more entries than this may have all of them by now.
const SUCCESSION_LAG_MAX: u64 = 64;

impl Membership {
    /// A leader that stops asks the member with the longest log to take over.
    pub(in crate::group) fn hand_over(&self, cx: &mut Cx<'_>) {
        if !cx.raft().is_leader() || cx.raft().is_transferring() {
            return;
        }
        if let Some(successor) = self.best_successor(cx) {
            cx.consensus.transfer_leadership(successor);
        }
    }

    /// A leader that is about to lose its vote hands over to a voter that stays. While none is close it leads on: the
    /// group can serve in the joint configuration, and could not during a transfer that fails.
    pub(super) fn hand_over_to_staying(&self, cx: &mut Cx<'_>) {
        if cx.raft().is_transferring() {
            return;
        }
        let is_close = |successor: &Incarnation| {
            let (now, local) = (cx.now, cx.local);
            self.is_close(*successor, SUCCESSION_LAG_MAX, now, local, cx.raft())
        };
        let staying = cx.raft().conf_state().voters;
        let successor = self.best_successor(cx);
        if let Some(successor) = successor.filter(is_close)
            && staying.contains(&successor.0)
        {
            cx.consensus.transfer_leadership(successor);
        }
    }

    /// The voter with the longest log among those that are alive. Those that are about to lose their vote come last.
    pub(super) fn best_successor(&self, cx: &Cx<'_>) -> Option<Incarnation> {
        let others = cx.members()?.voters_but(cx.local.own.incarnation);
        let candidates =
            others.filter(|member| self.is_alive(member.incarnation, cx.now, cx.local));
        let staying = cx.raft().conf_state().voters;
        let rank = |member: &&Member| {
            let progress = cx.raft().progress(member.incarnation.0);
            let matched = progress.map(|progress| progress.matched);
            (staying.contains(&member.incarnation.0), matched)
        };
        candidates.max_by_key(rank).map(|member| member.incarnation)
    }

    /// The other voters, those first that could take over from this leader at once: they are alive, and have nearly all of
    /// the log.
    pub(in crate::group) fn successors<'a>(
        &self,
        now: Instant,
        local: &Local,
        members: &'a MemberTable,
        raft: &RaftGroup<MemoryLog>,
    ) -> Vec<&'a Member> {
        let is_ready = |member: &&Member| {
            self.is_close(member.incarnation, SUCCESSION_LAG_MAX, now, local, raft)
        };
        let mut others: Vec<_> = members.voters_but(local.own.incarnation).collect();
        others.sort_by_key(|member| !is_ready(member));
        others
    }
}
