//! A replica in the lab: one that was started with `--lab` lets its user change at run time what its network does.
//!
//! The pieces: [`Injector`] holds the rules and hands them to the fault injector of the replica's present life;
//! [`serve`] takes orders over a Unix socket; [`ask()`] gives one.

mod ask;
mod injector;
mod order;
mod service;

pub(crate) use self::ask::{AskError, ask};
pub(crate) use self::injector::Injector;
pub(crate) use self::order::{Linked, Order, State, Way};
pub(crate) use self::service::serve;

use std::net::SocketAddr;
use std::time::Duration;

/// An order or an answer is one line of JSON, at most this long.
const LINE_BYTES_MAX: u64 = 256 << 10;
/// How long either side waits for the other one.
const LIMIT: Duration = Duration::from_secs(5);

/// The name of the socket of the replica at `address`: abstract, so that it needs no file and goes with its process, and
/// nobody reaches it from another machine or another network namespace.
fn socket_name(address: SocketAddr) -> std::io::Result<std::os::unix::net::SocketAddr> {
    use std::os::linux::net::SocketAddrExt;
    std::os::unix::net::SocketAddr::from_abstract_name(format!("trine-lab/{address}"))
}
