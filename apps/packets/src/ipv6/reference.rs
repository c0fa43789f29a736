//! The reference of the IPv6 router, and the routes and packets that it is tried with.

use super::Route6;
use crate::config::HOPS_GENERATED;
use crate::frame::build;
use crate::reference::{Reference, Traffic, cut};
use crate::verdict::{Reason, Verdict};
use std::collections::{HashMap, HashSet};
use std::net::Ipv6Addr;
use trine_transport::prng::Prng;

/// Different random prefixes of 48 to 64 bits in the space of global unicast, as in the paper.
#[must_use]
pub fn random_routes(count: usize, prng: &mut Prng) -> Vec<Route6> {
    let mut seen = HashSet::with_capacity(count);
    let mut routes = Vec::with_capacity(count);
    while routes.len() < count {
        let bits = u128::from(prng.next_u64()) << 64;
        let route = Route6 {
            address: 0x2 << 124 | bits >> 4,
            length: 48 + prng.below(17) as u8,
            hop: prng.below(u64::from(HOPS_GENERATED)) as u16,
        };
        // There are 2^44 of the shortest ones: a draw is nearly never repeated, so this ends.
        if seen.insert((route.start(), route.length)) {
            routes.push(route);
        }
    }
    routes
}

/// A map for each length of a prefix, asked from the longest to the shortest.
pub struct Ipv6Reference {
    maps: Vec<HashMap<u128, u16>>,
    ports: u8,
}

impl Ipv6Reference {
    /// A router with these routes.
    #[must_use]
    pub fn new(routes: &[Route6], ports: u8) -> Self {
        let mut maps = vec![HashMap::new(); 129];
        for route in routes {
            maps[usize::from(route.length)].insert(route.start(), route.hop);
        }
        Self { maps, ports }
    }

    /// The next hop of an address.
    #[must_use]
    pub fn find(&self, address: u128) -> Option<u16> {
        (0..=128_u8).rev().find_map(|length| {
            let map = &self.maps[usize::from(length)];
            let route = Route6 {
                address,
                length,
                hop: 0,
            };
            if map.is_empty() {
                None
            } else {
                map.get(&route.start()).copied()
            }
        })
    }

    fn next_hop(&self, frame: &[u8]) -> Result<u16, Reason> {
        if frame.len() < 54 {
            return Err(Reason::Short);
        }
        if frame[12..14] != [0x86, 0xdd] {
            return Err(Reason::Foreign);
        }
        if frame[14] / 16 != 6 || frame[0] % 2 == 1 {
            return Err(Reason::Malformed);
        }
        let payload = usize::from(frame[18]) * 256 + usize::from(frame[19]);
        if frame.len() - 54 < payload {
            return Err(Reason::Short);
        }
        if frame[21] < 2 {
            return Err(Reason::Expired);
        }
        let bytes: [u8; 16] = frame[38..54].try_into().expect("sixteen bytes");
        let address = Ipv6Addr::from(bytes);
        let is_here = address.is_unspecified() || address.is_loopback();
        if is_here || address.is_multicast() || address.is_unicast_link_local() {
            return Err(Reason::Malformed);
        }
        self.find(address.to_bits()).ok_or(Reason::Unknown)
    }
}

impl Reference for Ipv6Reference {
    fn judge(&self, frame: &mut [u8]) -> Verdict {
        match self.next_hop(frame) {
            Err(reason) => Verdict::Drop(reason),
            Ok(hop) => {
                frame[21] -= 1;
                frame[..6].copy_from_slice(&[2, 0, 0, 1, (hop / 256) as u8, (hop % 256) as u8]);
                frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 0xfe]);
                Verdict::Forward((hop % u16::from(self.ports)) as u8)
            }
        }
    }
}

/// Packets to random addresses, most of them with a route.
pub struct Ipv6Traffic {
    routes: Vec<Route6>,
}

impl Ipv6Traffic {
    /// Packets for a router with these routes.
    #[must_use]
    pub fn new(routes: Vec<Route6>) -> Self {
        Self { routes }
    }
}

/// 128 random bits.
fn random(prng: &mut Prng) -> u128 {
    u128::from(prng.next_u64()) << 64 | u128::from(prng.next_u64())
}

impl Traffic for Ipv6Traffic {
    fn plain(&self, frame: &mut Vec<u8>, prng: &mut Prng) {
        let route = &self.routes[prng.below(self.routes.len() as u64) as usize];
        let host = u128::MAX.checked_shr(u32::from(route.length)).unwrap_or(0);
        let address = match prng.below(32) {
            0 => 0x2 << 124 | random(prng) >> 4,
            _ => route.start() | random(prng) & host,
        };
        build::ipv6(frame, address, 2 + prng.below(254) as u8, 16, prng);
    }

    fn crafted(&self, frame: &mut Vec<u8>, prng: &mut Prng) {
        self.plain(frame, prng);
        match prng.below(9) {
            0 => frame[21] = prng.below(2) as u8,
            1 => frame[14] = prng.next_u64() as u8,
            2 => frame[18..20].copy_from_slice(&(prng.below(40) as u16).to_be_bytes()),
            3 => frame[38] = [0xff, 0xfe, 0, 0x20][prng.below(4) as usize],
            4 => frame[38..40].copy_from_slice(&[0xfe, 0x80 | prng.below(128) as u8]),
            5 => {
                frame[38..54].fill(0);
                frame[53] = prng.below(3) as u8;
            }
            6 => frame[..6].copy_from_slice(&[0x33, 0x33, 0, 0, 0, 1]),
            // The header of a fragment.
            7 => frame[20] = 44,
            _ => cut(frame, prng),
        }
    }
}
