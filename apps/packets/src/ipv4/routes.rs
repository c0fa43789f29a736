//! Routes like those of a router in the Internet's core.

use crate::config::HOPS_GENERATED;
use std::collections::HashSet;
use trine_transport::prng::Prng;

/// A prefix and its next hop.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Route4 {
    /// An address with the prefix. Its further bits mean nothing.
    pub address: u32,
    /// Bits of the prefix.
    pub length: u8,
    /// The number of the next hop.
    pub hop: u16,
}

impl Route4 {
    /// The first address with the prefix.
    #[must_use]
    pub fn start(&self) -> u32 {
        let host = 32 - u32::from(self.length);
        self.address & u32::MAX.checked_shl(host).unwrap_or(0)
    }
}

/// Of 1,000 prefixes of a full BGP table, how many have each length. This is the shape of the public tables of the last
/// years, rounded; 10 are longer than 24 bits, as in the table of the G-Opt paper.
const LENGTHS: [(u8, u64); 22] = [
    (8, 1),
    (11, 1),
    (12, 1),
    (13, 1),
    (14, 2),
    (15, 3),
    (16, 22),
    (17, 13),
    (18, 22),
    (19, 40),
    (20, 52),
    (21, 58),
    (22, 115),
    (23, 98),
    (24, 561),
    (25, 2),
    (26, 2),
    (27, 1),
    (28, 1),
    (29, 1),
    (30, 1),
    (32, 2),
];

/// `count` different prefixes with the lengths of a BGP table, in the address space of unicast.
#[must_use]
pub fn bgp_like(count: usize, prng: &mut Prng) -> Vec<Route4> {
    let total: u64 = LENGTHS.iter().map(|(_, weight)| weight).sum();
    let mut seen = HashSet::with_capacity(count);
    let mut routes = Vec::with_capacity(count);
    while routes.len() < count {
        let mut draw = prng.below(total);
        let length = LENGTHS.iter().find(|(_, weight)| {
            let chosen = draw < *weight;
            draw = draw.wrapping_sub(*weight);
            chosen
        });
        let &(length, _) = length.expect("a draw below the total");
        let route = Route4 {
            address: unicast(prng),
            length,
            hop: prng.below(u64::from(HOPS_GENERATED)) as u16,
        };
        // Short prefixes are few: a second draw of one is another length in most cases, so this ends.
        if seen.insert((route.start(), length)) {
            routes.push(route);
        }
    }
    routes
}

/// An address from 1.0.0.0 to 223.255.255.255 but for 127.0.0.0/8.
pub(super) fn unicast(prng: &mut Prng) -> u32 {
    let first = match prng.below(222) as u32 + 1 {
        first @ 127.. => first + 1,
        first => first,
    };
    first << 24 | prng.below(1 << 24) as u32
}
