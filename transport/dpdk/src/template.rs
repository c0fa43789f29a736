//! Frames that go out: headers written once per peer, patched per packet.

use std::net::SocketAddrV4;

use super::checksum::Sum;
use super::ethernet::{ETHERNET_HEADER, ETHERTYPE_IPV4};
use super::frame::{HEADERS, IPV4_HEADER, Local, PROTOCOL_UDP, UDP_HEADER, pseudo_header};
use super::mac::MacAddr;

/// Hop limit of every packet sent.
const TIME_TO_LIVE: u8 = 64;
/// The don't-fragment bit: a packet that does not fit is dropped, and says so, but never cut.
const DONT_FRAGMENT: u16 = 0x4000;
/// The ECN field's value "capable", ECT(0).
const ECN_CAPABLE: u8 = 0b10;
/// From the first byte of the IPv4 header to the last of the UDP header.
const IP_AND_UDP: u16 = (IPV4_HEADER + UDP_HEADER) as u16;
/// Where the UDP header starts.
const UDP_AT: usize = ETHERNET_HEADER + IPV4_HEADER;

/// Who fills in a checksum.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Fill {
    /// This code.
    Software,
    /// The port.
    Port,
    /// Nobody. For UDP alone, where zero means "none" (RFC 768).
    Nobody,
}

/// Who fills in which checksum.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Checksums {
    /// The IPv4 header's; `Nobody` is not allowed.
    pub ip: Fill,
    /// UDP's.
    pub udp: Fill,
}

/// The 42 bytes in front of every datagram to one peer, with the known part of their checksums.
#[derive(Copy, Clone, Debug)]
pub struct Template {
    bytes: [u8; HEADERS],
    /// Sum of the IPv4 header with length and checksum zero.
    ip: Sum,
    /// Sum of the UDP pseudo-header and the ports, with both lengths zero.
    udp: Sum,
}

impl Template {
    /// Headers from `local` to `remote`, whose next hop is `next_hop`.
    #[must_use]
    pub fn new(local: &Local, next_hop: MacAddr, remote: SocketAddrV4) -> Self {
        let mut bytes = [0; HEADERS];
        bytes[..6].copy_from_slice(&next_hop.0);
        bytes[6..12].copy_from_slice(&local.mac.0);
        bytes[12..14].copy_from_slice(&ETHERTYPE_IPV4.to_be_bytes());
        let ip = &mut bytes[ETHERNET_HEADER..UDP_AT];
        ip[0] = 0x45;
        ip[1] = ECN_CAPABLE;
        ip[6..8].copy_from_slice(&DONT_FRAGMENT.to_be_bytes());
        ip[8] = TIME_TO_LIVE;
        ip[9] = PROTOCOL_UDP;
        ip[12..16].copy_from_slice(&local.ip.octets());
        ip[16..20].copy_from_slice(&remote.ip().octets());
        let ip_sum = Sum::ZERO.add(ip);
        let udp_sum = pseudo_header(&ip[12..20], 0);
        let udp = &mut bytes[UDP_AT..];
        udp[..2].copy_from_slice(&local.port.to_be_bytes());
        udp[2..4].copy_from_slice(&remote.port().to_be_bytes());
        let udp_sum = udp_sum.add(udp);
        Self {
            bytes,
            ip: ip_sum,
            udp: udp_sum,
        }
    }

    /// Writes the headers in front of the payload that is already in `frame`.
    ///
    /// # Panics
    ///
    /// If `frame` is shorter than the headers, or longer than any IPv4 packet.
    #[inline]
    pub fn complete(&self, frame: &mut [u8], checksums: Checksums) {
        let (headers, payload) = frame
            .split_first_chunk_mut::<HEADERS>()
            .expect("room for the headers");
        *headers = self.bytes;
        let udp_length = u16::try_from(UDP_HEADER + payload.len()).expect("an IPv4 packet");
        let total = udp_length + (IP_AND_UDP - UDP_HEADER as u16);
        headers[16..18].copy_from_slice(&total.to_be_bytes());
        headers[38..40].copy_from_slice(&udp_length.to_be_bytes());
        if checksums.ip == Fill::Software {
            headers[24..26].copy_from_slice(&self.ip.add_u16(total).finish());
        }
        match checksums.udp {
            Fill::Nobody => {}
            Fill::Port => {
                let pseudo = pseudo_header(&headers[26..34], udp_length);
                headers[40..42].copy_from_slice(&pseudo.partial());
            }
            Fill::Software => {
                // The length counts twice: in the pseudo-header and in the header.
                let sum = self
                    .udp
                    .add_u16(udp_length)
                    .add_u16(udp_length)
                    .add(payload);
                let checksum = sum.finish();
                // A computed zero is sent as its other representation, for zero means "none".
                let checksum = if checksum == [0, 0] {
                    [0xff, 0xff]
                } else {
                    checksum
                };
                headers[40..42].copy_from_slice(&checksum);
            }
        }
    }
}
