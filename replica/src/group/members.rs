//! Who is alive, who joins, and what this member's leader changes by itself.

mod admin;
mod audit;
mod changes;
mod departure;
mod join;
mod liveness;
mod pending;
mod relocations;
mod spares;
mod succession;
mod unconfirmed;
mod upgrade;

use trine_protocol::message::Incarnation;
use trine_transport::time::Instant;

use self::audit::AdminTrail;
use self::departure::MembershipProbe;
pub(super) use self::departure::says_removed;
use self::liveness::PeerLiveness;
use self::pending::PendingCommands;
use self::relocations::Relocations;
use self::spares::SpareLearners;
use self::unconfirmed::UnconfirmedAnswers;
use self::upgrade::Upgrade;
use super::cx::Cx;
use super::local::Local;
use crate::bootstrap::Origin;
use crate::log::MemoryLog;
use crate::membership::MemberTable;
use crate::outbox::Outbox;
use crate::raft_group::RaftGroup;
use crate::state_machine::StateMachine;

/// A learner that lacks no more entries than this is as good as a voter.
const PROMOTION_LAG_MAX: u64 = 256;

/// A member's knowledge of the others beside the replicated table, and the promises that it has made about them.
pub(super) struct Membership {
    /// How the group began, if this replica was there: any member that knows it tells a first member that has missed
    /// it.
    origin: Option<Origin>,
    liveness: PeerLiveness,
    upgrade: Upgrade,
    probe: MembershipProbe,
    /// Admin commands that this leader cannot follow yet.
    pending: PendingCommands,
    /// Learners whose node id has a live voter.
    spares: SpareLearners,
    /// Admin commands that are done, if this replica still leads.
    unconfirmed: UnconfirmedAnswers,
    audit: AdminTrail,
    /// The members whose places this leader has written into the log.
    relocations: Relocations,
}

impl Membership {
    pub(super) fn new(origin: Option<Origin>) -> Self {
        Self {
            origin,
            liveness: PeerLiveness::default(),
            upgrade: Upgrade::default(),
            probe: MembershipProbe::default(),
            pending: PendingCommands::default(),
            spares: SpareLearners::default(),
            unconfirmed: UnconfirmedAnswers::default(),
            audit: AdminTrail::default(),
            relocations: Relocations::default(),
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
        self.upgrade = Upgrade::default();
        self.liveness.forget_versions();
        self.spares.clear();
        self.relocations.clear();
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
        active.max(self.upgrade.raising).unwrap_or_default()
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
