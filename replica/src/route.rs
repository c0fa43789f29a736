//! How an address becomes the route of whichever backend carries the packets: the caller knows, this crate does not.

use std::net::SocketAddr;

/// Turns a `host:port` into a backend's route; nothing for an address that the backend cannot carry.
pub type RouteOf<R> = Box<dyn Fn(SocketAddr) -> Option<R> + Send>;
