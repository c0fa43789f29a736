//! What a replica knows of its group, and whether that keeps a majority.

use crate::sim::Host;
use std::collections::BTreeSet;
use trine_protocol::message::{Discovery, Incarnation, MemberRole, NodeId};

/// A running replica's view of the group.
pub(super) struct View {
    pub(super) host: Host,
    pub(super) discovery: Discovery,
    /// See [`trine_replica::Replica::voter_sides`].
    pub(super) sides: [Vec<Incarnation>; 2],
}

impl View {
    /// Learners with node ids that have no voter.
    fn newcomers(&self) -> impl Iterator<Item = Incarnation> {
        let members = &self.discovery.members.0;
        let votes = |node_id: NodeId| {
            let mut at_node = members
                .iter()
                .filter(move |member| member.node_id == node_id);
            at_node.any(|member| member.role == MemberRole::Voter)
        };
        let newcomers = members.iter().filter(move |member| !votes(member.node_id));
        newcomers.map(|member| member.incarnation)
    }

    pub(super) fn knows_group(&self) -> bool {
        self.sides.iter().any(|side| !side.is_empty())
    }

    /// Whether a majority of each side is alive, however many of the `leaving` nodes are gone by then. In the worst
    /// case the live ones have left, and the dead still count. A dead learner counts, too, unless it is to replace a
    /// voter: the leader that makes it one may not know yet that it died.
    pub(super) fn keeps_majority(&self, alive: &BTreeSet<Incarnation>, leaving: &[NodeId]) -> bool {
        let stays = |voter: &&Incarnation| {
            let members = &self.discovery.members.0;
            let leaves = |member: &trine_protocol::message::Member| {
                member.incarnation == **voter && leaving.contains(&member.node_id)
            };
            !alive.contains(*voter) || !members.iter().any(leaves)
        };
        let dead_newcomers = self
            .newcomers()
            .filter(|newcomer| !alive.contains(newcomer));
        let dead_newcomers = dead_newcomers.count();
        let is_majority_alive = |voters: &[&Incarnation]| {
            let left = voters.iter().filter(|voter| alive.contains(voter)).count();
            left * 2 > voters.len() + dead_newcomers
        };
        let sides = self.sides.iter().filter(|side| !side.is_empty());
        sides.into_iter().all(|side| {
            let rest: Vec<_> = side.iter().filter(stays).collect();
            is_majority_alive(&rest)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_protocol::message::{Members, RoleCode};

    fn incarnations(list: &[u64]) -> Vec<Incarnation> {
        list.iter().copied().map(Incarnation).collect()
    }

    fn view(sides: [Vec<Incarnation>; 2]) -> View {
        let discovery = Discovery {
            role: RoleCode::Follower,
            term: 1,
            ..Discovery::unattached(NodeId(1), Incarnation(1))
        };
        View {
            host: Host(0),
            discovery,
            sides,
        }
    }

    /// Seed 124: voters 1, 2, 4 and 5, of which 2 had died and 3 was about to follow it. Three of the five that a
    /// member saw lived on without 4, and 4 was killed. But of the old side only 1 and 5 lived, and no replica ever led
    /// again.
    #[test]
    fn a_majority_of_both_sides_together_is_not_one_of_either() {
        let view = view([incarnations(&[1, 3, 4, 5]), incarnations(&[1, 2, 4, 5])]);
        let without_4 = incarnations(&[1, 3, 5]).into_iter().collect();
        assert!(!view.keeps_majority(&without_4, &[]));
        let with_4 = incarnations(&[1, 3, 4, 5]).into_iter().collect();
        assert!(view.keeps_majority(&with_4, &[]));
    }

    /// Seed 1554: a group had come down to voter 3. The learner 1 died, and was made a voter five milliseconds later,
    /// before any member could have missed it: a group of two, one of them dead.
    #[test]
    fn a_newcomer_that_dies_may_become_a_voter() {
        let mut view = view([incarnations(&[3]), Vec::new()]);
        view.discovery.members = Members(vec![member(3), learner(1, 1)]);
        let alone = incarnations(&[3]).into_iter().collect();
        assert!(!view.keeps_majority(&alone, &[]));
        assert!(view.keeps_majority(&incarnations(&[1, 3]).into_iter().collect(), &[]));
        // One that replaces a voter changes no majority.
        view.sides[0] = incarnations(&[1, 2, 3]);
        view.discovery.members = Members(vec![member(1), member(2), member(3), learner(1, 4)]);
        assert!(view.keeps_majority(&incarnations(&[2, 3]).into_iter().collect(), &[]));
    }

    fn member(number: u32) -> trine_protocol::message::Member {
        trine_protocol::message::Member {
            node_id: NodeId(number),
            role: MemberRole::Voter,
            incarnation: Incarnation(number.into()),
            address: Host(number as u16).address(),
        }
    }

    fn learner(node_id: u32, incarnation: u64) -> trine_protocol::message::Member {
        trine_protocol::message::Member {
            role: MemberRole::Learner,
            incarnation: Incarnation(incarnation),
            ..member(node_id)
        }
    }

    /// Seed 596: of voters 1, 2 and 3 operators were to remove 2 and 3. Without both 1 is a majority, and 3 was killed.
    /// But the command to remove 3 had met its predecessor and was over, and without 2 alone 1 is none of two.
    #[test]
    fn of_those_who_are_to_leave_not_all_need_to_do_so() {
        let mut view = view([incarnations(&[1, 2, 3]), Vec::new()]);
        view.discovery.members = Members([1, 2, 3].map(member).into());
        let leaving = [NodeId(2), NodeId(3)];
        let all = incarnations(&[1, 2, 3]).into_iter().collect();
        assert!(view.keeps_majority(&all, &leaving));
        let without_3 = incarnations(&[1, 2]).into_iter().collect();
        assert!(!view.keeps_majority(&without_3, &leaving));
        assert!(view.keeps_majority(&without_3, &leaving[1..]));
    }
}
