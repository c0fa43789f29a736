//! Who is alive, who is taken in, and what does this member's leader change by itself?

mod admin;
mod audit;
mod departure;
mod join;
mod liveness;
mod pending;
mod unconfirmed;

use raft::eraftpb::ConfChangeV2;
use trine_protocol::message::{AdminCommand, Incarnation, Member, MemberRole, NodeId};
use trine_transport::time::Instant;

use self::audit::AdminTrail;
use self::departure::MembershipProbe;
pub(super) use self::departure::says_removed;
use self::liveness::PeerLiveness;
use self::pending::PendingCommands;
use self::unconfirmed::UnconfirmedAnswers;
use super::cx::Cx;
use super::local::Local;
use crate::bootstrap::Origin;
use crate::log::MemoryLog;
use crate::membership::{MemberTable, leave_joint, promote, replace};
use crate::outbox::Outbox;
use crate::raft_group::RaftGroup;
use crate::state_machine::StateMachine;
use crate::state_machine::entry::raise_version;

/// A learner that lacks no more entries than this is as good as a voter.
const PROMOTION_LAG_MAX: u64 = 256;
/// A voter that lacks no more entries than this may have all of them by now.
const SUCCESSION_LAG_MAX: u64 = 64;

/// A member's knowledge of the others beside the replicated table, and the promises that it has made about them.
pub(super) struct Membership {
    /// How the group began, if this replica was there: any member that knows it tells a first member that has missed
    /// it.
    origin: Option<Origin>,
    liveness: PeerLiveness,
    /// The state-machine version that this leader has proposed to switch to.
    raising: Option<u8>,
    probe: MembershipProbe,
    /// Admin commands that this leader cannot follow yet.
    pending: PendingCommands,
    /// Admin commands that are done, if this replica still leads.
    unconfirmed: UnconfirmedAnswers,
    audit: AdminTrail,
}

impl Membership {
    pub(super) fn new(origin: Option<Origin>) -> Self {
        Self {
            origin,
            liveness: PeerLiveness::default(),
            raising: None,
            probe: MembershipProbe::default(),
            pending: PendingCommands::default(),
            unconfirmed: UnconfirmedAnswers::default(),
            audit: AdminTrail::default(),
        }
    }

    /// How the group began, if this replica was there.
    pub(super) fn origin(&self) -> Option<&Origin> {
        self.origin.as_ref()
    }

    /// A member has spoken. Zero says nothing about the state-machine version that it understands.
    pub(super) fn hear(
        &mut self,
        now: Instant,
        from: Incarnation,
        version: u8,
        state: Option<&StateMachine>,
    ) {
        if state.is_some_and(|state| state.members().get(from).is_some()) {
            self.liveness.hear(now, from, version);
        }
    }

    /// The table has changed.
    pub(super) fn on_members_changed(&mut self, members: &MemberTable) {
        self.liveness.retain(members);
    }

    /// Leadership was lost. Admin clients repeat their commands to the next leader.
    pub(super) fn on_leadership_lost(&mut self) {
        self.pending.clear();
    }

    /// Leadership was won or lost.
    pub(super) fn on_role_change(&mut self) {
        self.raising = None;
    }

    /// Whether a member was heard from within two election timeouts.
    pub(super) fn is_alive(&self, member: Incarnation, now: Instant, local: &Local) -> bool {
        self.liveness.was_heard_since(member, lately(now, local))
    }

    /// For how long a member has been silent; nothing if it was never heard from.
    pub(super) fn silence_ns(&self, now: Instant, member: Incarnation) -> Option<u64> {
        self.liveness.silence_ns(now, member)
    }

    /// A member has answered an append; `end` is the end of its log if it rejected the append.
    pub(super) fn note_log_end(&mut self, member: Incarnation, end: Option<u64>) {
        self.liveness.note_log_end(member, end);
    }

    /// The end of a member's log, if the member has rejected the latest append that it answered.
    pub(super) fn log_end(&self, member: Incarnation) -> Option<u64> {
        self.liveness.log_end(member)
    }

    /// The newest state-machine version that a member understands; zero while it has not said so.
    pub(super) fn understands(&self, member: Incarnation, local: &Local) -> u8 {
        if member == local.own.incarnation {
            return local.config.state_version;
        }
        self.liveness.understands(member)
    }

    /// The version that a joining replica has to understand.
    fn required_version(&self, state: Option<&StateMachine>) -> u8 {
        let active = state.map(StateMachine::version);
        active.max(self.raising).unwrap_or_default()
    }

    /// Rolling upgrades: proposes the switch to the newest state-machine version that all members understand, if it is
    /// newer than the present one.
    ///
    /// Every message between members says which version its sender understands at most. The leader proposes the switch
    /// as an entry of its own once it has heard that of every member, learners included. It admits no replica
    /// afterwards that understands less. A member that meets a version beyond its own all the same stops, and says why.
    pub(super) fn raise_version(&mut self, cx: &mut Cx<'_>, stopping: bool) {
        let Some(state) = cx.state else { return };
        let members = state.members().all().iter();
        let common = members
            .map(|member| self.understands(member.incarnation, cx.local))
            .min();
        let required = self.required_version(cx.state);
        let Some(version) = common.filter(|&common| common > required) else {
            return;
        };
        // A replica that is being admitted at the moment is not in the list yet.
        let settled = !cx.raft().has_pending_conf() && !stopping;
        if !settled || !cx.raft().leads_with_commit() {
            return;
        }
        let entry = raise_version(cx.clock.stamp(cx.now), version);
        if cx.consensus.propose(entry).is_ok() {
            self.raising = Some(version);
        }
    }

    /// Proposes the next change that is due, if any: at most one is under way at a time.
    pub(super) fn change_members(&mut self, cx: &mut Cx<'_>, stopping: bool) {
        if cx.raft().has_pending_conf() || !cx.raft().leads_with_commit() || stopping {
            return;
        }
        // Raft refuses while it is busy with something else; the next tick asks again.
        if !cx.raft().conf_state().voters_outgoing.is_empty() {
            let _ = cx.consensus.propose_conf_change(leave_joint());
        } else if let Some((node_id, change)) = self.due_promotion(cx)
            && cx.consensus.propose_conf_change(change).is_ok()
        {
            self.pending.forget_all_of(node_id);
        }
    }

    /// The role of a learner that has caught up: the successor of the voter with its node id, or one voter more.
    fn due_promotion(&self, cx: &Cx<'_>) -> Option<(NodeId, ConfChangeV2)> {
        let members = cx.members()?;
        let is_learner = |member: &&Member| member.role == MemberRole::Learner;
        let learners = members.all().iter().filter(is_learner);
        let mut ready = learners.filter(|learner| self.has_caught_up(learner.incarnation, cx));
        ready.find_map(|learner| {
            let (new, node_id) = (learner.incarnation, learner.node_id);
            let add = AdminCommand::Add { voter: true };
            let change = match members.voter_at(node_id, new) {
                Some(old) if self.may_be_replaced(old, cx) => replace(old.incarnation, new),
                Some(_) => return None,
                None if self.pending.wants(cx.now, node_id, add) => promote(new),
                None => return None,
            };
            Some((node_id, change))
        })
    }

    fn may_be_replaced(&self, old: &Member, cx: &Cx<'_>) -> bool {
        let silent = cx.is_settled() && !self.is_alive(old.incarnation, cx.now, cx.local);
        let gone = silent
            || self
                .pending
                .wants(cx.now, old.node_id, AdminCommand::Replace);
        gone && old.incarnation != cx.local.own.incarnation
    }

    fn has_caught_up(&self, learner: Incarnation, cx: &Cx<'_>) -> bool {
        self.is_close(learner, PROMOTION_LAG_MAX, cx.now, cx.local, cx.raft())
    }

    /// Whether a member is alive and lacks no more entries than `lag_max`, as far as this leader knows.
    fn is_close(
        &self,
        member: Incarnation,
        lag_max: u64,
        now: Instant,
        local: &Local,
        raft: &RaftGroup<MemoryLog>,
    ) -> bool {
        let close = |matched: u64| matched + lag_max >= raft.last_index() && matched > 0;
        let progress = raft.progress(member.0);
        // Raft may be probing it: while nothing is written it stays at that after a snapshot.
        self.is_alive(member, now, local)
            && progress.is_some_and(|p| !p.in_snapshot && close(p.matched))
    }

    /// A leader that stops asks the member with the longest log to take over.
    pub(super) fn hand_over(&self, cx: &mut Cx<'_>) {
        if !cx.raft().is_leader() || cx.raft().is_transferring() {
            return;
        }
        if let Some(successor) = self.best_successor(cx) {
            cx.consensus.transfer_leadership(successor);
        }
    }

    /// The voter with the longest log among those that are alive.
    fn best_successor(&self, cx: &Cx<'_>) -> Option<Incarnation> {
        let others = cx.members()?.voters_but(cx.local.own.incarnation);
        let candidates =
            others.filter(|member| self.is_alive(member.incarnation, cx.now, cx.local));
        let matched = |member: &&Member| {
            let progress = cx.raft().progress(member.incarnation.0);
            progress.map(|progress| progress.matched)
        };
        candidates
            .max_by_key(matched)
            .map(|member| member.incarnation)
    }

    /// The other voters, those first that could take over from this leader at once: they are alive, and have nearly all of
    /// the log.
    pub(super) fn successors<'a>(
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

    /// A first member that has not heard of the group's beginning is told again; it is a voter, and was never anything
    /// else in this incarnation.
    fn remind_first_member(
        &self,
        incarnation: Incarnation,
        local: &Local,
        state: &StateMachine,
        out: &mut Outbox,
    ) -> bool {
        let Some(origin) = &self.origin else {
            return false;
        };
        let mut members = origin.members.0.iter();
        let Some(member) = members.find(|member| member.incarnation == incarnation) else {
            return false;
        };
        let still_voter = state.members().get(incarnation).is_some();
        if still_voter {
            origin.send_begin(member, local.config.attach_retry, out);
        }
        still_voter
    }
}

/// A member that was not heard from since then counts as dead.
fn lately(now: Instant, local: &Local) -> Instant {
    let patience = 2 * local.election_timeout().as_nanos();
    Instant::from_nanos(now.as_nanos().saturating_sub(patience))
}
