//! How an address becomes the route of whichever backend carries the packets, and the other way round: the caller knows,
//! this crate does not.

use std::net::SocketAddr;

pub use crate::addresses::same as is_same_address;

/// Turns a `host:port` into a backend's route; nothing for an address that the backend cannot carry.
pub type RouteOf<R> = Box<dyn Fn(SocketAddr) -> Option<R> + Send>;

/// Whether packets that came from a route were sent by the process that is reached at a `host:port`.
pub type IsAt<R> = Box<dyn Fn(&R, SocketAddr) -> bool + Send>;
