//! The socket options that are requested at the opening, and why one may be unavailable.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use super::options::{option, set_option};
use crate::backend::BackendError;

/// Asks for several datagrams of one peer as one. The wire packets inside say where they end, so
/// the size of the datagrams does not matter here.
pub(super) fn takes_rx_offload(socket: &UdpSocket) -> bool {
    set_option(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 1).is_ok()
}

pub(in crate::backend) fn bind_error(address: SocketAddr, error: &io::Error) -> BackendError {
    match error.kind() {
        io::ErrorKind::AddrInUse => BackendError::AddressInUse { address },
        io::ErrorKind::AddrNotAvailable => BackendError::AddressNotAvailable { address },
        io::ErrorKind::PermissionDenied => BackendError::PermissionDenied {
            what: format!("bind {address}; ports below 1024 take CAP_NET_BIND_SERVICE"),
        },
        _ => BackendError::from_io("bind", error),
    }
}

/// Datagrams that may become fragments, and congestion marks instead of drops if the receiver reads them.
///
/// A datagram above what its path carries must arrive in pieces rather than not at all: packets keep their size for as
/// long as their session lives, and checksum or seal find pieces that were put together wrongly. With
/// `IP_PMTUDISC_OMIT` the kernel also ignores what ICMP says of the path, so a forged message does nothing.
pub(super) fn set_path_options(
    socket: &UdpSocket,
    local: SocketAddr,
    congestion_marks: bool,
) -> Result<(), BackendError> {
    /// ECN field "capable transport, codepoint 0": routers may mark instead of dropping.
    const ECT_0: i32 = 0b10;
    let (marks, capable) = (
        i32::from(congestion_marks),
        if congestion_marks { ECT_0 } else { 0 },
    );
    let options = if local.is_ipv6() {
        [
            (
                libc::IPPROTO_IPV6,
                libc::IPV6_MTU_DISCOVER,
                libc::IPV6_PMTUDISC_OMIT,
            ),
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, capable),
            (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, marks),
        ]
    } else {
        [
            (
                libc::IPPROTO_IP,
                libc::IP_MTU_DISCOVER,
                libc::IP_PMTUDISC_OMIT,
            ),
            (libc::IPPROTO_IP, libc::IP_TOS, capable),
            (libc::IPPROTO_IP, libc::IP_RECVTOS, marks),
        ]
    };
    if local.is_ipv6() {
        // The same for the IPv4 peers of this socket. A socket for IPv6 alone has none.
        let (name, omit) = (libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_OMIT);
        let _ = set_option(socket.as_fd(), libc::IPPROTO_IP, name, omit);
    }
    for (level, name, value) in options {
        set_option(socket.as_fd(), level, name, value)
            .map_err(|error| BackendError::from_io("setsockopt", &error))?;
    }
    Ok(())
}

/// Has the kernel say to which of this machine's addresses each datagram was sent.
pub(super) fn tell_asked_addresses(
    socket: &UdpSocket,
    local: SocketAddr,
) -> Result<(), BackendError> {
    let (level, name) = match local {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_PKTINFO),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
    };
    set_option(socket.as_fd(), level, name, 1)
        .map_err(|error| BackendError::from_io("setsockopt", &error))
}

pub(super) fn set_busy_poll(socket: &UdpSocket, busy_poll_us: u32) -> Result<(), BackendError> {
    if busy_poll_us == 0 {
        return Ok(());
    }
    let value = i32::try_from(busy_poll_us).unwrap_or(i32::MAX);
    set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_BUSY_POLL, value).map_err(|error| {
        match error.kind() {
            io::ErrorKind::PermissionDenied => BackendError::PermissionDenied {
                what: "raise SO_BUSY_POLL; it takes CAP_NET_ADMIN".to_owned(),
            },
            _ => BackendError::from_io("setsockopt SO_BUSY_POLL", &error),
        }
    })
}

/// Asks for a receive queue of `bytes`, beyond the system's limit if the process may; what it got.
pub(super) fn ask_for_rx_queue(
    socket: BorrowedFd<'_>,
    bytes: usize,
) -> Result<usize, BackendError> {
    // The kernel doubles the value for its bookkeeping and reports the doubled one.
    let half = i32::try_from(bytes / 2).unwrap_or(i32::MAX / 2);
    if set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, half).is_err() {
        set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, half)
            .map_err(|error| BackendError::from_io("setsockopt SO_RCVBUF", &error))?;
    }
    let granted = option(socket, libc::SOL_SOCKET, libc::SO_RCVBUF)
        .map_err(|error| BackendError::from_io("getsockopt SO_RCVBUF", &error))?;
    Ok(granted.max(0) as usize)
}
