//! Checks of received frames: one pass over Ethernet, IPv4 and UDP headers, after which nothing is
//! checked again.
//!
//! Everything that is not a plain datagram for this endpoint or an ARP packet is refused with a reason, and the reason
//! is counted. Refused on purpose, although a kernel would take it: VLAN tags, IPv6, IP options and fragments. No
//! trine endpoint sends them, so they are mistakes or attacks.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};

use super::arp::Arp;
use super::checksum::Sum;
use super::ethernet::{
    ETHERNET_HEADER, ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_QINQ, ETHERTYPE_VLAN,
};
use super::mac::MacAddr;

/// Without options, which are never sent and never taken.
pub const IPV4_HEADER: usize = 20;
/// Ports, length, checksum.
pub const UDP_HEADER: usize = 8;
/// All headers in front of a datagram's payload.
pub const HEADERS: usize = ETHERNET_HEADER + IPV4_HEADER + UDP_HEADER;

pub(super) const PROTOCOL_UDP: u8 = 17;
/// More-fragments bit and fragment offset.
const FRAGMENT_MASK: u16 = 0x3fff;
const RESERVED_FLAG: u16 = 0x8000;
/// The ECN field's value "congestion experienced".
const ECN_CE: u8 = 0b11;

/// The addresses that an endpoint answers to.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Local {
    /// The port's Ethernet address.
    pub mac: MacAddr,
    /// Its IP address.
    pub ip: Ipv4Addr,
    /// The endpoint's UDP port.
    pub port: u16,
}

/// The checks that the port has already made.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Checked {
    /// The IPv4 header checksum is right.
    pub ip: bool,
    /// The UDP checksum is right.
    pub udp: bool,
}

/// A frame that got through.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ReceivedFrame<'a> {
    /// A datagram for this endpoint.
    Udp(Datagram<'a>),
    /// An ARP packet, for whomever.
    Arp(Arp),
}

/// A datagram for this endpoint.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Datagram<'a> {
    /// Who sent it.
    pub source: SocketAddrV4,
    /// What it carries.
    pub payload: &'a [u8],
    /// A router on the way marked it: congestion experienced.
    pub ecn: bool,
}

/// Why a frame was refused.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Reject {
    /// Shorter than the headers it should have, or spread over several segments.
    Short,
    /// Another protocol, or an 802.3 length instead of a type.
    EtherType,
    /// A VLAN tag.
    Vlan,
    /// IPv6.
    Ipv6,
    /// For another Ethernet or IP address.
    NotForUs,
    /// An impossible source: a group, the zero address, or this very endpoint.
    Source,
    /// Not version 4, or a reserved bit is set.
    IpHeader,
    /// IP options.
    IpOptions,
    /// A fragment.
    Fragment,
    /// Lengths that contradict each other.
    Length,
    /// Not UDP.
    Protocol,
    /// The IPv4 header's checksum is wrong.
    IpChecksum,
    /// The UDP checksum is wrong.
    UdpChecksum,
    /// For another UDP port.
    Port,
    /// An ARP packet that makes no sense.
    Arp,
}

impl Reject {
    /// How many reasons there are.
    pub const COUNT: usize = Self::ALL.len();
    /// All reasons, in the order of their counters.
    pub const ALL: [Self; 15] = [
        Self::Short,
        Self::EtherType,
        Self::Vlan,
        Self::Ipv6,
        Self::NotForUs,
        Self::Source,
        Self::IpHeader,
        Self::IpOptions,
        Self::Fragment,
        Self::Length,
        Self::Protocol,
        Self::IpChecksum,
        Self::UdpChecksum,
        Self::Port,
        Self::Arp,
    ];
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Short => "too short",
            Self::EtherType => "foreign Ethernet type",
            Self::Vlan => "VLAN tag",
            Self::Ipv6 => "IPv6",
            Self::NotForUs => "for somebody else",
            Self::Source => "impossible source",
            Self::IpHeader => "bad IPv4 header",
            Self::IpOptions => "IPv4 options",
            Self::Fragment => "fragment",
            Self::Length => "contradicting lengths",
            Self::Protocol => "not UDP",
            Self::IpChecksum => "wrong IPv4 checksum",
            Self::UdpChecksum => "wrong UDP checksum",
            Self::Port => "foreign UDP port",
            Self::Arp => "senseless ARP",
        })
    }
}

/// Reads one frame.
///
/// # Errors
///
/// The reason to drop it.
#[inline]
pub fn parse<'a>(
    frame: &'a [u8],
    local: &Local,
    checked: Checked,
) -> Result<ReceivedFrame<'a>, Reject> {
    let Some((ethernet, packet)) = frame.split_first_chunk::<ETHERNET_HEADER>() else {
        return Err(Reject::Short);
    };
    match u16::from_be_bytes([ethernet[12], ethernet[13]]) {
        ETHERTYPE_IPV4 => {
            // One pair of addresses: an IPv4 broadcast or multicast is never meant for an RPC endpoint.
            if ethernet[..6] != local.mac.0 {
                return Err(Reject::NotForUs);
            }
            ipv4(packet, local, checked).map(ReceivedFrame::Udp)
        }
        ETHERTYPE_ARP => Arp::parse(packet)
            .map(ReceivedFrame::Arp)
            .ok_or(Reject::Arp),
        ETHERTYPE_VLAN | ETHERTYPE_QINQ => Err(Reject::Vlan),
        ETHERTYPE_IPV6 => Err(Reject::Ipv6),
        _ => Err(Reject::EtherType),
    }
}

#[inline]
fn ipv4<'a>(packet: &'a [u8], local: &Local, checked: Checked) -> Result<Datagram<'a>, Reject> {
    let Some((header, rest)) = packet.split_first_chunk::<IPV4_HEADER>() else {
        return Err(Reject::Short);
    };
    match header[0] {
        0x45 => {}
        0x46..=0x4f => return Err(Reject::IpOptions),
        _ => return Err(Reject::IpHeader),
    }
    // Ethernet pads short packets, so only a total length beyond the frame is wrong.
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if total < IPV4_HEADER + UDP_HEADER || total > packet.len() {
        return Err(Reject::Length);
    }
    let fragment = u16::from_be_bytes([header[6], header[7]]);
    if fragment & RESERVED_FLAG != 0 {
        return Err(Reject::IpHeader);
    }
    if fragment & FRAGMENT_MASK != 0 {
        return Err(Reject::Fragment);
    }
    if header[9] != PROTOCOL_UDP {
        return Err(Reject::Protocol);
    }
    if header[16..20] != local.ip.octets() {
        return Err(Reject::NotForUs);
    }
    if !checked.ip && !Sum::ZERO.add(header).is_valid() {
        return Err(Reject::IpChecksum);
    }
    let source = Ipv4Addr::new(header[12], header[13], header[14], header[15]);
    udp(source, header, &rest[..total - IPV4_HEADER], local, checked)
}

#[inline]
fn udp<'a>(
    source: Ipv4Addr,
    ip_header: &[u8; IPV4_HEADER],
    segment: &'a [u8],
    local: &Local,
    checked: Checked,
) -> Result<Datagram<'a>, Reject> {
    let Some((header, payload)) = segment.split_first_chunk::<UDP_HEADER>() else {
        return Err(Reject::Length);
    };
    let length = u16::from_be_bytes([header[4], header[5]]);
    if usize::from(length) != segment.len() {
        return Err(Reject::Length);
    }
    if u16::from_be_bytes([header[2], header[3]]) != local.port {
        return Err(Reject::Port);
    }
    // RFC 768: zero means that the sender made no checksum. The CRC32C of every wire packet covers its bytes anyway.
    let has_checksum = header[6] != 0 || header[7] != 0;
    if has_checksum
        && !checked.udp
        && !pseudo_header(&ip_header[12..20], length)
            .add(segment)
            .is_valid()
    {
        return Err(Reject::UdpChecksum);
    }
    let port = u16::from_be_bytes([header[0], header[1]]);
    let source = SocketAddrV4::new(source, port);
    if !can_be_a_peer(source, local) {
        return Err(Reject::Source);
    }
    Ok(Datagram {
        source,
        payload,
        ecn: ip_header[1] & ECN_CE == ECN_CE,
    })
}

/// The part of a UDP checksum that covers the IPv4 addresses (both, as the header has them) and the length.
pub(super) fn pseudo_header(addresses: &[u8], length: u16) -> Sum {
    Sum::ZERO
        .add(addresses)
        .add_u16(u16::from(PROTOCOL_UDP))
        .add_u16(length)
}

/// Whether an answer to this source could ever arrive.
fn can_be_a_peer(source: SocketAddrV4, local: &Local) -> bool {
    let ip = *source.ip();
    let nobody = ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast() || ip.is_loopback();
    !nobody && source.port() != 0 && (ip != local.ip || source.port() != local.port)
}

#[cfg(test)]
mod tests;
