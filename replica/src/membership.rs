//! Who is in the group, and which single change of it is due next.
//!
//! A new identity of a node becomes a learner first and receives the state. One joint change then makes it a voter and
//! the old identity a learner, and a change of its own removes the old identity. Raft's configuration says whose vote
//! counts; the table here says who and where they are, and travels in the context of the same entries.
//!
//! **No change takes a voter out at once.** A member that is removed falls silent as soon as it applies its removal.
//! Others that have not applied the same change may still need its vote, for instance after the leader has died. A
//! learner goes on answering, so its vote can still be had. A member that has the later removal in its log has also
//! learned that the demotion is committed, and no longer needs the vote.

use std::net::SocketAddr;

use prost::Message as _;
use raft::eraftpb::{
    ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, ConfState,
};

use trine_canary as canary;

use crate::state_machine::codec::{Cursor, StateError, put_address, put_u32, put_u64};
use trine_protocol::message::{Incarnation, MEMBERS_MAX, Member, MemberRole, NodeId};

/// The members, in the order of their node ids.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MemberTable {
    members: Vec<Member>,
    /// The identities that were removed last, the latest at the end: they may not have heard of it themselves. A learner
    /// is in this list as soon as another identity votes in its place.
    removed: Vec<Incarnation>,
}

/// Removed identities that are remembered.
const REMOVED_MAX: usize = 64;

impl MemberTable {
    /// The members of a new group.
    #[must_use]
    pub(crate) fn new(members: &[Member]) -> Self {
        let mut members = members.to_vec();
        members.sort_by_key(|member| (member.node_id, member.incarnation));
        let removed = Vec::new();
        Self { members, removed }
    }

    /// Whether this identity was a member lately, and is none any more.
    #[must_use]
    pub(crate) fn was_removed(&self, incarnation: Incarnation) -> bool {
        self.removed.contains(&incarnation) && self.get(incarnation).is_none()
    }

    /// Whether this identity had a vote and gave its place to another one. It stays a learner until it is removed.
    #[must_use]
    pub(crate) fn has_left(&self, incarnation: Incarnation) -> bool {
        self.removed.contains(&incarnation) && self.get(incarnation).is_some()
    }

    /// Every member, learners and (during a joint change) leaving ones included.
    #[must_use]
    pub(crate) fn all(&self) -> &[Member] {
        &self.members
    }

    /// The member that has this identity.
    #[must_use]
    pub(crate) fn get(&self, incarnation: Incarnation) -> Option<&Member> {
        self.members
            .iter()
            .find(|member| member.incarnation == incarnation)
    }

    /// The members with this node id: one, or several while one is to replace another.
    pub(crate) fn at(&self, node_id: NodeId) -> impl Iterator<Item = &Member> {
        let members = self.members.iter();
        members.filter(move |member| member.node_id == node_id)
    }

    /// The voters other than `except`.
    pub(crate) fn voters_but(&self, except: Incarnation) -> impl Iterator<Item = &Member> {
        let members = self.members.iter();
        members
            .filter(move |member| member.role == MemberRole::Voter && member.incarnation != except)
    }

    /// The voter with this node id, other than `except`.
    #[must_use]
    pub(crate) fn voter_at(&self, node_id: NodeId, except: Incarnation) -> Option<&Member> {
        let fits = |member: &&Member| {
            member.node_id == node_id
                && member.role == MemberRole::Voter
                && member.incarnation != except
        };
        self.members.iter().find(fits)
    }

    /// Follows a change of raft's configuration. `named` is who the change's context introduces.
    pub(crate) fn change(&mut self, named: Option<&Member>, conf: &ConfState) {
        if let Some(named) = named
            && self.get(named.incarnation).is_none()
        {
            self.members.push(*named);
        }
        let lists = [&conf.voters, &conf.learners, &conf.voters_outgoing];
        let stays = |member: &Member| {
            lists
                .iter()
                .any(|list| list.contains(&member.incarnation.0))
        };
        let gone = self.members.iter().filter(|member| !stays(member));
        let gone: Vec<_> = gone.map(|member| member.incarnation).collect();
        self.members.retain(stays);
        let replaced = self.follow_roles(conf);
        self.note_removed(gone.into_iter().chain(replaced));
        self.members
            .sort_by_key(|member| (member.node_id, member.incarnation));
        let voters = self
            .members
            .iter()
            .filter(|member| member.role == MemberRole::Voter);
        assert!(voters.count() > 0, "a configuration has a voter");
    }

    /// A member answers at this address from now on. Nothing changes if it is none any more.
    pub(crate) fn relocate(&mut self, incarnation: Incarnation, to: SocketAddr) {
        let mut members = self.members.iter_mut();
        if let Some(member) = members.find(|member| member.incarnation == incarnation) {
            member.address = to;
        }
    }

    /// Takes the roles over from raft. Returns the voters that have become learners and have a successor.
    fn follow_roles(&mut self, conf: &ConfState) -> Vec<Incarnation> {
        let mut demoted = Vec::new();
        for member in &mut self.members {
            let id = member.incarnation.0;
            let votes = conf.voters.contains(&id) || conf.voters_outgoing.contains(&id);
            if member.role == MemberRole::Voter && !votes {
                demoted.push(*member);
            }
            member.role = if votes {
                MemberRole::Voter
            } else {
                MemberRole::Learner
            };
        }
        let replaced =
            |member: &&Member| self.voter_at(member.node_id, member.incarnation).is_some();
        let replaced = demoted.iter().filter(replaced);
        replaced.map(|member| member.incarnation).collect()
    }

    fn note_removed(&mut self, identities: impl Iterator<Item = Incarnation>) {
        for incarnation in identities {
            // One that had left its place is removed now: it counts from the later moment.
            self.removed.retain(|&known| known != incarnation);
            self.removed.push(incarnation);
        }
        let over = self.removed.len().saturating_sub(REMOVED_MAX);
        self.removed.drain(..over);
        assert!(self.removed.len() <= REMOVED_MAX, "a reader takes no more");
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        assert!(self.members.len() <= MEMBERS_MAX, "a reader takes no more");
        put_u32(out, self.members.len() as u32);
        for member in &self.members {
            write_member(member, out);
        }
        put_u32(out, self.removed.len() as u32);
        for incarnation in &self.removed {
            put_u64(out, incarnation.0);
        }
    }

    pub(crate) fn read(cursor: &mut Cursor<'_>) -> Result<Self, StateError> {
        let count = cursor.u32()? as usize;
        if count > MEMBERS_MAX {
            return Err(cursor.error());
        }
        let members = (0..count)
            .map(|_| read_member(cursor))
            .collect::<Result<_, _>>()?;
        let count = cursor.u32()? as usize;
        if count > REMOVED_MAX {
            return Err(cursor.error());
        }
        let removed = (0..count)
            .map(|_| cursor.u64().map(Incarnation))
            .collect::<Result<_, _>>()?;
        Ok(Self { members, removed })
    }
}

/// The change that takes a new identity in as a learner, and drops learners that tried for its node id before.
#[must_use]
pub(crate) fn add_learner(member: &Member, table: &MemberTable) -> ConfChangeV2 {
    let mut changes = vec![single(ConfChangeType::AddLearnerNode, member.incarnation)];
    let given_up = |other: &&Member| {
        other.node_id == member.node_id
            && other.role == MemberRole::Learner
            && other.incarnation != member.incarnation
    };
    changes.extend(
        table
            .all()
            .iter()
            .filter(given_up)
            .map(|m| single(ConfChangeType::RemoveNode, m.incarnation)),
    );
    let mut context = Vec::new();
    write_member(member, &mut context);
    ConfChangeV2 {
        transition: ConfChangeTransition::Auto.into(),
        changes,
        context,
    }
}

/// The one joint change that makes `learner` a voter and the old identity of its node a learner.
#[must_use]
pub(crate) fn replace(old: Incarnation, learner: Incarnation) -> ConfChangeV2 {
    assert_ne!(old, learner, "nobody replaces itself");
    let changes = vec![
        single(ConfChangeType::AddNode, learner),
        single(leave_vote(), old),
    ];
    ConfChangeV2 {
        transition: ConfChangeTransition::Implicit.into(),
        changes,
        context: Vec::new(),
    }
}

/// The change that takes a voter's vote away. It remains a learner until it is removed.
#[must_use]
pub(crate) fn demote(voter: Incarnation) -> ConfChangeV2 {
    simple(leave_vote(), voter)
}

/// How a voter loses its vote.
fn leave_vote() -> ConfChangeType {
    match canary::planted("removed in the joint change") {
        true => ConfChangeType::RemoveNode,
        false => ConfChangeType::AddLearnerNode,
    }
}

/// The change that gives a learner a vote.
#[must_use]
pub(crate) fn promote(learner: Incarnation) -> ConfChangeV2 {
    simple(ConfChangeType::AddNode, learner)
}

/// The change that removes a learner. Of a voter it would take the vote while others may need it: see [`demote`].
#[must_use]
pub(crate) fn remove(member: Incarnation) -> ConfChangeV2 {
    simple(ConfChangeType::RemoveNode, member)
}

fn simple(kind: ConfChangeType, incarnation: Incarnation) -> ConfChangeV2 {
    ConfChangeV2 {
        transition: ConfChangeTransition::Auto.into(),
        changes: vec![single(kind, incarnation)],
        context: Vec::new(),
    }
}

/// The change that leaves a joint configuration. Raft proposes it by itself, but not across a change of leader.
#[must_use]
pub(crate) fn leave_joint() -> ConfChangeV2 {
    ConfChangeV2::default()
}

/// Reads a change from the log. Raft's accessors panic on kinds that do not exist, so such a change is none.
#[must_use]
pub(crate) fn decode_change(data: &[u8]) -> Option<ConfChangeV2> {
    let change = ConfChangeV2::decode(data).ok()?;
    let known = ConfChangeTransition::from_i32(change.transition).is_some()
        && change.changes.len() <= MEMBERS_MAX
        && change
            .changes
            .iter()
            .all(|single| ConfChangeType::from_i32(single.change_type).is_some());
    known.then_some(change)
}

/// The member that the context of a change introduces.
#[must_use]
pub(crate) fn named_member(change: &ConfChangeV2) -> Option<Member> {
    let mut cursor = Cursor::new(&change.context, "member");
    read_member(&mut cursor).ok()
}

fn single(kind: ConfChangeType, incarnation: Incarnation) -> ConfChangeSingle {
    ConfChangeSingle {
        change_type: kind.into(),
        node_id: incarnation.0,
    }
}

fn write_member(member: &Member, out: &mut Vec<u8>) {
    put_u32(out, member.node_id.0);
    out.push(member.role as u8);
    put_u64(out, member.incarnation.0);
    put_address(out, member.address);
}

fn read_member(cursor: &mut Cursor<'_>) -> Result<Member, StateError> {
    let node_id = NodeId(cursor.u32()?);
    let role = match cursor.u8()? {
        1 => MemberRole::Voter,
        2 => MemberRole::Learner,
        _ => return Err(cursor.error()),
    };
    let incarnation = Incarnation(cursor.u64()?);
    Ok(Member {
        node_id,
        role,
        incarnation,
        address: cursor.address()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(node_id: u32, incarnation: u64, role: MemberRole) -> Member {
        let address = format!("127.0.0.1:{}", 7000 + node_id).parse().unwrap();
        Member {
            node_id: NodeId(node_id),
            role,
            incarnation: Incarnation(incarnation),
            address,
        }
    }

    fn three() -> MemberTable {
        MemberTable::new(
            &[3, 1, 2].map(|node_id| member(node_id, u64::from(node_id) * 10, MemberRole::Voter)),
        )
    }

    /// The configuration with these voters, and a learner.
    fn with_learner(voters: &[u64], learner: u64) -> ConfState {
        ConfState {
            voters: voters.to_vec(),
            learners: vec![learner],
            ..ConfState::default()
        }
    }

    /// The table behind the joint change in which 21 has replaced 20.
    fn replaced() -> MemberTable {
        let mut table = three();
        let new = member(2, 21, MemberRole::Learner);
        table.change(Some(&new), &with_learner(&[10, 20, 30], 21));
        let joint = ConfState {
            voters: vec![10, 21, 30],
            voters_outgoing: vec![10, 20, 30],
            learners_next: vec![20],
            auto_leave: true,
            ..ConfState::default()
        };
        table.change(None, &joint);
        assert!(
            table.all().iter().all(|m| m.role == MemberRole::Voter) && table.all().len() == 4,
            "the old identity's vote counts in the joint configuration"
        );
        assert!(!table.has_left(Incarnation(20)));
        table.change(None, &with_learner(&[10, 21, 30], 20));
        table
    }

    #[test]
    fn a_replacement_goes_through_learner_joint_change_and_removal() {
        let new = member(2, 21, MemberRole::Learner);
        assert_eq!(named_member(&add_learner(&new, &three())), Some(new));
        let mut table = replaced();
        let old = *table.get(Incarnation(20)).unwrap();
        assert_eq!(old.role, MemberRole::Learner);
        assert!(table.has_left(old.incarnation) && !table.was_removed(old.incarnation));
        let conf = ConfState {
            voters: vec![10, 21, 30],
            ..ConfState::default()
        };
        table.change(None, &conf);
        let ids: Vec<u64> = table.all().iter().map(|m| m.incarnation.0).collect();
        assert_eq!(ids, [10, 21, 30]);
        assert!(table.all().iter().all(|m| m.role == MemberRole::Voter));
        assert!(table.was_removed(old.incarnation) && !table.has_left(old.incarnation));
        assert_eq!(table.removed.len(), 1, "it is remembered once");
    }

    /// A new leader that was sent the state has to know it, too.
    #[test]
    fn who_has_left_its_place_is_part_of_the_state() {
        let mut bytes = Vec::new();
        replaced().write(&mut bytes);
        let read = MemberTable::read(&mut Cursor::new(&bytes, "members")).unwrap();
        assert!(read.has_left(Incarnation(20)));
    }

    /// It may be made a voter again: no other identity has its place.
    #[test]
    fn a_voter_that_becomes_a_learner_without_a_successor_has_not_left() {
        let mut table = three();
        table.change(None, &with_learner(&[10, 30], 20));
        assert!(!table.has_left(Incarnation(20)));
    }

    #[test]
    fn no_change_takes_a_voter_out_at_once() {
        let kinds = |change: &ConfChangeV2, of: u64| -> Vec<i32> {
            let of = change.changes.iter().filter(|single| single.node_id == of);
            of.map(|single| single.change_type).collect()
        };
        let learner = ConfChangeType::AddLearnerNode as i32;
        let (old, new) = (Incarnation(20), Incarnation(21));
        assert_eq!(kinds(&replace(old, new), 20), [learner]);
        assert_eq!(kinds(&demote(old), 20), [learner]);
    }

    #[test]
    fn a_second_attempt_for_a_node_id_drops_the_first_learner() {
        let mut table = three();
        let first = member(2, 21, MemberRole::Learner);
        table.change(
            Some(&first),
            &ConfState {
                voters: vec![10, 20, 30],
                learners: vec![21],
                ..ConfState::default()
            },
        );
        let change = add_learner(&member(2, 22, MemberRole::Learner), &table);
        assert_eq!(change.changes.len(), 2);
        assert_eq!(
            (change.changes[1].node_id, change.changes[1].change_type),
            (21, ConfChangeType::RemoveNode.into())
        );
    }

    #[test]
    fn the_table_survives_being_written() {
        let table = three();
        let mut bytes = Vec::new();
        table.write(&mut bytes);
        let mut cursor = Cursor::new(&bytes, "members");
        assert_eq!(MemberTable::read(&mut cursor), Ok(table));
        assert!(cursor.is_at_end());
    }
}
