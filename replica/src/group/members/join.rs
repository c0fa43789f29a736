//! Requests of new identities to join.

use std::net::SocketAddr;

use trine_kvstore::command::STATE_VERSION_FIRST;
use trine_protocol::message::{
    AdminCommand, JoinRefusal, JoinReply, JoinRequest, MEMBERS_MAX, Member, MemberRole, NodeId,
};
use trine_protocol::route::is_same_address;

use super::Membership;
use crate::addresses::Addresses;
use crate::group::cx::Cx;
use crate::membership::{MemberTable, add_learner};

impl Membership {
    /// A new identity asks to be taken in.
    pub(in crate::group) fn on_join(
        &mut self,
        cx: &mut Cx<'_>,
        request: &JoinRequest,
        known: &Addresses,
        comes_from: impl Fn(SocketAddr) -> bool,
    ) -> JoinReply {
        self.pending
            .on_newcomer(cx.now, request.node_id, request.address);
        match self.consider(cx, request, known, comes_from) {
            Ok(()) => JoinReply::Accepted {
                cluster: cx.local.cluster,
                leader: cx.local.own.incarnation,
            },
            Err(reason) => JoinReply::Refused {
                reason,
                cluster: cx.local.cluster,
                leader_address: cx.leader_address(),
            },
        }
    }

    fn consider(
        &self,
        cx: &mut Cx<'_>,
        request: &JoinRequest,
        known: &Addresses,
        comes_from: impl Fn(SocketAddr) -> bool,
    ) -> Result<(), JoinRefusal> {
        let Some(state) = cx.state.filter(|_| !cx.halted) else {
            return Err(JoinRefusal::NotAttached);
        };
        let (members, ours) = (state.members(), cx.local.cluster);
        if !request.cluster.is_none() && request.cluster != ours {
            return Err(JoinRefusal::WrongCluster);
        }
        if request.cluster.is_none()
            && self.remind_first_member(request.incarnation, cx.local, state, cx.out)
        {
            return Err(JoinRefusal::ChangeInProgress);
        }
        // A removed incarnation stays removed: a command to add its node was meant for another incarnation, or was
        // followed before.
        if members.was_removed(request.incarnation) {
            return Err(JoinRefusal::Removed);
        }
        if !cx.raft().leads_with_commit() {
            return Err(JoinRefusal::NotLeader);
        }
        if request.state_version.max(STATE_VERSION_FIRST) < self.required_version(cx.state) {
            return Err(JoinRefusal::TooOld);
        }
        if members.get(request.incarnation).is_some() {
            return Ok(());
        }
        if request.member {
            return Err(JoinRefusal::UnknownNodeId);
        }
        let new = Member {
            node_id: request.node_id,
            role: MemberRole::Learner,
            incarnation: request.incarnation,
            address: request.address,
        };
        self.take_in(cx, members, &new, known, comes_from)
    }

    /// Makes `new` a learner if it may become one.
    fn take_in(
        &self,
        cx: &mut Cx<'_>,
        members: &MemberTable,
        new: &Member,
        known: &Addresses,
        comes_from: impl Fn(SocketAddr) -> bool,
    ) -> Result<(), JoinRefusal> {
        if new.incarnation.is_none() {
            return Err(JoinRefusal::NodeIdTaken);
        }
        self.check_node_id(cx, members, new)?;
        if !self.expects(cx, members, new, known) {
            return Err(JoinRefusal::UnknownAddress);
        }
        // Only now: where a lookup is expensive, an unknown sender must not make this replica look up an address of its
        // choice.
        if !comes_from(new.address) {
            cx.out.counters.messages_unknown_address += 1;
            return Err(JoinRefusal::OtherSource);
        }
        let stays =
            |other: &&Member| other.node_id != new.node_id || other.role == MemberRole::Voter;
        if members.all().iter().filter(stays).count() >= MEMBERS_MAX {
            // Another replica is taking the room that replacements need: it comes back when that is done.
            return Err(JoinRefusal::ChangeInProgress);
        }
        let change = add_learner(new, members);
        if !cx.is_settled() || cx.consensus.propose_conf_change(change).is_err() {
            return Err(JoinRefusal::ChangeInProgress);
        }
        Ok(())
    }

    /// Whether `new` may become a learner with its node id.
    fn check_node_id(
        &self,
        cx: &Cx<'_>,
        members: &MemberTable,
        new: &Member,
    ) -> Result<(), JoinRefusal> {
        match members.voter_at(new.node_id, new.incarnation) {
            Some(old) if self.may_be_replaced(old, cx) => Ok(()),
            Some(_) => Err(JoinRefusal::NodeIdTaken),
            None => self.check_learners(cx, members, new.node_id),
        }
    }

    /// Whether there is room for a learner whose node id has no voter. A learner that died is followed by its next
    /// incarnation, as a voter is, whether or not the admin client is still there to ask again. One that is alive
    /// stays, even if another was invited: of two processes with one node id each would drive the other out.
    fn check_learners(
        &self,
        cx: &Cx<'_>,
        members: &MemberTable,
        node_id: NodeId,
    ) -> Result<(), JoinRefusal> {
        let mut learners = members.at(node_id).peekable();
        if learners.peek().is_none() {
            return match self.is_invited(cx, node_id) {
                true => Ok(()),
                false => Err(JoinRefusal::UnknownNodeId),
            };
        }
        match learners.all(|learner| self.may_be_replaced(learner, cx)) {
            true => Ok(()),
            false => Err(JoinRefusal::NodeIdTaken),
        }
    }

    fn is_invited(&self, cx: &Cx<'_>, node_id: NodeId) -> bool {
        let wants = |voter| {
            self.pending
                .wants(cx.now, node_id, AdminCommand::Add { voter })
        };
        wants(true) || wants(false)
    }

    /// Whether `new` comes from where the member with its node id is. That is the place of such a member, or the address
    /// that this replica's `--peers` has for the node. An address that an admin client has named for it counts, too.
    /// Otherwise any process that can send packets could take the node id of a member that died.
    fn expects(&self, cx: &Cx<'_>, members: &MemberTable, new: &Member, known: &Addresses) -> bool {
        let mut holders = members.at(new.node_id);
        holders.any(|holder| is_same_address(cx.out.places.of(holder), new.address))
            || known.lists(new.node_id, new.address)
            || self.pending.expects_at(cx.now, new.node_id, new.address)
    }
}
