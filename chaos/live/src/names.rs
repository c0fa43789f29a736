//! The name service of a run's own network: each replica has its own file of hosts and its own list of servers, so names
//! can fail for all of them, or tell some of a new address later than others.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use trine_chaos::fault::Misnaming;

use super::tools::PRIVATE;
use trine_base::failure::Failure;

/// A server that refuses: nothing listens there.
const REFUSING: &str = "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n";
/// A server that does not answer: an address that nobody has.
const SILENT: &str = "nameserver 10.77.0.253\noptions timeout:2 attempts:2\n";
/// Puts the files of the replica's directory (`$0`) in place of the machine's, and becomes the command that follows.
const LAUNCH: &str = "mount --bind \"$0/hosts\" /etc/hosts && mount --bind \"$0/resolv.conf\" /etc/resolv.conf && exec \"$@\"";

/// Where the files of the replicas are.
#[derive(Debug)]
pub(super) struct Names {
    directory: PathBuf,
}

impl Names {
    /// Makes the files for replicas at these addresses.
    pub(super) fn build(addresses: &[SocketAddr]) -> Result<Self, Failure> {
        let names = Self {
            directory: Path::new(PRIVATE).join("names"),
        };
        for node_id in 1..=addresses.len() {
            std::fs::create_dir_all(names.of(node_id)).map_err(cannot_write)?;
            names.tell(node_id, addresses)?;
        }
        Ok(names)
    }

    /// The replicas as their list of peers has them.
    pub(super) fn peers(addresses: &[SocketAddr]) -> Vec<String> {
        let peer = |(node_id, address): (usize, &SocketAddr)| {
            format!("{}:{}", name(node_id), address.port())
        };
        (1..).zip(addresses).map(peer).collect()
    }

    /// The words before the command of a replica that give it its files.
    pub(super) fn launcher(&self) -> Vec<OsString> {
        let own = self.directory.join("{node_id}");
        let words = ["sh", "-c", LAUNCH].map(OsString::from);
        words.into_iter().chain([own.into_os_string()]).collect()
    }

    /// Tells a replica where all of them are.
    pub(super) fn tell(&self, node_id: usize, addresses: &[SocketAddr]) -> Result<(), Failure> {
        self.write(
            node_id,
            &hosts(addresses.iter().map(SocketAddr::ip)),
            REFUSING,
        )
    }

    /// Breaks the names for a replica.
    pub(super) fn damage(
        &self,
        node_id: usize,
        addresses: &[SocketAddr],
        how: Misnaming,
    ) -> Result<(), Failure> {
        let nobody = hosts([]);
        match how {
            Misnaming::Fails => self.write(node_id, &nobody, REFUSING),
            Misnaming::Late => self.write(node_id, &nobody, SILENT),
            Misnaming::Lies => {
                let next = addresses.iter().cycle().skip(1).map(SocketAddr::ip);
                self.write(node_id, &hosts(next.take(addresses.len())), REFUSING)
            }
        }
    }

    fn of(&self, node_id: usize) -> PathBuf {
        self.directory.join(node_id.to_string())
    }

    /// The files are mounted in the replicas' namespaces, so they are written in place. A lookup amid that may fail.
    fn write(&self, node_id: usize, hosts: &str, servers: &str) -> Result<(), Failure> {
        let directory = self.of(node_id);
        std::fs::write(directory.join("hosts"), hosts)
            .and_then(|()| std::fs::write(directory.join("resolv.conf"), servers))
            .map_err(cannot_write)
    }
}

fn name(node_id: usize) -> String {
    format!("replica{node_id}.trine")
}

/// A file of hosts with the replicas at these addresses, by node id.
fn hosts(addresses: impl IntoIterator<Item = IpAddr>) -> String {
    let lines = (1..).zip(addresses);
    let lines = lines.map(|(node_id, address)| format!("{address} {}\n", name(node_id)));
    ["127.0.0.1 localhost\n".to_owned()]
        .into_iter()
        .chain(lines)
        .collect()
}

fn cannot_write(error: std::io::Error) -> Failure {
    Failure::usage(
        format!("cannot write the names of the replicas: {error}"),
        "",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lie_names_the_next_replica_and_every_replica_once() {
        let directory = std::env::temp_dir().join(format!("trine-names-{}", std::process::id()));
        let names = Names { directory };
        let addresses = [1, 2, 3].map(|last| SocketAddr::from(([10, 77, 0, last], 7471)));
        std::fs::create_dir_all(names.of(2)).expect("made");
        let read = || std::fs::read_to_string(names.of(2).join("hosts")).expect("written");
        names.tell(2, &addresses).expect("written");
        assert!(read().contains("10.77.0.3 replica3.trine\n"));
        names
            .damage(2, &addresses, Misnaming::Lies)
            .expect("written");
        let expected = "127.0.0.1 localhost\n10.77.0.2 replica1.trine\n10.77.0.3 replica2.trine\n\
                        10.77.0.1 replica3.trine\n";
        assert_eq!(read(), expected);
        names
            .damage(2, &addresses, Misnaming::Fails)
            .expect("written");
        assert!(!read().contains("replica"));
        std::fs::remove_dir_all(&names.directory).expect("removed");
        let peers = Names::peers(&addresses);
        assert_eq!(peers[1], "replica2.trine:7471");
    }
}
