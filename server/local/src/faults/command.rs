//! What can be asked of a replica with fault injection, and what it answers.

use std::net::SocketAddr;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use trine_transport::backend::{Direction, FaultCounts};

use super::counts;

/// Direction of the packets, as seen from the replica.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// Packets that the replica sends.
    Out,
    /// Packets that it receives.
    In,
    /// Both.
    Both,
}

impl Way {
    /// The directions that it stands for.
    pub fn directions(self) -> &'static [Direction] {
        match self {
            Self::Out => &[Direction::Outbound],
            Self::In => &[Direction::Inbound],
            Self::Both => &[Direction::Outbound, Direction::Inbound],
        }
    }
}

/// A request to the fault injector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase")]
pub enum FaultCommand {
    /// Only the answer is wanted.
    Show,
    /// From now on packets of the link suffer these faults.
    Set {
        /// A node id or an address; without one, all links that have no rule of their own.
        link: Option<String>,
        /// Which way.
        way: Way,
        /// As `--fault` takes them.
        faults: String,
    },
    /// The link's own rule ends; without a link, all rules do.
    Clear {
        /// A node id or an address.
        link: Option<String>,
    },
}

/// The answer to every request that was followed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct State {
    /// The replica's node id.
    #[serde(rename = "replica")]
    pub node_id: u32,
    /// Where it is.
    pub address: SocketAddr,
    /// The process, as its system knows it. What it says itself does not count.
    pub pid: u32,
    /// The faults of links without a rule of their own, what is sent and what is received; empty is none.
    pub out: String,
    /// Of what is received.
    #[serde(rename = "in")]
    pub inward: String,
    /// Links with rules of their own.
    pub links: Vec<Linked>,
    /// The faults that fired in the replica's present incarnation.
    #[serde(with = "counts")]
    pub fired: FaultCounts,
}

impl State {
    /// Whether nothing is damaged.
    pub fn is_clear(&self) -> bool {
        self.out.is_empty() && self.inward.is_empty() && self.links.is_empty()
    }
}

/// A link's own rule. Where it says nothing, the general one holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Linked {
    /// Where it is.
    pub address: SocketAddr,
    /// The node id that has this address, if one is known.
    #[serde(rename = "replica")]
    pub node_id: Option<u32>,
    /// Of what is sent.
    pub out: Option<String>,
    /// Of what is received.
    #[serde(rename = "in")]
    pub inward: Option<String>,
}
