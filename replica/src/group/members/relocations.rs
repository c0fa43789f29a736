//! Members that have moved: the leader writes into the log where they answer.
//!
//! A replica that starts knows only the table of members. As long as that names a moved member's former address, this replica
//! takes an old copy of the directory that runs there for the member, while the others follow the moved one. So the table
//! has to change once, for all. The pause keeps a leader that finds a member elsewhere again and again from filling the log.

use std::net::SocketAddr;

use trine_canary as canary;
use trine_protocol::message::{Incarnation, Member};
use trine_protocol::route::is_same_address;
use trine_transport::time::{Duration, Instant};

use super::Membership;
use crate::group::cx::Cx;
use crate::state_machine::PLACE_VERSION;
use crate::state_machine::entry::move_member;

/// The least time between two entries about one member.
const PAUSE: Duration = Duration::from_secs(10);
/// For so long an operator who repeats the command is told that the member has moved.
const LATELY: Duration = Duration::from_secs(60);

/// What this leader has proposed, and when. There are no more than members.
#[derive(Default)]
pub(super) struct Relocations(Vec<(Incarnation, Instant)>);

impl Relocations {
    fn proposed_at(&self, member: Incarnation) -> Option<Instant> {
        let found = self.0.iter().find(|(of, _)| *of == member);
        found.map(|&(_, at)| at)
    }

    fn is_too_soon(&self, now: Instant, member: Incarnation) -> bool {
        let proposed = self.proposed_at(member);
        proposed.is_some_and(|at| now < at + PAUSE)
    }

    fn note(&mut self, now: Instant, member: Incarnation) {
        self.0.retain(|&(of, at)| of != member && now < at + LATELY);
        self.0.push((member, now));
    }

    /// Whether the member has moved a short while ago, by what this leader has proposed.
    pub(super) fn has_moved_lately(&self, now: Instant, member: Incarnation) -> bool {
        let proposed = self.proposed_at(member);
        proposed.is_some_and(|at| now < at + LATELY)
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

impl Membership {
    /// Proposes the places of members that this leader has found elsewhere than the table says.
    pub(in crate::group) fn agree_on_places(&mut self, cx: &mut Cx<'_>, stopping: bool) {
        let Some(state) = cx.state.filter(|_| !stopping) else {
            return;
        };
        let may = state.version() >= PLACE_VERSION && cx.raft().leads_with_commit();
        if !may || canary::planted("a place is not agreed on") {
            return;
        }
        for member in state.members().all() {
            let Some(to) = self.place_to_agree_on(member, cx) else {
                continue;
            };
            let agreed = cx.out.places.agreed(member.incarnation, member.address);
            if is_same_address(to, agreed)
                || self.relocations.is_too_soon(cx.now, member.incarnation)
            {
                continue;
            }
            let entry = move_member(cx.clock.stamp(cx.now), member.incarnation, to);
            if cx.consensus.propose(entry).is_ok() {
                self.relocations.note(cx.now, member.incarnation);
            }
        }
    }

    /// Where a member is by its own word and by another's: behind a network that translates addresses the two differ, and
    /// what leads there from one replica leads nowhere from the others.
    fn place_to_agree_on(&self, member: &Member, cx: &Cx<'_>) -> Option<SocketAddr> {
        let places = &cx.out.places;
        if member.incarnation == cx.local.own.incarnation {
            let is_found = places.is_own_confirmed(cx.raft().term());
            return is_found.then_some(cx.local.own.address);
        }
        let found = places.found_by_own_word(member);
        found.filter(|_| self.is_alive(member.incarnation, cx.now, cx.local))
    }
}
