//! The addresses from which messages between replicas count.
//!
//! Any process can write a peer message. It counts only if its session leads to an address that this replica has reason
//! to trust. Trusted are a member's address, one of `--peers`, and one that was named by an answer over a session that
//! this replica opened itself. Addresses are compared, never incarnations. A member that was restarted in memory mode
//! has a new incarnation, which a replica that was cut off meanwhile does not know. The group may need that member's
//! vote.

use std::collections::VecDeque;
use std::net::SocketAddr;

use trine_canary as canary;
use trine_protocol::message::NodeId;
use trine_protocol::route::is_same_address;

use crate::config::{CANDIDATES_MAX, LEARNED_ADDRESSES_MAX};

/// The addresses that this replica trusts beside those of the members.
#[derive(Debug)]
pub(crate) struct Addresses {
    /// `--peers`, without this replica itself.
    listed: Vec<Listed>,
    /// Named by answers or by operators, the latest at the end, at most [`LEARNED_ADDRESSES_MAX`].
    learned: VecDeque<SocketAddr>,
    /// Whether `listed` tells which node has which address, or only which addresses to ask.
    has_node_ids: bool,
}

/// A node in `--peers`.
#[derive(Debug)]
struct Listed {
    node_id: NodeId,
    /// What its name stands for, the one to use first; none while that is not known. At most [`CANDIDATES_MAX`].
    addresses: Vec<SocketAddr>,
}

impl Addresses {
    pub(crate) fn new(peers: Vec<(NodeId, SocketAddr)>) -> Self {
        let listed = peers.into_iter().map(|(node_id, address)| Listed {
            node_id,
            addresses: vec![address],
        });
        Self {
            listed: listed.collect(),
            learned: VecDeque::new(),
            has_node_ids: true,
        }
    }

    /// `--peers` only says which addresses to ask: the node ids in it were made up.
    pub(crate) fn without_node_ids(mut self) -> Self {
        self.has_node_ids = false;
        self
    }

    /// `--peers` names this node, and the name stands for these addresses now. None says that nobody knows now, which
    /// takes no address away.
    pub(crate) fn set_listed(&mut self, node_id: NodeId, addresses: &[SocketAddr]) {
        let mut addresses = addresses.to_vec();
        addresses.truncate(CANDIDATES_MAX);
        match self
            .listed
            .iter_mut()
            .find(|listed| listed.node_id == node_id)
        {
            Some(_) if addresses.is_empty() && !canary::planted("a failed lookup forgets") => {}
            Some(listed) => listed.addresses = addresses,
            None => self.listed.push(Listed { node_id, addresses }),
        }
    }

    /// The other nodes of `--peers`, each with the address that its name stands for, if that is known.
    pub(crate) fn peers(&self) -> impl Iterator<Item = (NodeId, Option<SocketAddr>)> {
        let listed = self.listed.iter();
        listed.map(|listed| (listed.node_id, listed.addresses.first().copied()))
    }

    /// Whether `--peers` names this address for this node.
    pub(crate) fn lists(&self, node_id: NodeId, address: SocketAddr) -> bool {
        let mut of_node = self.listed.iter().filter(|other| other.node_id == node_id);
        let is_it = |at: &SocketAddr| is_same_address(*at, address);
        self.has_node_ids && of_node.any(|listed| listed.addresses.iter().any(is_it))
    }

    /// Whether `--peers` names this node, with an address or without.
    pub(crate) fn lists_node(&self, node_id: NodeId) -> bool {
        self.has_node_ids && self.listed.iter().any(|other| other.node_id == node_id)
    }

    /// Where the list says that a node may be. A list that does not tell its nodes apart names any for each.
    pub(crate) fn candidates(&self, node_id: NodeId) -> impl Iterator<Item = SocketAddr> {
        let listed = self.listed.iter();
        let of_node = listed.filter(move |other| !self.has_node_ids || other.node_id == node_id);
        of_node.flat_map(|listed| listed.addresses.iter().copied())
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

    /// Those of `--peers`.
    pub(crate) fn of_peers(&self) -> impl Iterator<Item = SocketAddr> {
        let listed = self.listed.iter();
        listed.flat_map(|listed| listed.addresses.iter().copied())
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = SocketAddr> {
        self.of_peers().chain(self.learned.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_name_without_an_address_is_listed_and_gets_one_later() {
        let mut addresses = Addresses::new(Vec::new());
        let (node_id, at) = (NodeId(2), address("10.0.0.2:7"));
        addresses.set_listed(node_id, &[]);
        assert!(addresses.lists_node(node_id) && !addresses.lists(node_id, at));
        assert_eq!(addresses.peers().collect::<Vec<_>>(), [(node_id, None)]);
        let many: Vec<_> = (1..=20)
            .map(|n| SocketAddr::from(([10, 0, 0, n], 7)))
            .collect();
        addresses.set_listed(node_id, &many);
        assert!(addresses.lists(node_id, at) && !addresses.lists(NodeId(3), at));
        assert_eq!(
            addresses.peers().collect::<Vec<_>>(),
            [(node_id, Some(many[0]))]
        );
        assert_eq!(addresses.of_peers().count(), CANDIDATES_MAX);
        // A later lookup fails.
        addresses.set_listed(node_id, &[]);
        assert!(addresses.lists(node_id, at));
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
