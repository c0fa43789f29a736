//! Changing at run time what the network of a replica does: requests to a replica that was started with
//! `--fault-injection`.

mod ask;
mod command;
mod counts;
pub mod line;

use std::net::SocketAddr;

pub use self::ask::{AskError, ask};
pub use self::command::{FaultCommand, Linked, State, Way};
pub use self::counts::{FAULTS_LINE, from_line, to_line};

/// The name of the socket of the replica at `address`: abstract, so that it needs no file and goes with its process, and
/// nobody reaches it from another machine or another network namespace.
pub fn socket_name(address: SocketAddr) -> std::io::Result<std::os::unix::net::SocketAddr> {
    use std::os::linux::net::SocketAddrExt;
    std::os::unix::net::SocketAddr::from_abstract_name(format!("trine-faults/{address}"))
}
