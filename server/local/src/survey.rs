//! The status of every replica of a group, and the group's status that follows from them.

use std::net::SocketAddr;

use trine_client::{Obstacle, ProbeError, Probed, probe_status};
use trine_protocol::RouteOf;
use trine_protocol::endpoint_config;
use trine_protocol::node_status::NodeStatus;
use trine_protocol::status::{MemberStatus, Role, Status};
use trine_transport::backend::{Backend, BackendError, MonotonicClock, UdpBackend, UdpConfig};
use trine_transport::time::{Clock, Duration};

use crate::local_address_towards;

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

/// The question could not even be sent.
#[derive(Debug, thiserror::Error)]
pub enum SurveyError {
    /// No socket.
    #[error(transparent)]
    Socket(#[from] BackendError),
    /// The socket was there and could not be used.
    #[error(transparent)]
    Probe(#[from] ProbeError),
}

/// Asks all of `addresses` in parallel over UDP and waits at most `limit` for their answers.
pub fn survey(addresses: &[SocketAddr], limit: Duration) -> Result<Vec<Report>, SurveyError> {
    let local = local_address_towards(addresses);
    let backend = UdpBackend::bind(local, &UdpConfig::default())?;
    survey_over(backend, &(Box::new(Some) as _), addresses, limit)
}

/// As [`survey()`], over any backend.
pub fn survey_over<B: Backend>(
    backend: B,
    route_of: &RouteOf<B::Route>,
    addresses: &[SocketAddr],
    limit: Duration,
) -> Result<Vec<Report>, SurveyError> {
    let clock = MonotonicClock;
    // No two probes are alike, not even consecutive ones on the same port.
    let seed = u64::from(std::process::id()) << 32 ^ clock.now().as_nanos();
    let transport = endpoint_config();
    let probed = probe_status(backend, clock, transport, route_of, addresses, limit, seed)?;
    let report = |Probed { address, status }| Report {
        address,
        answer: status,
    };
    Ok(probed.into_iter().map(report).collect())
}

/// The one leader of the group: the replica that claims it in the newest term that any answer
/// knows.
#[must_use]
pub fn leader_of(reports: &[Report]) -> Option<&Status> {
    let known = || reports.iter().filter_map(Report::status);
    let newest = known().map(|status| status.term).max()?;
    known().find(|status| status.role == Role::Leader && status.term == newest)
}

/// The number of replicas that vote, answer, and follow the leader's term; nothing without a
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
        let serves = matches!(status.role, Role::Leader | Role::Follower);
        serves && status.term == leader.term && member.is_some_and(|member| member.voter)
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
/// A member that does not answer may still have its memory. It has certainly lost it only if
/// another replica fills its place.
#[must_use]
pub fn majority_gone(reports: &[Report]) -> bool {
    if leader_of(reports).is_some() {
        return false;
    }
    let statuses = || reports.iter().filter_map(Report::status);
    statuses().any(|survivor| {
        let voters = || survivor.members.iter().filter(|member| member.voter);
        let is_gone = |member: &MemberStatus| {
            let same_place = statuses().find(|status| status.address == member.address);
            same_place.is_some_and(|status| status.incarnation != member.incarnation)
        };
        let gone = voters().filter(|member| is_gone(member)).count();
        voters().count() - gone <= voters().count() / 2 && gone > 0
    })
}
