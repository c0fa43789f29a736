//! Changing at run time what the network of a replica does: requests to a replica that was started with
//! `--fault-injection`.

mod ask;
mod command;
mod counts;
pub mod line;

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr as SocketName;

pub use self::ask::{AskError, ask};
pub use self::command::{FaultCommand, Linked, State, Way};
pub use self::counts::{FAULTS_LINE, from_line, to_line};

/// So many sockets are asked for one replica. All but one are of users who stand in the way.
const NAMES_MAX: usize = 4096;

/// A name for the socket of the replica at `address`: abstract, so that it needs no file and goes with its process, and
/// nobody reaches it from another machine or another network namespace. Any user may take any abstract name. `random` keeps
/// others from taking this one first; commands look all names through.
pub fn socket_name(address: SocketAddr, random: u64) -> io::Result<SocketName> {
    SocketName::from_abstract_name(format!("{}{random:016x}", before_random(address)))
}

fn before_random(address: SocketAddr) -> String {
    format!("trine-faults/{address}/")
}

/// The names that sockets have in this network namespace for the replica at `address`. Other users may have made some of
/// them.
fn socket_names(address: SocketAddr) -> io::Result<BTreeSet<String>> {
    let sockets = std::fs::read("/proc/net/unix")?;
    let before = before_random(address);
    let names = sockets.split(|byte| *byte == b'\n').filter_map(|line| {
        // A name may have any byte. Ours have none that is no text.
        let line = std::str::from_utf8(line).ok()?;
        let name = line.split(' ').next_back()?.strip_prefix('@')?;
        name.starts_with(&before).then(|| name.to_owned())
    });
    Ok(names.take(NAMES_MAX).collect())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// The name was known beforehand: any user could take it, and the replica did not start.
    #[test]
    fn a_name_cannot_be_taken_first_and_is_found() {
        let port = u16::try_from(std::process::id() % 60_000).expect("below") + 1;
        let [own, other] =
            [[127, 77, 0, 1], [127, 77, 0, 11]].map(|ip| SocketAddr::from((ip, port)));
        let bind = |name: &SocketName| UnixListener::bind_addr(name).expect("a free name");
        let known = SocketName::from_abstract_name(format!("trine-faults/{own}")).expect("a name");
        let _taken = bind(&known);
        let _others = bind(&socket_name(other, 7).expect("a name"));
        assert!(socket_names(own).expect("read").is_empty());
        let _first = bind(&socket_name(own, 1).expect("a name"));
        let _second = bind(&socket_name(own, 2).expect("a name"));
        let found = socket_names(own).expect("read");
        let expected = [1, 2].map(|random| format!("trine-faults/{own}/{random:016x}"));
        assert_eq!(found, BTreeSet::from(expected));
    }
}
