//! From which addresses do messages between replicas count?
//!
//! Any process can write a peer message. It counts only if its session leads to an address that this replica has reason
//! to trust. Trusted are a member's address, one of `--peers`, and one that was named by an answer over a session that
//! this replica opened itself. Addresses are compared, never incarnations. A member that was restarted in memory mode
//! has a new incarnation, which a replica that was cut off meanwhile does not know. The group may need that member's
//! vote.

use std::collections::VecDeque;
use std::net::SocketAddr;
use trine_protocol::message::NodeId;
use trine_protocol::route::is_same_address;

use crate::config::LEARNED_ADDRESSES_MAX;

/// The addresses that this replica trusts beside those of the members.
#[derive(Debug)]
pub(crate) struct Addresses {
    /// `--peers`, without this replica itself.
    peers: Vec<(NodeId, SocketAddr)>,
    /// Named by answers or by operators, the latest at the end, at most [`LEARNED_ADDRESSES_MAX`].
    learned: VecDeque<SocketAddr>,
    /// Whether `peers` tells which node has which address, or only which addresses to ask.
    has_node_ids: bool,
}

impl Addresses {
    pub(crate) fn new(peers: Vec<(NodeId, SocketAddr)>) -> Self {
        Self {
            peers,
            learned: VecDeque::new(),
            has_node_ids: true,
        }
    }

    /// `--peers` only says which addresses to ask: the node ids in it were made up.
    pub(crate) fn without_node_ids(mut self) -> Self {
        self.has_node_ids = false;
        self
    }

    /// The other nodes that were named at the start.
    pub(crate) fn peers(&self) -> &[(NodeId, SocketAddr)] {
        &self.peers
    }

    /// Whether `--peers` names this address for this node.
    pub(crate) fn lists(&self, node_id: NodeId, address: SocketAddr) -> bool {
        let is_it =
            |&(other, at): &(NodeId, SocketAddr)| other == node_id && is_same_address(at, address);
        self.has_node_ids && self.peers.iter().any(is_it)
    }

    /// Whether `--peers` names an address for this node.
    pub(crate) fn lists_node(&self, node_id: NodeId) -> bool {
        self.has_node_ids && self.peers.iter().any(|&(other, _)| other == node_id)
    }

    /// An answer over a session that this replica has opened names this address, or an operator does.
    pub(crate) fn learn(&mut self, address: SocketAddr) {
        if self.learned.contains(&address) {
            return;
        }
        if self.learned.len() == LEARNED_ADDRESSES_MAX {
            self.learned.pop_front();
        }
        self.learned.push_back(address);
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = SocketAddr> {
        let peers = self.peers.iter().map(|&(_, address)| address);
        peers.chain(self.learned.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn learned_addresses_are_bounded_and_the_oldest_gives_way() {
        let mut addresses = Addresses::new(vec![(NodeId(1), address("10.0.0.1:7"))]);
        for port in 1..=LEARNED_ADDRESSES_MAX as u16 + 1 {
            addresses.learn(SocketAddr::from(([10, 0, 0, 2], port)));
            addresses.learn(SocketAddr::from(([10, 0, 0, 2], port)));
        }
        let all: Vec<SocketAddr> = addresses.iter().collect();
        assert_eq!(all.len(), 1 + LEARNED_ADDRESSES_MAX);
        assert_eq!(all[1], address("10.0.0.2:2"));
    }
}
