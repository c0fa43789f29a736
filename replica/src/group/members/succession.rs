//! Which voter should lead next, when a leader stops, loses its vote, or is to name its successors.

use trine_canary as canary;
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

    /// A leader whose disk hangs hands over to a live voter that has everything committed. Returns whether there is one.
    pub(in crate::group) fn hand_over_committed(&self, cx: &mut Cx<'_>) -> bool {
        if !cx.raft().is_leader() || cx.raft().is_transferring() {
            return false;
        }
        let committed = cx.raft().committed();
        // Asked of each before the best is chosen: in a joint configuration a voter that stays is preferred, and may lack
        // some of it.
        let has_all = |member: &Member| matched(cx, member).is_some_and(|index| index >= committed);
        let mut successor = self.best_of(cx, has_all);
        if canary::planted("a successor that lacks what is committed") {
            successor = self.worst_successor(cx);
        }
        if let Some(successor) = successor {
            cx.consensus.transfer_leadership(successor);
        }
        successor.is_some()
    }

    /// The voter with the shortest log, alive or not.
    fn worst_successor(&self, cx: &Cx<'_>) -> Option<Incarnation> {
        let others = cx.members()?.voters_but(cx.local.own.incarnation);
        let shortest = others.min_by_key(|member| matched(cx, member));
        shortest.map(|member| member.incarnation)
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
        self.best_of(cx, |_| true)
    }

    /// The same among the voters that `may` chooses.
    fn best_of(&self, cx: &Cx<'_>, may: impl Fn(&Member) -> bool) -> Option<Incarnation> {
        let others = cx.members()?.voters_but(cx.local.own.incarnation);
        let is_candidate =
            |member: &&Member| self.is_alive(member.incarnation, cx.now, cx.local) && may(member);
        let candidates = others.filter(is_candidate);
        let staying = cx.raft().conf_state().voters;
        let rank = |member: &&Member| {
            let stays = staying.contains(&member.incarnation.0);
            (stays, matched(cx, member))
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

/// How far the log of a member is known to agree with this leader's.
fn matched(cx: &Cx<'_>, member: &Member) -> Option<u64> {
    let progress = cx.raft().progress(member.incarnation.0);
    progress.map(|progress| progress.matched)
}
