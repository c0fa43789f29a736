//! The words of a command that reaches the run's group over the run's network, whichever program it is given to.

use std::ffi::OsString;
use std::net::SocketAddr;

use trine_base::network::Network;

/// A command with its group and its network.
pub(super) fn words_of_clients<N: Network>(
    network: &N,
    command: impl IntoIterator<Item = OsString>,
    peers: &str,
) -> Vec<OsString> {
    let mut words: Vec<OsString> = command.into_iter().collect();
    words.extend(["--peers".into(), peers.into()]);
    words.extend(network.serve_args());
    let addresses: Vec<SocketAddr> = peers
        .split(',')
        .filter_map(|peer| peer.parse().ok())
        .collect();
    if network.key_file(&addresses).is_none() {
        // Without this, a client would use the key of another group that this user has run at one of these ports.
        words.extend(["--key".into(), "".into()]);
    }
    words
}
