//! The status of every replica of a group, and the group's status that follows from them.

use std::net::SocketAddr;

use trine_protocol::node_status::NodeStatus;
use trine_protocol::status::{MemberStatus, Role, Status};

use crate::outcome::Obstacle;

/// One replica's answer.
#[derive(Debug)]
pub struct Report {
    /// Whom was asked.
    pub address: SocketAddr,
    /// Its answer, or the obstacle.
    pub answer: Result<Box<NodeStatus>, Obstacle>,
}

impl Report {
    /// The replica's answer, if there is one.
    #[must_use]
    pub fn status(&self) -> Option<&Status> {
        self.answer.as_ref().ok().map(|node| &node.replica)
    }
}

/// The one leader of the group: the replica that claims it in the newest term that any answer of its cluster knows. Terms of
/// different clusters cannot be compared: one replica may be on the files of another group. If several groups have
/// leaders, it is that of the cluster with most answers.
#[must_use]
pub fn leader_of(reports: &[Report]) -> Option<&Status> {
    let known = || reports.iter().filter_map(Report::status);
    let leads = |status: &&Status| {
        let mut own = known().filter(|other| other.cluster == status.cluster);
        status.role == Role::Leader && own.all(|other| other.term <= status.term)
    };
    let answers = |status: &&Status| {
        let own = known().filter(|other| other.cluster == status.cluster);
        own.count()
    };
    known().filter(leads).max_by_key(answers)
}

/// The number of replicas that vote, answer, have a disk that works, and follow the leader in its term; nothing without a
/// leader, none while the membership changes.
#[must_use]
pub fn voters_in_step(reports: &[Report]) -> Option<usize> {
    let leader = leader_of(reports)?;
    if leader.change_in_progress {
        return Some(0);
    }
    let in_step = |status: &Status| {
        let member = leader
            .members
            .iter()
            .find(|member| member.incarnation == status.incarnation);
        // A replica that has just started is in the term of its disk, and waits to hear from the leader.
        let serves = match status.role {
            Role::Leader => true,
            Role::Follower => status.leader.is_some(),
            _ => false,
        };
        let votes = member.is_some_and(|member| member.voter);
        serves && votes && status.term == leader.term && status.log.hang().is_none()
    };
    Some(
        reports
            .iter()
            .filter_map(Report::status)
            .filter(|status| in_step(status))
            .count(),
    )
}

/// Whether so many members came back without their memory, under other identities, that the rest is
/// no longer a majority. The group's data is then gone, and it will never serve again.
///
/// A member that does not answer may still have its memory. It has certainly lost it only if another replica has its
/// node id.
#[must_use]
pub fn majority_gone(reports: &[Report]) -> bool {
    if leader_of(reports).is_some() {
        return false;
    }
    let statuses = || reports.iter().filter_map(Report::status);
    statuses().any(|survivor| {
        let voters = || survivor.members.iter().filter(|member| member.voter);
        let is_gone = |member: &MemberStatus| {
            let same_address = statuses().find(|status| status.address == member.address);
            same_address.is_some_and(|status| status.incarnation != member.incarnation)
        };
        let gone = voters().filter(|member| is_gone(member)).count();
        voters().count() - gone <= voters().count() / 2 && gone > 0
    })
}
