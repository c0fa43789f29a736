//! The node's whole status, for people and tools: the replica's, and the transport's facts about each peer.

use trine_protocol::node_status::{BufferStatus, LinkStatus, NodeStatus, TransportStatus};
use trine_protocol::program::Program;
use trine_transport::backend::Route;
use trine_transport::buf::ClassStats;
use trine_transport::time::Duration;
use trine_transport::{Cx, EndpointStats};

use super::Node;
use super::callers::keys_status;
use super::links::{Link, LinkState};
use crate::output::Class;

fn transport_status(
    stats: &EndpointStats,
    buffer_bytes: usize,
    buffer_bytes_given_back: usize,
    buffers: Vec<BufferStatus>,
) -> TransportStatus {
    TransportStatus {
        sessions_server: stats.sessions_server,
        sessions_client: stats.sessions_client,
        packets_sent: stats.packets_sent,
        packets_received: stats.packets_received,
        retransmissions: stats.retransmissions,
        packets_dropped: stats.drops.total(),
        buffer_bytes: buffer_bytes as u64,
        buffer_bytes_given_back: buffer_bytes_given_back as u64,
        buffers,
    }
}

impl<R: Route> Node<R> {
    /// Everything that there is to say about this node.
    #[must_use]
    pub fn status(&self, cx: &Cx<'_, R>) -> NodeStatus {
        let mut replica = self.replica().status(cx.now());
        let oldest_write = self
            .disk
            .as_ref()
            .and_then(|disk| disk.oldest_write(cx.now()));
        replica.log.oldest_write_ns = oldest_write.map_or(0, Duration::as_nanos);
        // A replica that knows no members yet has links to whom it asks about them.
        let members = &replica.members;
        let timeout = self.replica().election_timeout();
        let is_present = |link: &&Link| {
            members.is_empty() || members.iter().any(|member| member.address == link.address)
        };
        NodeStatus {
            links: self
                .links
                .iter()
                .filter(is_present)
                .map(|link| link_status(link, timeout, cx))
                .collect(),
            replica,
            member_roots: self.member_roots.clone(),
            unsealed_callers: self.unsealed_status(cx),
            keys: Some(keys_status(cx)),
            program: Some(Program::this()),
            transport: transport_status(
                &cx.stats(),
                cx.buffer_bytes(),
                cx.buffer_bytes_given_back(),
                cx.buffer_classes().map(buffer_status).collect(),
            ),
        }
    }
}

fn buffer_status(class: ClassStats) -> BufferStatus {
    BufferStatus {
        capacity: class.capacity as u64,
        bytes: class.region_bytes as u64,
        count: class.blocks as u64,
        in_use: class.blocks_in_use as u64,
    }
}

fn link_status<R: Route>(link: &Link, election_timeout: Duration, cx: &Cx<'_, R>) -> LinkStatus {
    let stats = link.session().and_then(|session| cx.session_stats(session));
    let idle = link.is_idle(cx.now(), election_timeout);
    // A round trip of the past would pass for one of today.
    let sampled = stats.filter(|stats| stats.rtt_samples > 0 && !idle);
    let state = match link.state {
        LinkState::Up(_) => "up",
        LinkState::Connecting(_) => "connecting",
        LinkState::Down { .. } => "down",
    };
    let class = match link.class {
        Class::Raft => "raft",
        Class::Bulk => "bulk",
    };
    LinkStatus {
        address: link.address,
        class: class.to_owned(),
        state: state.to_owned(),
        idle,
        sessions_lost: link.sessions_lost,
        rtt_ns: sampled.map(|stats| stats.rtt_ns_smoothed),
        rtt_ns_min: sampled.map(|stats| stats.rtt_ns_min),
        retransmissions: stats.map(|stats| stats.retransmissions),
        credits: stats.map(|stats| stats.credits),
        credits_in_use: stats.map(|stats| stats.credits_in_use),
        credit_stalls: stats.map(|stats| stats.credit_stalls),
        rto_ns: stats.map(|stats| stats.rto_ns),
        rate_bytes_per_second: stats.map(|stats| stats.rate_bytes_per_second),
        packet_bytes: stats.map(|stats| stats.mtu),
    }
}
