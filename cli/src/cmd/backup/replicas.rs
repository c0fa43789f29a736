//! The replicas that a backup can be read from, in their order.

use std::net::SocketAddr;

use trine_base::client::advice;
use trine_base::failure::Failure;
use trine_client::{Obstacle, Report, leader_of};
use trine_protocol::message::{ClusterId, Incarnation};
use trine_protocol::status::{Role, Status};

/// Which one the user wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Followers first.
    Any,
    /// The leader.
    Leader,
    /// The one with this node id.
    Node(u32),
}

/// A replica that has the group's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) node_id: u32,
    /// Where it has answered. Behind mapped ports that is not where the others reach it.
    pub(super) address: SocketAddr,
    pub(super) incarnation: Incarnation,
    pub(super) cluster: ClusterId,
    /// Whether nobody knows better who may read a backup: the leader, or the only one that is asked.
    pub(super) decides: bool,
}

/// The replicas to ask, in order: those that have applied most come first, and the leader comes last.
pub(super) fn choose(reports: &[Report], wanted: Wanted) -> Result<Vec<Candidate>, Failure> {
    let leader = leader_of(reports).map(|status| status.address);
    let has_state =
        |status: &Status| matches!(status.role, Role::Leader | Role::Follower | Role::Learner);
    let is_wanted = |status: &Status| match wanted {
        Wanted::Any => true,
        Wanted::Leader => leader == Some(status.address),
        Wanted::Node(node_id) => status.node_id == node_id,
    };
    let mut known: Vec<(SocketAddr, &Status)> = reports
        .iter()
        .filter_map(|report| Some((report.address, report.status()?)))
        .filter(|(_, status)| has_state(status))
        .collect();
    require_one_cluster(&known)?;
    known.retain(|(_, status)| is_wanted(status));
    known.sort_by_key(|(_, status)| {
        let rank = match status.role {
            _ if leader == Some(status.address) => 2,
            Role::Learner => 1,
            _ => 0,
        };
        (rank, u64::MAX - status.applied, status.node_id)
    });
    let found = known.into_iter();
    let mut found: Vec<Candidate> = found
        .filter_map(|(at, status)| candidate(at, status))
        .collect();
    if let Some(last) = found.last_mut() {
        last.decides = true;
    }
    match found.is_empty() {
        true => Err(none(reports, wanted)),
        false => Ok(found),
    }
}

fn candidate(address: SocketAddr, status: &Status) -> Option<Candidate> {
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    Some(Candidate {
        node_id: status.node_id,
        address,
        incarnation: Incarnation(number(&status.incarnation)?),
        cluster: ClusterId(number(status.cluster.as_deref()?)?),
        decides: false,
    })
}

/// A backup of one group must not take the place of another one's.
fn require_one_cluster(known: &[(SocketAddr, &Status)]) -> Result<(), Failure> {
    let mut clusters: Vec<&str> = known
        .iter()
        .filter_map(|(_, status)| status.cluster.as_deref())
        .collect();
    clusters.sort_unstable();
    clusters.dedup();
    match clusters[..] {
        [] | [_] => Ok(()),
        _ => Err(Failure::usage(
            format!(
                "the peers are of more than one cluster: {}; nothing was backed up",
                clusters.join(", ")
            ),
            "give --peers of one group; `trine status --peers` shows a replica's cluster",
        )),
    }
}

fn none(reports: &[Report], wanted: Wanted) -> Failure {
    let what = match wanted {
        Wanted::Any => "no replica that has the group's state answers".to_owned(),
        Wanted::Leader => "no leader answers".to_owned(),
        Wanted::Node(node_id) => format!("no replica {node_id} with the group's state answers"),
    };
    let obstacles = || {
        reports
            .iter()
            .filter_map(|report| report.answer.as_ref().err())
    };
    let obstacle = obstacles().find(|obstacle| !matches!(obstacle, Obstacle::NoConnection));
    let obstacle = obstacle.or_else(|| obstacles().next()).copied();
    let because = obstacle.map_or(String::new(), |obstacle| format!(" ({obstacle})"));
    let hint = match obstacle.map(advice) {
        Some(hint) if !hint.is_empty() => hint,
        _ => "`trine status` shows the replicas and their roles",
    };
    Failure::not_reachable(format!("{what}{because}; nothing was backed up"), hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::top::tests::node;

    /// Behind mapped ports a replica answers at another address than the one by which the replicas know each other. The
    /// backup was read from the latter, which the client does not reach.
    #[test]
    fn a_replica_is_read_where_it_has_answered() {
        let mapped = |node_id: u16| SocketAddr::from(([10, 77, 0, 1], 7_490 + node_id));
        let reports = [1, 2, 3].map(|node_id| {
            let mut node = node(node_id, 0);
            node.replica.incarnation = node_id.to_string();
            node.replica.cluster = Some("c".to_owned());
            assert_ne!(node.replica.address, mapped(node_id));
            Report {
                address: mapped(node_id),
                answer: Ok(node),
            }
        });
        let found = choose(&reports, Wanted::Any).unwrap();
        let found: Vec<_> = found.iter().map(|one| (one.node_id, one.address)).collect();
        assert_eq!(found, [2, 3, 1].map(|id| (u32::from(id), mapped(id))));
    }
}
