//! Asks each replica of a group for its status separately.

use std::net::SocketAddr;

use trine_client::{Probed, Report, leader_of, probe_status};
use trine_protocol::status::Status;
use trine_transport::Config;
use trine_transport::backend::MonotonicClock;
use trine_transport::time::Duration;

use crate::endpoint::random_seed;
use crate::failure::Failure;
use crate::network::{Network, Opened};
use crate::peers;
use crate::renewal::Renewal;

/// A replica that does not answer within this time is shown as silent.
pub const SURVEY_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(1);

/// Asks all of `addresses` at once for their status.
pub fn ask<N: Network>(
    network: &N,
    addresses: &[SocketAddr],
    limit: Duration,
) -> Result<Vec<Report>, Failure> {
    let report = |probed: Probed| Report {
        address: probed.address,
        answer: probed.status,
    };
    let probed = ask_in_packets_of(network, addresses, None, limit)?;
    Ok(probed.into_iter().map(report).collect())
}

/// The same, in sessions whose packets have at most so many bytes, on any path; `None` for the network's own sizes.
pub fn ask_in_packets_of<N: Network>(
    network: &N,
    addresses: &[SocketAddr],
    bytes: Option<u16>,
    limit: Duration,
) -> Result<Vec<Probed>, Failure> {
    let Opened {
        backend,
        endpoint,
        route_of,
        ..
    } = network.call(addresses)?;
    let transport = Config {
        mtu: bytes,
        ..endpoint
    };
    let clock = MonotonicClock;
    // No two askers have the same seed, not even one after the other on the same port.
    let seed = random_seed()?;
    probe_status(backend, clock, transport, &route_of, addresses, limit, seed)
        .map_err(|error| Failure::usage(error.to_string(), ""))
}

/// A group that is asked again and again, as `trine top` does. Its names are looked up again while no replica answers.
pub struct Survey {
    addresses: Vec<SocketAddr>,
    renewal: Renewal,
    /// Whether names have led to new addresses since a replica answered last.
    is_elsewhere: bool,
}

impl Survey {
    /// Of a list of peers. Errors: none of its names has an address.
    pub fn of(list: &str) -> Result<Self, Failure> {
        let addresses = peers::resolve(list)?;
        let renewal = Renewal::of(list, &addresses);
        Ok(Self {
            addresses,
            renewal,
            is_elsewhere: false,
        })
    }

    /// Where the listed replicas are, as far as is known.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Asks all replicas once, each for at most `limit`.
    pub fn ask<N: Network>(
        &mut self,
        network: &N,
        limit: Duration,
    ) -> Result<Vec<Report>, Failure> {
        let reports = ask_everybody(network, &self.addresses, limit)?;
        self.follow(&reports);
        Ok(reports)
    }

    /// Looks for the replicas elsewhere while none answers. Once one does, the addresses that no replica answers at are
    /// forgotten: those of members are asked all the same, because members name each other.
    fn follow(&mut self, reports: &[Report]) {
        let answers = |at: &SocketAddr| {
            let of_it = reports.iter().find(|report| report.address == *at);
            of_it.is_some_and(|report| report.answer.is_ok())
        };
        if reports.iter().any(|report| report.answer.is_ok()) {
            if std::mem::take(&mut self.is_elsewhere) {
                self.addresses.retain(answers);
            }
            return;
        }
        for address in self.renewal.poll() {
            if !self.addresses.contains(&address) {
                self.addresses.push(address);
                self.is_elsewhere = true;
            }
        }
    }
}

/// Asks the named replicas, and then the other group members that these know.
pub fn ask_everybody<N: Network>(
    network: &N,
    addresses: &[SocketAddr],
    limit: Duration,
) -> Result<Vec<Report>, Failure> {
    let mut reports = ask(network, addresses, limit)?;
    let members = informant(&reports)
        .map(|status| status.members.as_slice())
        .unwrap_or_default();
    let unnamed: Vec<SocketAddr> = members
        .iter()
        .map(|member| member.address)
        .filter(|address| !addresses.contains(address))
        .collect();
    if !unnamed.is_empty() {
        reports.extend(ask(network, &unnamed, limit)?);
    }
    Ok(reports)
}

/// The report whose list of members counts: the leader's, else that of the replica that has applied most.
pub fn informant(reports: &[Report]) -> Option<&Status> {
    let known = reports.iter().filter_map(Report::status);
    let members = known.filter(|status| !status.members.is_empty());
    leader_of(reports).or_else(|| members.max_by_key(|status| (status.applied, status.term)))
}

/// Why a reached group makes no progress: it has no leader. `None` if it has one or no report tells.
pub fn why_it_stands_still(reports: &[Report]) -> Option<String> {
    if leader_of(reports).is_some() {
        return None;
    }
    let status = informant(reports)?;
    let answers = |address: SocketAddr| {
        let mut known = reports.iter().filter_map(Report::status);
        known.any(|status| status.address == address)
    };
    let voters = || status.members.iter().filter(|member| member.voter);
    let silent: Vec<String> = voters()
        .filter(|member| !answers(member.address))
        .map(|member| format!("{} ({})", member.node_id, member.address))
        .collect();
    let silence = match &silent[..] {
        [] => "all of its voters answer, so it may be electing one".to_owned(),
        silent => format!(
            "of its {} voters, these do not answer: {}",
            voters().count(),
            silent.join(", ")
        ),
    };
    Some(format!("the group has no leader; {silence}"))
}
