//! Conversion between addresses and the routes of the backend that carries the packets: the caller
//! knows it, this crate does not.

use std::net::{IpAddr, SocketAddr};

use trine_transport::Holder;

/// Turns a `host:port` into a backend's route; nothing for an address that the backend cannot carry.
pub type RouteOf<R> = Box<dyn Fn(SocketAddr) -> Option<R> + Send>;

/// Whether packets from a route were sent by the process at a `host:port`.
pub type IsAt<R> = Box<dyn Fn(&R, SocketAddr) -> bool + Send>;

/// Whom sessions from a route are counted for that no member has.
pub type HolderOf<R> = Box<dyn Fn(&R) -> Holder + Send>;

/// Whether two addresses are one. The scope of a link-local address is a number of the host that
/// writes it, and its flow label says nothing about the host.
#[must_use]
pub fn is_same_address(a: SocketAddr, b: SocketAddr) -> bool {
    let plain =
        |address: SocketAddr| -> (IpAddr, u16) { (address.ip().to_canonical(), address.port()) };
    plain(a) == plain(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_is_one_however_it_is_written() {
        assert!(is_same_address(
            address("[::ffff:10.0.0.1]:7"),
            address("10.0.0.1:7")
        ));
        assert!(is_same_address(
            address("[fe80::1%2]:7"),
            address("[fe80::1%5]:7")
        ));
        assert!(!is_same_address(
            address("10.0.0.1:7"),
            address("10.0.0.1:8")
        ));
        assert!(!is_same_address(
            address("10.0.0.1:7"),
            address("10.0.0.2:7")
        ));
    }
}
