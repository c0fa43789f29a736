//! The address of this machine that each peer has asked, for a socket that is bound to every address.
//!
//! The kernel picks the source of an answer by its routes. On a machine with several addresses it may pick another one than
//! the peer has asked, and the peer drops what comes from there.
//!
//! The table is a cache: it holds the latest peers, and its size is fixed. A peer that others have pushed out is answered
//! from the kernel's choice until its next packet, which a client sends when it misses the answer. So an answer can be
//! lost in these ways, none of which lasts:
//! - Packets from thousands of other sources arrive between a packet and its answer.
//! - A packet with the peer's forged source arrives at another address.
//! - One socket of a peer asks at two addresses at once: the later one counts for both answers.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};

/// The local addresses that the latest peers have sent to.
pub(super) struct LocalAddresses {
    sets: Box<[Set]>,
    /// Keeps secret who shares a set: few sources could otherwise push out a chosen peer.
    key: u64,
}

/// Peers with equal hashes, the latest first.
type Set = [Option<(SocketAddr, IpAddr)>; WAYS];

/// 4,096 peers in 200 KiB.
const SETS: usize = 1_024;
const WAYS: usize = 4;

const _: () = assert!(SETS.is_power_of_two());

impl LocalAddresses {
    pub(super) fn new() -> Self {
        Self::with_key(RandomState::new().hash_one(()))
    }

    fn with_key(key: u64) -> Self {
        Self {
            sets: vec![[None; WAYS]; SETS].into_boxed_slice(),
            key,
        }
    }

    /// The address from which `peer` expects its answers, if it is known.
    pub(super) fn by(&self, peer: &SocketAddr) -> Option<IpAddr> {
        let mut known = self.sets[self.set_of(peer)].iter().flatten();
        known.find_map(|(other, address)| (other == peer).then_some(*address))
    }

    /// A packet from `peer` came to `address`.
    pub(super) fn on_received(&mut self, peer: SocketAddr, address: IpAddr) {
        let index = self.set_of(&peer);
        let set = &mut self.sets[index];
        let is_peers =
            |known: &Option<(SocketAddr, IpAddr)>| known.is_some_and(|(other, _)| other == peer);
        let place = set.iter().position(is_peers).unwrap_or(WAYS - 1);
        set[..=place].rotate_right(1);
        set[0] = Some((peer, address));
    }

    /// The machine has lost the address that `peer` has asked.
    pub(super) fn forget(&mut self, peer: &SocketAddr) {
        let index = self.set_of(peer);
        for known in &mut self.sets[index] {
            known.take_if(|(other, _)| other == peer);
        }
    }

    /// The set of a peer. Peers differ in their ports, or in the low bits of their addresses.
    fn set_of(&self, peer: &SocketAddr) -> usize {
        /// 2^64 divided by the golden ratio: spreads successive numbers evenly over the high bits.
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        let ip = match peer.ip() {
            IpAddr::V4(ip) => u64::from(ip.to_bits()),
            IpAddr::V6(ip) => {
                let bits = ip.to_bits();
                bits as u64 ^ ((bits >> 64) as u64).rotate_left(32)
            }
        };
        let mixed = ip.wrapping_mul(SPREAD) ^ u64::from(peer.port()) ^ self.key;
        (mixed.wrapping_mul(SPREAD) >> (u64::BITS - SETS.ilog2())) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(n: u32) -> SocketAddr {
        (std::net::Ipv4Addr::from(0x0a00_0000 | n), 7471).into()
    }

    fn own(n: u8) -> IpAddr {
        [127, 0, 0, n].into()
    }

    #[test]
    fn the_latest_address_counts() {
        let mut local_addresses = LocalAddresses::new();
        assert_eq!(local_addresses.by(&peer(1)), None);
        local_addresses.on_received(peer(1), own(2));
        local_addresses.on_received(peer(2), own(4));
        local_addresses.on_received(peer(1), own(3));
        assert_eq!(local_addresses.by(&peer(1)), Some(own(3)));
        assert_eq!(local_addresses.by(&peer(2)), Some(own(4)));
        local_addresses.forget(&peer(1));
        assert_eq!(local_addresses.by(&peer(1)), None);
        assert_eq!(local_addresses.by(&peer(2)), Some(own(4)));
    }

    /// A flood of other peers pushes out those that say nothing; a peer that asks again is known again.
    #[test]
    fn many_peers_push_out_the_oldest_of_their_set() {
        let mut local_addresses = LocalAddresses::new();
        let together: Vec<SocketAddr> = (0..)
            .map(peer)
            .filter(|other| local_addresses.set_of(other) == local_addresses.set_of(&peer(0)))
            .take(WAYS + 1)
            .collect();
        for other in &together[..WAYS] {
            local_addresses.on_received(*other, own(1));
        }
        local_addresses.on_received(together[0], own(2));
        local_addresses.on_received(together[WAYS], own(1));
        assert_eq!(local_addresses.by(&together[0]), Some(own(2)));
        assert_eq!(local_addresses.by(&together[1]), None);
        local_addresses.on_received(together[1], own(5));
        assert_eq!(local_addresses.by(&together[1]), Some(own(5)));
    }

    /// The clients of one machine differ in their ports alone.
    #[test]
    fn ports_and_addresses_spread_over_the_sets() {
        let by_port: Vec<SocketAddr> = (0..1_000)
            .map(|n| ([10, 0, 0, 1], 32_768 + n).into())
            .collect();
        let by_address: Vec<SocketAddr> = (0..1_000).map(peer).collect();
        let keys = [0, u64::MAX, 0x0123_4567_89ab_cdef];
        for (peers, key) in [by_port, by_address]
            .iter()
            .flat_map(|peers| keys.map(|key| (peers, key)))
        {
            let mut local_addresses = LocalAddresses::with_key(key);
            peers
                .iter()
                .for_each(|peer| local_addresses.on_received(*peer, own(1)));
            let known = peers
                .iter()
                .filter(|peer| local_addresses.by(peer).is_some())
                .count();
            assert!(known > 950, "{known} of 1,000 peers are known, key {key}");
        }
    }
}
