//! The loopback addresses that a group can use.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};

/// This is below the range from which kernels draw ephemeral ports. So no client socket takes the port of a replica
/// that is down for a moment.
const FIRST_PORT: u16 = 15_000;
const PORT_COUNT: u16 = 15_000;
/// How many ports are tried before giving up.
const ATTEMPTS: u32 = 2_000;

/// Returns addresses on loopback with consecutive ports from `base_port`, as `trine up` uses them. `None` if they would
/// pass port 65535.
#[must_use]
pub fn addresses_from(base_port: u16, count: usize) -> Option<Vec<SocketAddr>> {
    (0..count)
        .map(|node_id| {
            let port = base_port.checked_add(u16::try_from(node_id).ok()?)?;
            Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
        })
        .collect()
}

/// Returns `count` loopback addresses with consecutive UDP ports that are unused at this moment.
///
/// The ports are free again when this returns, so another process could take one first. The caller then sees "port in
/// use" and may try again.
pub fn free_addresses(count: usize) -> io::Result<Vec<SocketAddr>> {
    for _ in 0..ATTEMPTS {
        let Some(addresses) = addresses_from(next_candidate(count), count) else {
            continue;
        };
        let held: io::Result<Vec<UdpSocket>> = addresses.iter().map(UdpSocket::bind).collect();
        if held.is_ok() {
            return Ok(addresses);
        }
    }
    Err(io::Error::new(
        io::ErrorKind::AddrInUse,
        "no free UDP ports on loopback",
    ))
}

/// The address that a client of `peers` binds to. It is loopback if they are, and otherwise any address of their
/// family. The port is any free one.
#[must_use]
pub fn local_address_towards(peers: &[SocketAddr]) -> SocketAddr {
    let loopback = peers.iter().all(|peer| peer.ip().is_loopback());
    let address: IpAddr = match (peers.iter().any(SocketAddr::is_ipv6), loopback) {
        (false, true) => Ipv4Addr::LOCALHOST.into(),
        (false, false) => Ipv4Addr::UNSPECIFIED.into(),
        (true, true) => Ipv6Addr::LOCALHOST.into(),
        (true, false) => Ipv6Addr::UNSPECIFIED.into(),
    };
    SocketAddr::new(address, 0)
}

/// Walks over the range from a different start in every process. Within one process, no two callers get the same port
/// until the range is used up.
fn next_candidate(count: usize) -> u16 {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let start = std::process::id().wrapping_mul(2_654_435_761) >> 16;
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    let step = TAKEN.fetch_add(count, Ordering::Relaxed);
    let offset = start.wrapping_add(step) % u32::from(PORT_COUNT);
    FIRST_PORT + u16::try_from(offset).expect("the offset is below PORT_COUNT")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_addresses_are_distinct_and_bindable() {
        let addresses = free_addresses(7).expect("seven free ports");
        let held: Vec<_> = addresses.iter().map(UdpSocket::bind).collect();
        assert!(held.iter().all(Result::is_ok), "{held:?}");
    }

    #[test]
    fn consecutive_addresses_stop_at_the_last_port() {
        let addresses = addresses_from(7471, 3).expect("in range");
        assert_eq!(addresses[2], "127.0.0.1:7473".parse().expect("an address"));
        assert_eq!(addresses_from(65_534, 3), None);
    }
}
