//! Checks that packets of each size arrive from the replicas. Their status, which fills several packets, is requested in sessions
//! of small packets and of large ones.

use std::net::SocketAddr;

use trine_base::failure::Failure;
use trine_base::network::Network;
use trine_base::survey::{SURVEY_TIMEOUT, ask_in_packets_of};
use trine_client::{Obstacle, Probed};
use trine_transport::backend::{MTU_DEFAULT, PACKET_EVERYWHERE};

use super::Finding;

const PACKETS: &str = "packet size";

/// The outcome of asking a replica for an answer in packets of one size.
struct PacketProbe {
    address: SocketAddr,
    /// Bytes of the session's largest packet. `None` if there was no session.
    packet_bytes: Option<u16>,
    outcome: ProbeOutcome,
}

#[derive(Copy, Clone, PartialEq, Eq)]
enum ProbeOutcome {
    Arrived,
    /// The replica was there, in short packets, and no answer came.
    Lost,
    /// It was not there, or would not answer.
    Untold,
}

impl PacketProbe {
    fn of(probed: Probed) -> Self {
        let outcome = match (&probed.status, probed.packet_bytes) {
            (Ok(_), _) => ProbeOutcome::Arrived,
            (Err(Obstacle::NoAnswer | Obstacle::NoConnection), Some(_)) => ProbeOutcome::Lost,
            (Err(_), _) => ProbeOutcome::Untold,
        };
        Self {
            address: probed.address,
            packet_bytes: probed.packet_bytes,
            outcome,
        }
    }
}

/// Asks the replicas at `addresses`, with packets that every network carries and with larger ones.
pub(super) fn group<N: Network>(network: &N, addresses: &[SocketAddr]) -> Vec<Finding> {
    if !network.is_ip() {
        return Vec::new();
    }
    let everywhere = PACKET_EVERYWHERE as u16;
    let larger = network.settings().mtu.unwrap_or(MTU_DEFAULT as u16);
    let ask = |bytes| -> Result<Vec<PacketProbe>, Failure> {
        let limit = SURVEY_TIMEOUT.into();
        let probed = ask_in_packets_of(network, addresses, Some(bytes), limit)?;
        Ok(probed.into_iter().map(PacketProbe::of).collect())
    };
    match ask(everywhere).and_then(|small| Ok((small, ask(larger.max(everywhere))?))) {
        Ok((small, large)) => judge(&small, &large),
        // The check of the keys tells why nobody could be asked.
        Err(_) => Vec::new(),
    }
}

/// One finding for all replicas, or one for each whose packets do not arrive.
fn judge(small: &[PacketProbe], large: &[PacketProbe]) -> Vec<Finding> {
    let both = || small.iter().zip(large);
    let lost: Vec<Finding> = both()
        .filter_map(|(small, large)| lost(small, large))
        .collect();
    if !lost.is_empty() {
        return lost;
    }
    let answered = both().filter(|(small, large)| {
        small.outcome == ProbeOutcome::Arrived && large.outcome == ProbeOutcome::Arrived
    });
    let sizes = answered.filter_map(|(_, large)| large.packet_bytes);
    match sizes.max() {
        None => vec![Finding::not_here(PACKETS, "no replica answers")],
        Some(bytes) => vec![Finding::good(
            PACKETS,
            format!("answers arrive in packets of {bytes} bytes"),
        )],
    }
}

/// The size of which this replica's packets do not arrive, if there is one.
fn lost(small: &PacketProbe, large: &PacketProbe) -> Option<Finding> {
    let of = |asked: &PacketProbe| {
        asked
            .packet_bytes
            .filter(|_| asked.outcome == ProbeOutcome::Lost)
    };
    if let Some(bytes) = of(small) {
        return Some(Finding::wrong(
            PACKETS,
            format!(
                "packets of {bytes} bytes from {} do not arrive, short ones do",
                small.address
            ),
            "every network that can carry IPv6 carries this size: something on the path drops \
             large packets",
            "tracepath HOST    # shows where the path MTU drops; docs/operations.md, \"Packet \
             sizes\"",
        ));
    }
    let bytes = of(large).filter(|_| small.outcome == ProbeOutcome::Arrived)?;
    Some(Finding::wrong(
        PACKETS,
        format!(
            "packets of {bytes} bytes from {} do not arrive, smaller ones do",
            large.address
        ),
        "--mtu is more than the path carries, so sessions stall and restart with smaller packets",
        "trine serve ... --mtu 1232    # or without --mtu; docs/operations.md, \"Packet sizes\"",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::doctor::Severity;

    fn asked(packet_bytes: Option<u16>, outcome: ProbeOutcome) -> PacketProbe {
        PacketProbe {
            address: "10.0.0.1:7471".parse().unwrap(),
            packet_bytes,
            outcome,
        }
    }

    fn verdict(small: PacketProbe, large: PacketProbe) -> (Severity, String) {
        let mut findings = judge(&[small], &[large]);
        let finding = findings.pop().expect("one finding");
        assert!(findings.is_empty());
        (finding.verdict, finding.found)
    }

    #[test]
    fn the_size_that_does_not_arrive_is_named() {
        let good = || asked(Some(1_232), ProbeOutcome::Arrived);
        let (is, found) = verdict(good(), asked(Some(1_472), ProbeOutcome::Arrived));
        assert_eq!(is, Severity::Good);
        assert!(found.contains("1472"), "{found}");

        let (is, found) = verdict(good(), asked(Some(1_472), ProbeOutcome::Lost));
        assert_eq!(is, Severity::Wrong);
        assert!(found.contains("packets of 1472"), "{found}");

        let silent = || asked(Some(1_232), ProbeOutcome::Lost);
        let (is, found) = verdict(silent(), silent());
        assert_eq!(is, Severity::Wrong);
        assert!(found.contains("packets of 1232"), "{found}");

        let away = || asked(None, ProbeOutcome::Untold);
        assert_eq!(verdict(away(), away()).0, Severity::NotHere);
    }
}
