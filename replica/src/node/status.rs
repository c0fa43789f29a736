//! The node's whole status, for people and tools: the replica's, and what the transport knows about each peer.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use trine_transport::backend::Route;
use trine_transport::buf::ClassStats;
use trine_transport::{Cx, EndpointStats};

use super::Node;
use super::links::{Link, LinkState};
use crate::output::Class;
use crate::status::Status;

/// Everything that a node says about itself: the answer to a STATUS request in JSON form.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct NodeStatus {
    /// The replica.
    pub replica: Status,
    /// The sessions that this node has opened to its peers.
    pub links: Vec<LinkStatus>,
    /// The endpoint under both.
    pub transport: TransportStatus,
}

/// The session to one peer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LinkStatus {
    /// Where the peer is reached.
    pub address: SocketAddr,
    /// `raft` or `bulk`.
    pub class: String,
    /// `up`, `connecting` or `down`.
    pub state: String,
    /// Sessions that ended.
    pub sessions_lost: u64,
    /// Smoothed round-trip time, once there is one.
    pub rtt_ns: Option<u64>,
    /// The smallest round-trip time, once there is one.
    pub rtt_ns_min: Option<u64>,
    /// Packets sent again.
    pub retransmissions: Option<u64>,
    /// Credits agreed on.
    #[serde(default)]
    pub credits: Option<u16>,
    /// Credits in use.
    #[serde(default)]
    pub credits_in_use: Option<u16>,
    /// Times that there was something to send but no credit.
    #[serde(default)]
    pub credit_stalls: Option<u64>,
    /// The present retransmission timeout.
    #[serde(default)]
    pub rto_ns: Option<u64>,
    /// The rate at which congestion control lets it send; zero with congestion control off.
    #[serde(default)]
    pub rate_bytes_per_second: Option<u64>,
}

/// The endpoint's counters that a person asks for.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct TransportStatus {
    /// Sessions that peers and clients opened.
    pub sessions_server: u64,
    /// Sessions that this node opened.
    pub sessions_client: u64,
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets received.
    pub packets_received: u64,
    /// Packets sent again.
    pub retransmissions: u64,
    /// Received packets that were dropped for whatever reason.
    pub packets_dropped: u64,
    /// Memory that message buffers have taken; as much as they ever needed at a time, of each size.
    #[serde(default)]
    pub buffer_bytes: u64,
    /// What that memory consists of.
    #[serde(default)]
    pub buffers: Vec<BufferStatus>,
}

/// The message buffers of one size.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct BufferStatus {
    /// Bytes of a message that one of them holds.
    pub capacity: u64,
    /// Memory that they take.
    pub bytes: u64,
    /// How many there are.
    pub count: u64,
    /// How many of them hold a message at the moment.
    pub in_use: u64,
}

impl TransportStatus {
    fn of(stats: &EndpointStats, buffer_bytes: usize, buffers: Vec<BufferStatus>) -> Self {
        Self {
            sessions_server: stats.sessions_server,
            sessions_client: stats.sessions_client,
            packets_sent: stats.packets_sent,
            packets_received: stats.packets_received,
            retransmissions: stats.retransmissions,
            packets_dropped: stats.drops.total(),
            buffer_bytes: buffer_bytes as u64,
            buffers,
        }
    }
}

impl<R: Route> Node<R> {
    /// Everything that there is to say about this node.
    #[must_use]
    pub fn status(&self, cx: &Cx<'_, R>) -> NodeStatus {
        NodeStatus {
            replica: self.replica().status(cx.now()),
            links: self
                .links
                .iter()
                .map(|link| link_status(link, cx))
                .collect(),
            transport: TransportStatus::of(
                &cx.stats(),
                cx.buffer_bytes(),
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

fn link_status<R: Route>(link: &Link, cx: &Cx<'_, R>) -> LinkStatus {
    let stats = link.session().and_then(|session| cx.session_stats(session));
    let sampled = stats.filter(|stats| stats.rtt_samples > 0);
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
        sessions_lost: link.sessions_lost,
        rtt_ns: sampled.map(|stats| stats.rtt_ns_smoothed),
        rtt_ns_min: sampled.map(|stats| stats.rtt_ns_min),
        retransmissions: stats.map(|stats| stats.retransmissions),
        credits: stats.map(|stats| stats.credits),
        credits_in_use: stats.map(|stats| stats.credits_in_use),
        credit_stalls: stats.map(|stats| stats.credit_stalls),
        rto_ns: stats.map(|stats| stats.rto_ns),
        rate_bytes_per_second: stats.map(|stats| stats.rate_bytes_per_second),
    }
}
