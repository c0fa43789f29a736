//! Changes of the membership that a leader makes by itself: it takes a new identity of a place in, and lets it replace
//! the old one.

use std::net::SocketAddr;

use raft::eraftpb::ConfChangeV2;
use trine_kvstore::config::STATE_VERSION_FIRST;
use trine_protocol::message::{
    Incarnation, JoinRefusal, JoinReply, JoinRequest, MEMBERS_MAX, Member, MemberRole, Order,
    PlaceId,
};
use trine_protocol::route::is_same_address;
use trine_transport::time::Instant;

use super::Group;
use super::local::election_timeout;
use crate::addresses::Addresses;
use crate::membership::{add_learner, leave_joint, promote, replace};
use crate::outbox::Outbox;
use crate::state_machine::StateMachine;

/// A learner that lacks no more entries than this is as good as a voter.
const PROMOTION_LAG_MAX: u64 = 256;

impl Group {
    /// A new identity asks to be taken in.
    pub(crate) fn on_join(
        &mut self,
        now: Instant,
        request: &JoinRequest,
        known: &Addresses,
        comes_from: impl Fn(SocketAddr) -> bool,
        out: &mut Outbox,
    ) -> JoinReply {
        match self.consider(now, request, known, comes_from, out) {
            Ok(()) => JoinReply::Accepted {
                cluster: self.local.cluster,
                leader: self.local.own.incarnation,
            },
            Err(reason) => {
                let leader_address = self.leader_address();
                JoinReply::Refused {
                    reason,
                    cluster: self.local.cluster,
                    leader_address,
                }
            }
        }
    }

    fn consider(
        &mut self,
        now: Instant,
        request: &JoinRequest,
        known: &Addresses,
        comes_from: impl Fn(SocketAddr) -> bool,
        out: &mut Outbox,
    ) -> Result<(), JoinRefusal> {
        let Some(state) = &self.state else {
            return Err(JoinRefusal::NotAttached);
        };
        if self.halted.is_some() {
            return Err(JoinRefusal::NotAttached);
        }
        if !request.cluster.is_none() && request.cluster != self.local.cluster {
            return Err(JoinRefusal::WrongCluster);
        }
        if request.cluster.is_none() && self.remind_first_member(request.incarnation, out) {
            return Err(JoinRefusal::ChangeInProgress);
        }
        // Whatever it asks for: an order to fill the place was meant for another life, or was followed before.
        if state.members().was_removed(request.incarnation) {
            return Err(JoinRefusal::Removed);
        }
        if !self.consensus.raft().leads_with_commit() {
            return Err(JoinRefusal::NotLeader);
        }
        if request.state_version.max(STATE_VERSION_FIRST) < self.required_version() {
            return Err(JoinRefusal::TooOld);
        }
        if state.members().get(request.incarnation).is_some() {
            return Ok(());
        }
        if request.member {
            return Err(JoinRefusal::UnknownPlace);
        }
        let new = Member {
            place: request.place,
            role: MemberRole::Learner,
            incarnation: request.incarnation,
            address: request.address,
        };
        if new.incarnation.is_none() {
            return Err(JoinRefusal::PlaceTaken);
        }
        self.check_place(now, state, &new)?;
        if !self.expects(now, &new, known) {
            return Err(JoinRefusal::UnknownAddress);
        }
        // Only now: where looking it up costs something, nobody makes this replica look up what he likes.
        if !comes_from(new.address) {
            out.counters.messages_of_strangers += 1;
            return Err(JoinRefusal::OtherSource);
        }
        let stays = |other: &&Member| other.place != new.place || other.role == MemberRole::Voter;
        if state.members().all().iter().filter(stays).count() >= MEMBERS_MAX {
            // Somebody else is taking the room that replacements need: it comes back when that is done.
            return Err(JoinRefusal::ChangeInProgress);
        }
        let change = add_learner(&new, state.members());
        if !self.is_settled(now) || self.consensus.propose_conf_change(change).is_err() {
            return Err(JoinRefusal::ChangeInProgress);
        }
        Ok(())
    }

    /// Whether `new` may become a learner of its place.
    fn check_place(
        &self,
        now: Instant,
        state: &StateMachine,
        new: &Member,
    ) -> Result<(), JoinRefusal> {
        match state.members().voter_at(new.place, new.incarnation) {
            Some(old) if self.may_be_replaced(now, old) => Ok(()),
            Some(_) => Err(JoinRefusal::PlaceTaken),
            None => self.check_learners(now, state, new.place),
        }
    }

    /// Whether `new` comes from where its place's holder is: the address of a member at that place, the one that this
    /// replica's `--peers` has for it, or one that an operator has named for it. Else whoever can send packets could take the
    /// place of a member that died.
    fn expects(&self, now: Instant, new: &Member, known: &Addresses) -> bool {
        let mut holders = self
            .state
            .iter()
            .flat_map(|state| state.members().at(new.place));
        holders.any(|holder| is_same_address(holder.address, new.address))
            || known.lists(new.place, new.address)
            || self.is_expected_at(now, new.place, new.address)
    }

    /// Whether there is room at a place without a voter. A learner that died is followed by its next life, as a voter is,
    /// whether or not whoever ordered it is still there to ask again; one that is alive stays, whoever was invited: of two
    /// processes with one number each would drive the other out.
    fn check_learners(
        &self,
        now: Instant,
        state: &StateMachine,
        place: PlaceId,
    ) -> Result<(), JoinRefusal> {
        let mut learners = state.members().at(place).peekable();
        if learners.peek().is_none() {
            return match self.is_invited(now, place) {
                true => Ok(()),
                false => Err(JoinRefusal::UnknownPlace),
            };
        }
        match learners.all(|learner| self.may_be_replaced(now, learner)) {
            true => Ok(()),
            false => Err(JoinRefusal::PlaceTaken),
        }
    }

    fn may_be_replaced(&self, now: Instant, old: &Member) -> bool {
        let silent = self.is_settled(now) && !self.is_alive(old.incarnation, now);
        let gone = silent || self.is_ordered(now, old.place, Order::Replace);
        gone && old.incarnation != self.local.own.incarnation
    }

    /// Whoever has come to lead just now has heard nobody before, and must not take silence for death at once.
    pub(super) fn is_settled(&self, now: Instant) -> bool {
        now.saturating_since(self.clock.anchored_at()) >= election_timeout(&self.local.config)
    }

    fn is_invited(&self, now: Instant, place: PlaceId) -> bool {
        self.is_ordered(now, place, Order::Add { voter: true })
            || self.is_ordered(now, place, Order::Add { voter: false })
    }

    /// A first member that has not heard of the group's beginning is told again; it is a voter, and was never anything
    /// else in this life.
    fn remind_first_member(&self, incarnation: Incarnation, out: &mut Outbox) -> bool {
        let Some(origin) = &self.origin else {
            return false;
        };
        let Some(member) = origin
            .members
            .0
            .iter()
            .find(|member| member.incarnation == incarnation)
        else {
            return false;
        };
        let still_voter = self
            .state
            .as_ref()
            .is_some_and(|state| state.members().get(incarnation).is_some());
        if still_voter {
            origin.send_begin(member, self.local.config.attach_retry, out);
        }
        still_voter
    }

    /// Proposes the next change that is due, if any: at most one is under way at a time.
    pub(super) fn change_members(&mut self, now: Instant) {
        if self.consensus.raft().has_pending_conf()
            || !self.consensus.raft().leads_with_commit()
            || self.stopping.is_some()
        {
            return;
        }
        // Refused while raft is busy with something else; the next tick asks again.
        if !self
            .consensus
            .raft()
            .conf_state()
            .voters_outgoing
            .is_empty()
        {
            let _ = self.consensus.propose_conf_change(leave_joint());
        } else if let Some((place, change)) = self.due_promotion(now)
            && self.consensus.propose_conf_change(change).is_ok()
        {
            self.forget_order(place);
        }
    }

    /// What a learner that has caught up is to become: the successor of its place's voter, or one voter more.
    fn due_promotion(&self, now: Instant) -> Option<(PlaceId, ConfChangeV2)> {
        let members = self.state.as_ref().map(StateMachine::members)?;
        let is_learner = |member: &&Member| member.role == MemberRole::Learner;
        let learners = members.all().iter().filter(is_learner);
        let ready = learners.filter(|learner| self.has_caught_up(learner.incarnation, now));
        ready.into_iter().find_map(|learner| {
            let new = learner.incarnation;
            let change = match members.voter_at(learner.place, new) {
                Some(old) if self.may_be_replaced(now, old) => replace(old.incarnation, new),
                Some(_) => return None,
                None if self.is_ordered(now, learner.place, Order::Add { voter: true }) => {
                    promote(new)
                }
                None => return None,
            };
            Some((learner.place, change))
        })
    }

    pub(super) fn has_caught_up(&self, learner: Incarnation, now: Instant) -> bool {
        let close = |matched: u64| {
            matched + PROMOTION_LAG_MAX >= self.consensus.raft().last_index() && matched > 0
        };
        let progress = self.consensus.raft().progress(learner.0);
        // Raft may be probing it: while nothing is written it stays at that behind a snapshot.
        self.is_alive(learner, now) && progress.is_some_and(|p| !p.in_snapshot && close(p.matched))
    }

    /// Begins a graceful stop.
    pub(crate) fn stop(&mut self, now: Instant) {
        self.stopping
            .get_or_insert(now + self.local.config.handover_timeout);
        self.hand_over(now);
    }

    /// Whether the lead is in other hands, or nobody has taken it in time.
    pub(crate) fn is_stopped(&self, now: Instant) -> bool {
        !self.consensus.raft().is_leader() || self.stopping.is_some_and(|deadline| now >= deadline)
    }

    /// A leader that stops asks the member with the longest log to take over.
    pub(super) fn hand_over(&mut self, now: Instant) {
        if self.stopping.is_none()
            || !self.consensus.raft().is_leader()
            || self.consensus.raft().is_transferring()
        {
            return;
        }
        if let Some(successor) = self.best_successor(now) {
            self.begin_transfer_of_lead(successor);
        }
    }

    /// The voter with the longest log among those that are alive.
    pub(super) fn best_successor(&self, now: Instant) -> Option<Incarnation> {
        let members = self.state.as_ref()?.members().all().iter();
        let candidates = members.filter(|member| {
            member.role == MemberRole::Voter
                && member.incarnation != self.local.own.incarnation
                && self.is_alive(member.incarnation, now)
        });
        let matched = |member: &&Member| {
            let progress = self.consensus.raft().progress(member.incarnation.0);
            progress.map(|progress| progress.matched)
        };
        candidates
            .max_by_key(matched)
            .map(|member| member.incarnation)
    }

    pub(super) fn begin_transfer_of_lead(&mut self, to: Incarnation) {
        self.consensus.transfer_leadership(to);
    }
}
