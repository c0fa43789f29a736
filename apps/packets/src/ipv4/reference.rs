//! The reference of the IPv4 router, and the packets that it is tried with.

use super::Route4;
use super::routes::unicast;
use crate::frame::{TYPE_IPV4, TYPE_IPV6, build};
use crate::reference::{Reference, Traffic, cut};
use crate::verdict::{Reason, Verdict};
use std::collections::HashMap;
use std::net::Ipv4Addr;
use trine_transport::prng::Prng;

/// A map for each length of a prefix, asked from the longest to the shortest.
pub struct Ipv4Reference {
    maps: Vec<HashMap<u32, u16>>,
    ports: u8,
}

impl Ipv4Reference {
    /// A router with these routes.
    #[must_use]
    pub fn new(routes: &[Route4], ports: u8) -> Self {
        let mut maps = vec![HashMap::new(); 33];
        for route in routes {
            maps[usize::from(route.length)].insert(route.start(), route.hop);
        }
        Self { maps, ports }
    }

    /// The next hop of an address.
    #[must_use]
    pub fn find(&self, address: u32) -> Option<u16> {
        (0..=32_u8).rev().find_map(|length| {
            let map = &self.maps[usize::from(length)];
            let route = Route4 {
                address,
                length,
                hop: 0,
            };
            map.get(&route.start()).copied()
        })
    }
}

impl Reference for Ipv4Reference {
    fn judge(&self, frame: &mut [u8]) -> Verdict {
        match self.next_hop(frame) {
            Err(reason) => Verdict::Drop(reason),
            Ok(hop) => {
                frame[22] -= 1;
                let header = 14 + usize::from(frame[14] % 16) * 4;
                build::seal_ipv4(&mut frame[14..header]);
                frame[..6].copy_from_slice(&[2, 0, 0, 1, (hop / 256) as u8, (hop % 256) as u8]);
                frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 0xfe]);
                Verdict::Forward((hop % u16::from(self.ports)) as u8)
            }
        }
    }
}

impl Ipv4Reference {
    fn next_hop(&self, frame: &[u8]) -> Result<u16, Reason> {
        if frame.len() < 34 {
            return Err(Reason::Short);
        }
        if frame[12..14] != [8, 0] {
            return Err(Reason::Foreign);
        }
        let words = usize::from(frame[14] % 16);
        let length = usize::from(frame[16]) * 256 + usize::from(frame[17]);
        if frame[14] / 16 != 4 || words < 5 || length < words * 4 || frame[0] % 2 == 1 {
            return Err(Reason::Malformed);
        }
        if frame.len() < 14 + length {
            return Err(Reason::Short);
        }
        let mut header = frame[14..14 + words * 4].to_vec();
        build::seal_ipv4(&mut header);
        // There are two zeros in one's complement.
        let (right, given) = (&header[10..12], &frame[24..26]);
        let is_zero = |sum: &[u8]| sum == [0, 0] || sum == [0xff, 0xff];
        if right != given && !(is_zero(right) && is_zero(given)) {
            return Err(Reason::Checksum);
        }
        if frame[22] < 2 {
            return Err(Reason::Expired);
        }
        let address = Ipv4Addr::from(<[u8; 4]>::try_from(&frame[30..34]).expect("four bytes"));
        let forwardable = !address.is_loopback() && address.octets()[0] != 0;
        if !forwardable || address.is_multicast() || address.octets()[0] >= 240 {
            return Err(Reason::Malformed);
        }
        self.find(address.to_bits()).ok_or(Reason::Unknown)
    }
}

/// Packets to random addresses, most of them with a route.
pub struct Ipv4Traffic {
    routes: Vec<Route4>,
}

impl Ipv4Traffic {
    /// Packets for a router with these routes.
    #[must_use]
    pub fn new(routes: Vec<Route4>) -> Self {
        Self { routes }
    }

    fn address(&self, prng: &mut Prng) -> u32 {
        let route = &self.routes[prng.below(self.routes.len() as u64) as usize];
        route.start() | prng.next_u64() as u32 & !route_mask(route)
    }
}

fn route_mask(route: &Route4) -> u32 {
    u32::MAX
        .checked_shl(32 - u32::from(route.length))
        .unwrap_or(0)
}

impl Traffic for Ipv4Traffic {
    fn plain(&self, frame: &mut Vec<u8>, prng: &mut Prng) {
        let address = match prng.below(32) {
            0 => unicast(prng),
            _ => self.address(prng),
        };
        build::ipv4(frame, address, 2 + prng.below(254) as u8, 26, prng);
    }

    fn crafted(&self, frame: &mut Vec<u8>, prng: &mut Prng) {
        self.plain(frame, prng);
        let kind = prng.below(12);
        match kind {
            // Fragments: of the first one, of a later one, and one that must not be fragmented.
            0 => frame[20] = [0x20, 0x01, 0x40][prng.below(3) as usize],
            1 => frame[22] = prng.below(2) as u8,
            2 => frame[24] ^= 1 << prng.below(8),
            3 => frame[30] = [0, 127, 224, 239, 240, 255][prng.below(6) as usize],
            4 => frame[14] = prng.next_u64() as u8,
            5 => frame[16..18].copy_from_slice(&(prng.below(80) as u16).to_be_bytes()),
            6 => frame[..6].fill(0xff),
            7 => frame[12..14].copy_from_slice(&TYPE_IPV6.to_be_bytes()),
            8 => options(frame, prng),
            9 => all_ones(frame),
            10 => frame[14 + prng.below(20) as usize] = prng.next_u64() as u8,
            _ => return cut(frame, prng),
        }
        // What is wrong with most packets must not be their checksum.
        if frame[12..14] == TYPE_IPV4.to_be_bytes() && !matches!(kind, 2 | 9) {
            let header = 14 + usize::from(frame[14] & 15).max(5) * 4;
            if header <= frame.len() {
                build::seal_ipv4(&mut frame[14..header]);
            }
        }
    }
}

/// Makes a part of the payload options of the header.
fn options(frame: &mut [u8], prng: &mut Prng) {
    frame[14] = 0x46 + prng.below(6) as u8;
}

/// The other zero of one's complement, where the checksum is zero.
fn all_ones(frame: &mut [u8]) {
    // The identification makes the sum of the other fields 0xffff, so the checksum is zero in either form.
    frame[18..20].fill(0);
    build::seal_ipv4(&mut frame[14..34]);
    let sum = [frame[24], frame[25]];
    frame[18..20].copy_from_slice(&sum);
    frame[24..26].fill(if sum[1].is_multiple_of(2) { 0 } else { 0xff });
}
