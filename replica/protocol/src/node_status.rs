//! The status of a node: its replica, its sessions to peers, and the endpoint under both.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::status::Status;

/// The full status of a node: the answer to a STATUS request in JSON form.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct NodeStatus {
    /// The replica.
    pub replica: Status,
    /// The sessions that this node has opened to present members.
    pub links: Vec<LinkStatus>,
    /// The endpoint under both.
    pub transport: TransportStatus,
    /// The keys of members that it uses and takes; nothing without keys.
    #[serde(default)]
    pub member_roots: Option<MemberRoots>,
    /// Who has come without a key, where keys are accepted; nothing without keys.
    #[serde(default)]
    pub unsealed_callers: Option<UnsealedCallers>,
}

/// The member roots of a node, by their fingerprints.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemberRoots {
    /// `settled`, or the step of the change of the member root: `begun` or `switched`.
    pub step: String,
    /// The root that its own sessions use.
    pub used: String,
    /// A second one that it takes from others, while the root changes.
    pub accepted: Option<String>,
    /// Why it did not take the key file when it was last asked to read it again; nothing if it did.
    #[serde(default)]
    pub not_taken: Option<String>,
}

impl MemberRoots {
    /// Whether it takes sessions of members with this root.
    #[must_use]
    pub fn takes(&self, root: &str) -> bool {
        self.used == root || self.accepted.as_deref() == Some(root)
    }
}

/// Sessions that others have opened to a node without a key.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct UnsealedCallers {
    /// How many.
    pub sessions: u64,
    /// Where the first of them come from.
    pub from: Vec<String>,
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
    /// Whether nothing was sent over it of late, as over a follower's links and those of a former leader.
    #[serde(default)]
    pub idle: bool,
    /// Sessions that ended.
    pub sessions_lost: u64,
    /// Smoothed round-trip time, once there is one; nothing while the link is idle, because it would be an old one.
    pub rtt_ns: Option<u64>,
    /// The smallest round-trip time, under the same conditions.
    pub rtt_ns_min: Option<u64>,
    /// Packets retransmitted.
    pub retransmissions: Option<u64>,
    /// Credits agreed on.
    #[serde(default)]
    pub credits: Option<u16>,
    /// Credits in use.
    #[serde(default)]
    pub credits_in_use: Option<u16>,
    /// Times that it had something to send but no credit.
    #[serde(default)]
    pub credit_stalls: Option<u64>,
    /// The present retransmission timeout.
    #[serde(default)]
    pub rto_ns: Option<u64>,
    /// Congestion control's sending rate; zero with congestion control off.
    #[serde(default)]
    pub rate_bytes_per_second: Option<u64>,
}

/// The endpoint's counters that matter to people.
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
    /// Packets retransmitted.
    pub retransmissions: u64,
    /// Received packets that were dropped for whatever reason.
    pub packets_dropped: u64,
    /// Memory that message buffers have taken; as much of each size as was ever needed at one time.
    #[serde(default)]
    pub buffer_bytes: u64,
    /// Those of them that went back to the system after a burst.
    #[serde(default)]
    pub buffer_bytes_given_back: u64,
    /// The parts of that memory.
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
