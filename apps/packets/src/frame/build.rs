//! Writes the frames of generators and tests.

use super::{ETHERNET, IPV4, IPV6, Mac, TYPE_IPV4, TYPE_IPV6, ones_sum};
use trine_transport::prng::Prng;

/// Begins a frame with an Ethernet header.
pub fn ethernet(frame: &mut Vec<u8>, destination: Mac, source: Mac, ether_type: u16) {
    frame.clear();
    frame.extend_from_slice(&destination);
    frame.extend_from_slice(&source);
    frame.extend_from_slice(&ether_type.to_be_bytes());
}

/// An IPv4 header for UDP with the right checksum; `length` is that of header and payload.
#[must_use]
pub fn ipv4_header(source: u32, destination: u32, length: u16, ttl: u8) -> [u8; IPV4] {
    let mut header = [0; IPV4];
    header[0] = 0x45;
    header[2..4].copy_from_slice(&length.to_be_bytes());
    header[8] = ttl;
    header[9] = 17;
    header[12..16].copy_from_slice(&source.to_be_bytes());
    header[16..20].copy_from_slice(&destination.to_be_bytes());
    seal_ipv4(&mut header);
    header
}

/// Writes the checksum of an IPv4 header.
pub fn seal_ipv4(header: &mut [u8]) {
    header[10..12].fill(0);
    let sum = !ones_sum(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Appends `count` random bytes.
pub fn random(frame: &mut Vec<u8>, count: usize, prng: &mut Prng) {
    frame.extend((0..count).map(|_| prng.next_u64() as u8));
}

/// An IPv4 packet in a frame, with random payload.
pub fn ipv4(frame: &mut Vec<u8>, destination: u32, ttl: u8, payload: usize, prng: &mut Prng) {
    ethernet(frame, super::OWN_MAC, PEER, TYPE_IPV4);
    let length = u16::try_from(IPV4 + payload).expect("a packet that fits a frame");
    let source = 0x0a00_0000 | prng.below(1 << 24) as u32;
    frame.extend_from_slice(&ipv4_header(source, destination, length, ttl));
    random(frame, payload, prng);
}

/// An IPv6 packet in a frame, with random payload.
pub fn ipv6(frame: &mut Vec<u8>, destination: u128, hops: u8, payload: usize, prng: &mut Prng) {
    ethernet(frame, super::OWN_MAC, PEER, TYPE_IPV6);
    let length = u16::try_from(payload).expect("a packet that fits a frame");
    frame.extend_from_slice(&[0x60, 0, 0, 0]);
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(&[17, hops]);
    frame.extend_from_slice(&(0x2001_0db8_u128 << 96 | u128::from(prng.next_u64())).to_be_bytes());
    frame.extend_from_slice(&destination.to_be_bytes());
    debug_assert_eq!(frame.len(), ETHERNET + IPV6);
    random(frame, payload, prng);
}

/// The address that generators send from.
pub const PEER: Mac = [0x02, 0, 0, 0, 0, 0x01];
