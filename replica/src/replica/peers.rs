//! What a replica is told about its peers when it starts.

use std::net::SocketAddr;

use trine_protocol::message::{NodeId, kind};

use crate::config::{ConfigError, NODES_MAX};

/// Peers whose addresses are known.
pub(super) fn known(peers: &[(NodeId, SocketAddr)]) -> Vec<(NodeId, Option<SocketAddr>)> {
    let peers = peers.iter();
    peers.map(|&(node_id, at)| (node_id, Some(at))).collect()
}

/// Every node once, each at an address of its own, this one among them.
pub(super) fn check_peers(
    node_id: NodeId,
    address: SocketAddr,
    peers: &[(NodeId, SocketAddr)],
) -> Result<(), ConfigError> {
    let error = ConfigError::Peers { node_id: node_id.0 };
    let mut node_ids: Vec<_> = peers.iter().map(|&(node_id, _)| node_id).collect();
    let mut addresses: Vec<_> = peers.iter().map(|&(_, address)| address).collect();
    node_ids.sort_unstable();
    addresses.sort_unstable();
    let distinct = node_ids.windows(2).all(|pair| pair[0] != pair[1])
        && addresses.windows(2).all(|pair| pair[0] != pair[1]);
    if !distinct || peers.len() > NODES_MAX || !peers.contains(&(node_id, address)) {
        return Err(error);
    }
    Ok(())
}

/// Whether any process may send such a request: to be taken in, or with an admin command. Those check the address
/// themselves.
pub(crate) fn is_for_anybody(kind: u8) -> bool {
    matches!(kind, kind::JOIN | kind::ADMIN)
}
