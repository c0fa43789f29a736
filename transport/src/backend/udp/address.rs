//! Socket addresses as the kernel writes them, without `unsafe`.

use std::mem::{offset_of, size_of};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// A `sockaddr_in` or `sockaddr_in6` as bytes.
#[derive(Copy, Clone)]
#[repr(C, align(8))]
pub(super) struct RawAddress {
    bytes: [u8; RAW_BYTES],
}

/// The size of a [`RawAddress`] that the system calls are told.
pub(super) const RAW_BYTES: usize = size_of::<libc::sockaddr_in6>();

const FAMILY_V4: [u8; 2] = (libc::AF_INET as u16).to_ne_bytes();
const FAMILY_V6: [u8; 2] = (libc::AF_INET6 as u16).to_ne_bytes();

const _: () = assert!(RAW_BYTES == 28);
const _: () = assert!(size_of::<libc::sockaddr_in>() == 16);
const _: () = assert!(offset_of!(libc::sockaddr_in, sin_port) == 2);
const _: () = assert!(offset_of!(libc::sockaddr_in, sin_addr) == 4);
const _: () = assert!(offset_of!(libc::sockaddr_in6, sin6_port) == 2);
const _: () = assert!(offset_of!(libc::sockaddr_in6, sin6_flowinfo) == 4);
const _: () = assert!(offset_of!(libc::sockaddr_in6, sin6_addr) == 8);
const _: () = assert!(offset_of!(libc::sockaddr_in6, sin6_scope_id) == 24);

impl RawAddress {
    pub(super) const ZERO: Self = Self {
        bytes: [0; RAW_BYTES],
    };

    /// Writes `address` as a socket of family IPv6 (`v6_socket`) or IPv4 wants it; the length.
    /// An IPv6 address on an IPv4 socket is written as it is and refused by the kernel.
    #[inline]
    pub(super) fn encode(&mut self, address: &SocketAddr, v6_socket: bool) -> u32 {
        match address {
            SocketAddr::V4(address) if v6_socket => {
                let mapped = SocketAddrV6::new(address.ip().to_ipv6_mapped(), address.port(), 0, 0);
                self.encode_v6(&mapped)
            }
            SocketAddr::V4(address) => {
                self.bytes[0..2].copy_from_slice(&FAMILY_V4);
                self.bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
                self.bytes[4..8].copy_from_slice(&address.ip().octets());
                self.bytes[8..16].fill(0);
                size_of::<libc::sockaddr_in>() as u32
            }
            SocketAddr::V6(address) => self.encode_v6(address),
        }
    }

    fn encode_v6(&mut self, address: &SocketAddrV6) -> u32 {
        self.bytes[0..2].copy_from_slice(&FAMILY_V6);
        self.bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
        self.bytes[4..8].copy_from_slice(&address.flowinfo().to_be_bytes());
        self.bytes[8..24].copy_from_slice(&address.ip().octets());
        self.bytes[24..28].copy_from_slice(&address.scope_id().to_ne_bytes());
        RAW_BYTES as u32
    }

    /// The address that the kernel wrote; IPv4-mapped ones as IPv4, so that a peer has one route.
    /// `None` for what cannot be answered.
    #[inline]
    pub(super) fn decode(&self) -> Option<SocketAddr> {
        let bytes = &self.bytes;
        let port = u16::from_be_bytes([bytes[2], bytes[3]]);
        if port == 0 {
            return None;
        }
        if bytes[0..2] == FAMILY_V4 {
            let ip = Ipv4Addr::new(bytes[4], bytes[5], bytes[6], bytes[7]);
            return Some(SocketAddrV4::new(ip, port).into());
        }
        if bytes[0..2] != FAMILY_V6 {
            return None;
        }
        let octets: [u8; 16] = bytes[8..24].try_into().expect("sixteen bytes");
        let ip = Ipv6Addr::from(octets);
        if let Some(ip) = ip.to_ipv4_mapped() {
            return Some(SocketAddrV4::new(ip, port).into());
        }
        let scope_id = u32::from_ne_bytes(bytes[24..28].try_into().expect("four bytes"));
        // The flow label is not part of who the peer is.
        Some(SocketAddrV6::new(ip, port, 0, scope_id).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_round_trip() {
        for (text, v6_socket, len) in [
            ("127.0.0.1:7471", false, 16),
            ("10.1.2.3:65535", true, 28),
            ("[::1]:1", true, 28),
            ("[fe80::1%3]:80", true, 28),
        ] {
            let address: SocketAddr = text.parse().unwrap();
            let mut raw = RawAddress {
                bytes: [0xff; RAW_BYTES],
            };
            assert_eq!(raw.encode(&address, v6_socket), len, "{text}");
            assert_eq!(raw.decode(), Some(address), "{text}");
        }
    }

    /// A sender with port 0 cannot be answered: the kernel refuses with EINVAL, as it does where it
    /// cannot segment. An unknown sender with such a source port made the backend give up segmentation for
    /// all.
    #[test]
    fn port_zero_is_no_address() {
        for text in ["127.0.0.1:0", "[::1]:0", "[::ffff:10.0.0.1]:0"] {
            let mut raw = RawAddress::ZERO;
            raw.encode(&text.parse().unwrap(), text.starts_with('['));
            assert_eq!(raw.decode(), None, "{text}");
        }
    }

    #[test]
    fn an_unknown_family_is_no_address() {
        assert_eq!(RawAddress::ZERO.decode(), None);
    }
}
