//! Admin commands: each names a desired state, and is repeated until the group has it.
//!
//! At most one change of the membership is under way at a time. None is begun that would leave the group without a
//! quorum of members that are alive. A leader remembers for a while the commands that it cannot execute yet (a node id
//! whose process has not asked, a member that may be replaced): see `pending`.

use std::net::SocketAddr;

use raft::eraftpb::ConfChangeV2;
use trine_canary as canary;
use trine_protocol::message::{
    AdminCommand, AdminReply, AdminRequest, AdminStatus, Incarnation, Member, MemberRole, NodeId,
    ReplyToken,
};
use trine_protocol::route::is_same_address;
use trine_transport::time::{Duration, Instant};

use super::spares::PATIENCE;
use super::{Membership, lately};
use crate::addresses::Addresses;
use crate::audit::{Audit, By};
use crate::config::NODES_MAX;
use crate::group::cx::Cx;
use crate::membership::{demote, promote, remove};

/// How long a command that waits for signs of life counts as wanted after it was asked for last; admin clients ask again
/// many times a second.
pub(super) const SIGN_OF_LIFE_PATIENCE: Duration = Duration::from_secs(2);

/// For so long a command waits for a replica at the address that it names to ask. One that is there asks several times a
/// second.
const NEWCOMER_PATIENCE: Duration = Duration::from_secs(10);

pub(super) type AdminVerdict = (AdminStatus, String);

pub(super) fn done(text: impl Into<String>) -> AdminVerdict {
    (AdminStatus::Done, text.into())
}

pub(super) fn under_way(text: impl Into<String>) -> AdminVerdict {
    (AdminStatus::InProgress, text.into())
}

fn not_leading() -> AdminVerdict {
    let text = "this replica does not lead";
    (AdminStatus::NotLeader, text.to_owned())
}

pub(super) fn refused(text: impl Into<String>) -> AdminVerdict {
    (AdminStatus::Refused, text.into())
}

/// Where a process is expected, for a sentence.
fn at(address: Option<SocketAddr>) -> String {
    address.map_or_else(String::new, |address| format!(" at {address}"))
}

impl Membership {
    /// An admin command has arrived. `next_round` is the context of the first ReadIndex round that begins after it.
    pub(in crate::group) fn on_admin_command(
        &mut self,
        cx: &mut Cx<'_>,
        token: ReplyToken,
        (by, request): (By, &AdminRequest),
        known: &Addresses,
        next_round: u64,
    ) {
        let verdict = self.follow(cx, request, known);
        self.audit.note(cx, by, request, &verdict);
        match verdict {
            (AdminStatus::Done, _) if self.unconfirmed.is_full() => {
                answer(cx, token, under_way("too many admin commands at a time"));
            }
            (AdminStatus::Done, text) => self.unconfirmed.push(token, next_round, text),
            verdict => answer(cx, token, verdict),
        }
    }

    /// The command that was judged last came from this address.
    pub(in crate::group) fn came_from(&mut self, address: impl FnOnce() -> Option<SocketAddr>) {
        self.audit.came_from(address);
    }

    /// The oldest audit line that was not read yet, and how many were lost before it.
    pub(in crate::group) fn next_audit(&mut self) -> Option<(Audit, u64)> {
        self.audit.pop()
    }

    /// Whether a round has to confirm that commands are done.
    pub(in crate::group) fn has_unconfirmed(&self) -> bool {
        !self.unconfirmed.is_empty()
    }

    /// A quorum has confirmed the round `context`, and with it the leadership when that began.
    pub(in crate::group) fn on_round_confirmed(&mut self, cx: &mut Cx<'_>, context: u64) {
        for (token, text) in self.unconfirmed.take_confirmed(context) {
            answer(cx, token, done(text));
        }
    }

    /// Leadership is lost: another replica knows the outcome.
    pub(in crate::group) fn abandon_admin_clients(&mut self, cx: &mut Cx<'_>) {
        for token in self.unconfirmed.take_all() {
            answer(cx, token, not_leading());
        }
    }

    fn follow(
        &mut self,
        cx: &mut Cx<'_>,
        request: &AdminRequest,
        known: &Addresses,
    ) -> AdminVerdict {
        let ours = cx.local.cluster;
        if !request.cluster.is_none() && request.cluster != ours {
            return refused(format!("this replica belongs to cluster {ours}"));
        }
        if !cx.raft().leads_with_commit() || cx.halted {
            return not_leading();
        }
        let node_id = request.node_id;
        if request.command != AdminCommand::FinishUpgrade {
            self.spares.on_asked(cx.now, node_id);
        }
        let verdict = match request.command {
            AdminCommand::Add { voter } => self.add(cx, request, voter, known),
            AdminCommand::Promote => self.promote(cx, node_id),
            AdminCommand::Remove => self.remove(cx, node_id, request.incarnation),
            AdminCommand::Replace => self.replace(cx, request),
            AdminCommand::TransferLeadership => return self.lead(cx, node_id),
            AdminCommand::FinishUpgrade => return self.finish_upgrade(cx),
        };
        match verdict {
            // An earlier command, which is in the log and not applied yet, may undo the current state.
            (AdminStatus::Done, _) if cx.raft().has_pending_conf() => {
                under_way("waiting for a change of the members that is under way")
            }
            verdict => verdict,
        }
    }

    fn add(
        &mut self,
        cx: &mut Cx<'_>,
        request: &AdminRequest,
        voter: bool,
        known: &Addresses,
    ) -> AdminVerdict {
        let (node_id, address) = (request.node_id, request.address);
        match member_at(cx, node_id) {
            Some(member)
                if address.is_some_and(|named| !is_same_address(named, member.address)) =>
            {
                let at = member.address;
                refused(format!(
                    "node {node_id} is a member at {at}: trine member replace {node_id} --address HOST:PORT moves it"
                ))
            }
            Some(member) if !voter || member.role == MemberRole::Voter => {
                done(format!("node {node_id} is a member at {}", member.address))
            }
            Some(_) => self.promote(cx, node_id),
            None if cx
                .members()
                .is_some_and(|members| members.all().len() >= NODES_MAX) =>
            {
                refused(format!("a group has at most {NODES_MAX} members"))
            }
            None if address.is_none() && !known.lists_node(node_id) => refused(format!(
                "nobody has said where the replica of node {node_id} will be: add --address HOST:PORT"
            )),
            None => {
                let command = AdminCommand::Add { voter };
                self.remember(cx, (node_id, command, Incarnation::NONE), address);
                under_way(format!(
                    "waiting for a replica that was started with --id {node_id}{} to ask",
                    at(address)
                ))
            }
        }
    }

    fn promote(&mut self, cx: &mut Cx<'_>, node_id: NodeId) -> AdminVerdict {
        let Some(member) = member_at(cx, node_id) else {
            return refused(format!("node {node_id} is not a member: add it first"));
        };
        if member.role == MemberRole::Voter {
            return done(format!("node {node_id} votes"));
        }
        if has_left(cx, &member) {
            return under_way(format!("node {node_id} was replaced and is being removed"));
        }
        // After the command, as for a removal: a learner that died just now would be a vote that cannot be given.
        let since = self.remember_awaiting_sign(cx, &member, AdminCommand::Promote);
        if !self.has_caught_up(member.incarnation, cx)
            || !self.liveness.was_heard_since(member.incarnation, since)
        {
            return under_way(format!("node {node_id} has not caught up yet"));
        }
        propose(
            cx,
            promote(member.incarnation),
            format!("promoting node {node_id}"),
        )
    }

    fn remove(&mut self, cx: &mut Cx<'_>, node_id: NodeId, meant: Incarnation) -> AdminVerdict {
        let Some(holder) = member_at(cx, node_id) else {
            self.pending.forget_all_of(node_id);
            return done(format!("node {node_id} is not a member"));
        };
        let Some(member) = meant_member(cx, &holder, meant) else {
            return done(format!("node {node_id} is held by another replica now"));
        };
        let since = self.remember_awaiting_sign(cx, &member, AdminCommand::Remove);
        if member.role == MemberRole::Voter {
            return self.demote(cx, &member, since);
        }
        propose(
            cx,
            remove(member.incarnation),
            format!("removing node {node_id}"),
        )
    }

    /// The first half of the removal of a voter: it loses its vote, and is removed as a learner then. `since` is when
    /// the removal was asked for first.
    fn demote(&mut self, cx: &mut Cx<'_>, voter: &Member, since: Instant) -> AdminVerdict {
        let Member {
            node_id,
            incarnation,
            ..
        } = *voter;
        if let Err(why) = self.check_quorum_without(cx, lately(cx.now, cx.local), incarnation) {
            self.pending.forget_all_of(node_id);
            return refused(why);
        }
        // A member that is silent from now on is found out before long.
        if self.check_quorum_without(cx, since, incarnation).is_err() {
            return under_way("waiting to hear from the voters that would be left");
        }
        if incarnation == cx.local.own.incarnation {
            return self.transfer_first(cx, "it leads, and transfers leadership first");
        }
        let text = format!("removing node {node_id}: it loses its vote first");
        match cx.consensus.propose_conf_change(demote(incarnation)) {
            Ok(_) => {
                // The second half is to come also if the admin client is gone by then.
                self.remember(cx, (node_id, AdminCommand::Remove, incarnation), None);
                under_way(text)
            }
            Err(error) => under_way(format!("waiting: {error}")),
        }
    }

    /// Whether the voters that would be left have a quorum of members that were heard from since then.
    ///
    /// A removal asks for signs of life after its command, because the new quorum has to agree to it. A member that
    /// died just now would leave the group without a quorum, and there is no way back.
    fn check_quorum_without(
        &self,
        cx: &Cx<'_>,
        since: Instant,
        leaving: Incarnation,
    ) -> Result<(), String> {
        let members = cx.members().into_iter();
        let left = members.flat_map(|members| members.voters_but(leaving));
        let (alive, all) = left.fold((0, 0), |(alive, all), member| {
            let lives = member.incarnation == cx.local.own.incarnation
                || self.liveness.was_heard_since(member.incarnation, since);
            (alive + usize::from(lives), all + 1)
        });
        if all == 0 {
            return Err("it is the only voter".to_owned());
        }
        let quorum = all / 2 + 1;
        if alive < quorum {
            return Err(format!(
                "only {alive} of the {all} voters that would be left are alive, {quorum} are needed"
            ));
        }
        Ok(())
    }

    fn replace(&mut self, cx: &mut Cx<'_>, request: &AdminRequest) -> AdminVerdict {
        let node_id = request.node_id;
        let Some(holder) = member_at(cx, node_id) else {
            return refused(format!("node {node_id} is not a member: add it instead"));
        };
        let Some(old) = meant_member(cx, &holder, request.incarnation) else {
            // Remembered, it would be done to the new holder, too: by the old one, when its process was started again.
            self.pending.forget(node_id, AdminCommand::Replace);
            return replaced_meanwhile(&holder, request.address);
        };
        let replaced = old.incarnation != holder.incarnation;
        if replaced && !canary::planted("a learner takes its seat back") {
            return remove_replaced(cx, &old, &holder);
        }
        if let Err(why) = self.check_quorum_without(cx, lately(cx.now, cx.local), old.incarnation) {
            return refused(why);
        }
        if old.incarnation == cx.local.own.incarnation {
            return self.transfer_first(cx, "it leads, and transfers leadership first");
        }
        let command = (node_id, AdminCommand::Replace, old.incarnation);
        let since = self.remember(cx, command, request.address);
        if let Some(named) = request.address
            && self.has_moved_to(cx, &old, named)
        {
            self.pending.forget(node_id, AdminCommand::Replace);
            return done(format!(
                "node {node_id} is not replaced: it has moved to {named} itself, with its memory"
            ));
        }
        let has_come = cx
            .members()
            .is_some_and(|members| members.at(node_id).count() > 1);
        if let Some(named) = request.address
            && !has_come
            && !cx.raft().has_pending_conf()
            && cx.now >= self.pending.nobody_since(node_id, since) + NEWCOMER_PATIENCE
        {
            self.pending.forget(node_id, AdminCommand::Replace);
            return refused(format!(
                "no replica with --id {node_id} at {named} has asked for {} s, and the group knows node {node_id} at {}: start the new replica first, and see whether the others reach it there",
                NEWCOMER_PATIENCE.as_secs(),
                old.address
            ));
        }
        under_way(format!(
            "waiting for a new replica with --id {node_id}{} to ask",
            at(request.address)
        ))
    }

    /// Whether a member itself is alive at this address, and was elsewhere a moment ago: the question may come again after
    /// the group has agreed on the place.
    fn has_moved_to(&self, cx: &Cx<'_>, member: &Member, to: SocketAddr) -> bool {
        let place = cx.out.places.of(member);
        let has_moved = !is_same_address(place, member.address)
            || self
                .relocations
                .has_moved_lately(cx.now, member.incarnation);
        has_moved
            && is_same_address(place, to)
            && self.is_alive(member.incarnation, cx.now, cx.local)
    }

    fn lead(&mut self, cx: &mut Cx<'_>, node_id: NodeId) -> AdminVerdict {
        let Some(member) = member_at(cx, node_id) else {
            return refused(format!("node {node_id} is not a member"));
        };
        if member.incarnation == cx.local.own.incarnation {
            return done(format!("node {node_id} leads"));
        }
        if member.role != MemberRole::Voter {
            return refused(format!("node {node_id} has no vote: promote it first"));
        }
        if self.pending.wants(cx.now, node_id, AdminCommand::Remove) {
            return refused(format!("node {node_id} is being removed"));
        }
        if !self.is_alive(member.incarnation, cx.now, cx.local) {
            return refused(format!("node {node_id} was not heard from lately"));
        }
        // Two admin clients who want different leaders would pass leadership to and fro with every question.
        if !cx.is_settled() {
            return under_way("this replica has come to lead only now");
        }
        cx.consensus.transfer_leadership(member.incarnation);
        under_way(format!("transferring leadership to node {node_id}"))
    }

    fn transfer_first(&mut self, cx: &mut Cx<'_>, why: &str) -> AdminVerdict {
        match self.best_successor(cx) {
            Some(successor) => {
                cx.consensus.transfer_leadership(successor);
                under_way(why)
            }
            None => refused("it leads, and nobody else can"),
        }
    }

    /// Returns when the command was asked for first.
    fn remember(
        &mut self,
        cx: &Cx<'_>,
        command: (NodeId, AdminCommand, Incarnation),
        address: Option<SocketAddr>,
    ) -> Instant {
        let until = cx.now + PATIENCE;
        self.pending.remember(cx.now, command, address, until)
    }

    /// Returns when the command was asked for first.
    fn remember_awaiting_sign(
        &mut self,
        cx: &Cx<'_>,
        member: &Member,
        command: AdminCommand,
    ) -> Instant {
        let until = cx.now + SIGN_OF_LIFE_PATIENCE;
        let command = (member.node_id, command, member.incarnation);
        self.pending.remember(cx.now, command, None, until)
    }
}

fn answer(cx: &mut Cx<'_>, token: ReplyToken, (status, text): AdminVerdict) {
    let leader = cx.leader_address();
    let reply = AdminReply {
        status,
        leader,
        text: &text,
    };
    cx.out.reply(token, &reply);
}

/// The member with a node id. While one replaces another, it is the voter, and of two voters the one that stays.
fn member_at(cx: &Cx<'_>, node_id: NodeId) -> Option<Member> {
    let members = cx.members()?;
    let staying = cx.raft().conf_state().voters;
    let mut at_node = members.at(node_id);
    let stays = at_node.find(|member| staying.contains(&member.incarnation.0));
    stays.or_else(|| members.at(node_id).next()).copied()
}

/// The member that a command means: the named incarnation, or else the holder of the node id. Nothing if the named one
/// is no member.
fn meant_member(cx: &Cx<'_>, holder: &Member, meant: Incarnation) -> Option<Member> {
    if meant.is_none() {
        return Some(*holder);
    }
    let member = cx.members()?.get(meant).copied();
    member.filter(|member| member.node_id == holder.node_id)
}

fn has_left(cx: &Cx<'_>, member: &Member) -> bool {
    let members = cx.members();
    members.is_some_and(|members| members.has_left(member.incarnation))
}

/// The member that was to be replaced is gone. It may have been replaced by another one than was meant, for instance by
/// its own process after a start without its memory.
fn replaced_meanwhile(holder: &Member, meant_at: Option<SocketAddr>) -> AdminVerdict {
    let Member {
        node_id,
        incarnation,
        address,
        ..
    } = *holder;
    match meant_at {
        Some(meant) if !is_same_address(meant, address) => refused(format!(
            "node {node_id} is held by {incarnation} at {address}, which came while the command was under way: repeat the command to replace that one"
        )),
        _ => done(format!("node {node_id} is held by {incarnation}")),
    }
}

/// The last step of a replacement: `old` has a successor that votes.
fn remove_replaced(cx: &mut Cx<'_>, old: &Member, successor: &Member) -> AdminVerdict {
    let node_id = old.node_id;
    if old.role == MemberRole::Voter {
        return under_way(format!(
            "node {node_id} is held by {}, and {} is about to lose its vote",
            successor.incarnation, old.incarnation
        ));
    }
    let text = format!(
        "node {node_id} is held by {}, and {} is being removed",
        successor.incarnation, old.incarnation
    );
    propose(cx, remove(old.incarnation), text)
}

fn propose(cx: &mut Cx<'_>, change: ConfChangeV2, text: String) -> AdminVerdict {
    match cx.consensus.propose_conf_change(change) {
        Ok(_) => under_way(text),
        Err(error) => under_way(format!("waiting: {error}")),
    }
}
