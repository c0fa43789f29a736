//! Which addresses are this machine's own, and what the interface towards others carries.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;

use super::options::option;

/// Bytes of the IP and UDP headers in front of a datagram's payload.
fn headers(ip: IpAddr) -> usize {
    match ip {
        IpAddr::V4(_) => 20 + 8,
        IpAddr::V6(_) => 40 + 8,
    }
}

/// Whether packets to this address stay within the machine: it is a loopback address, or one of an interface. For those
/// the kernel takes the address itself as the source. False if the kernel cannot tell.
pub(super) fn is_own_address(address: &SocketAddr) -> bool {
    let ip = address.ip().to_canonical();
    ip.is_loopback() || socket_towards(*address).is_ok_and(|source| source.1.to_canonical() == ip)
}

/// Bytes of a datagram's payload that the interface towards `address` carries without fragments. `None` if the kernel
/// cannot tell, as without a route.
#[must_use]
pub fn interface_carries(address: SocketAddr) -> Option<usize> {
    let (socket, _) = socket_towards(address).ok()?;
    let ip = address.ip().to_canonical();
    let (level, name) = match ip {
        IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU),
        IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
    };
    let mtu = option(socket.as_fd(), level, name).ok()?;
    usize::try_from(mtu).ok()?.checked_sub(headers(ip))
}

/// A socket that is connected to `address`, and the source address that the kernel has chosen. No packet is sent.
fn socket_towards(address: SocketAddr) -> io::Result<(UdpSocket, IpAddr)> {
    let any: IpAddr = match address.ip().to_canonical() {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    let to = match address {
        // A link-local address keeps its scope.
        SocketAddr::V6(v6) if any.is_ipv6() => SocketAddr::V6(v6),
        _ => (address.ip().to_canonical(), address.port()).into(),
    };
    socket.connect(to)?;
    let source = socket.local_addr()?.ip();
    Ok((socket, source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_this_machine_and_others_are_not() {
        for own in [
            "127.0.0.1:9",
            "127.8.8.8:9",
            "[::1]:9",
            "[::ffff:127.0.0.1]:9",
        ] {
            assert!(is_own_address(&own.parse().unwrap()), "{own}");
        }
        // Addresses for documentation: no machine has them, and there may be no route at all.
        for other in ["192.0.2.1:9", "[2001:db8::1]:9"] {
            assert!(!is_own_address(&other.parse().unwrap()), "{other}");
        }
    }

    #[test]
    fn the_interface_says_what_it_carries() {
        let carries = interface_carries("127.0.0.1:9".parse().unwrap());
        assert!(carries.is_some_and(|bytes| bytes > 1_472), "{carries:?}");
    }
}
