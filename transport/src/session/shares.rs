//! Who holds how many sessions. When there is no room for another one, the address with most of them gives one up.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};

/// Whom the sessions from a route are counted for.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub enum Holder {
    /// A caller for whom [`Config::sessions_reserved`](crate::Config::sessions_reserved) are kept, such as another
    /// member of a group.
    Privileged,
    /// All callers at this address: an IPv4 address, the first half of an IPv6 address, or another backend's name of a
    /// machine.
    Address(u64),
    /// Callers that nothing tells apart, such as those of one machine over loopback. They have no share of their own.
    #[default]
    Shared,
}

impl Holder {
    /// The holder of a session with this address. The last half of an IPv6 address is its owner's to choose, so it does
    /// not count. Of a link-local address it is all that tells machines apart.
    #[must_use]
    pub fn of_address(address: SocketAddr) -> Self {
        match address.ip().to_canonical() {
            ip if ip.is_loopback() => Self::Shared,
            IpAddr::V4(ip) => Self::Address(u64::from(ip.to_bits())),
            IpAddr::V6(ip) if ip.is_unicast_link_local() => Self::Address(ip.to_bits() as u64),
            IpAddr::V6(ip) => Self::Address((ip.to_bits() >> 64) as u64),
        }
    }
}

/// The server ends of an endpoint's sessions by the address that holds them.
#[derive(Default)]
pub(super) struct Shares {
    /// The sessions of each address, in the order in which they were opened.
    held: BTreeMap<u64, VecDeque<u16>>,
    /// The addresses by the number of their sessions.
    by_count: BTreeSet<(usize, u64)>,
    /// Whom each session is counted for, by index.
    holders: BTreeMap<u16, Holder>,
    /// How many of them privileged holders have.
    privileged: usize,
}

impl Shares {
    /// A session was opened at `index`.
    pub(super) fn add(&mut self, index: u16, holder: Holder) {
        self.holders.insert(index, holder);
        self.privileged += usize::from(holder == Holder::Privileged);
        let Holder::Address(address) = holder else {
            return;
        };
        let held = self.held.entry(address).or_default();
        self.by_count.remove(&(held.len(), address));
        held.push_back(index);
        self.by_count.insert((held.len(), address));
    }

    /// The session at `index` is over.
    pub(super) fn remove(&mut self, index: u16) {
        let holder = self.holders.remove(&index);
        self.privileged -= usize::from(holder == Some(Holder::Privileged));
        let Some(Holder::Address(address)) = holder else {
            return;
        };
        let Some(held) = self.held.get_mut(&address) else {
            return;
        };
        self.by_count.remove(&(held.len(), address));
        held.retain(|of| *of != index);
        if held.is_empty() {
            self.held.remove(&address);
        } else {
            self.by_count.insert((held.len(), address));
        }
    }

    /// Sessions that no privileged holder has.
    pub(super) fn common(&self) -> usize {
        self.holders.len() - self.privileged
    }

    /// Sessions of privileged holders.
    pub(super) fn privileged(&self) -> usize {
        self.privileged
    }

    /// The session that gives way to another one of `holder`: the newest of the address with most sessions. Callers that
    /// were there before a greedy neighbour at their address keep theirs. `None` if `holder` would have as many as that
    /// address then. So no address can take the sessions of those that have fewer.
    pub(super) fn gives_way_to(&self, holder: Holder) -> Option<u16> {
        let own = match holder {
            Holder::Shared => return None,
            Holder::Privileged => 0,
            Holder::Address(address) => self.held.get(&address).map_or(0, VecDeque::len),
        };
        let (count, address) = self.by_count.last()?;
        let newest = self.held.get(address)?.back()?;
        (*count > own + 1).then_some(*newest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GREEDY: Holder = Holder::Address(1);
    const MODEST: Holder = Holder::Address(2);

    #[test]
    fn the_address_with_most_sessions_gives_its_newest_one_up() {
        let mut shares = Shares::default();
        assert_eq!(shares.gives_way_to(MODEST), None);
        for index in 0..4 {
            shares.add(index, GREEDY);
        }
        assert_eq!(shares.gives_way_to(GREEDY), None, "not to itself");
        assert_eq!(shares.gives_way_to(Holder::Shared), None);
        assert_eq!(shares.gives_way_to(Holder::Privileged), Some(3));
        let mut moved = Vec::new();
        while let Some(index) = shares.gives_way_to(MODEST) {
            shares.remove(index);
            shares.add(index, MODEST);
            moved.push(index);
        }
        assert_eq!(moved, [3, 2], "both have two now");
        shares.remove(0);
        shares.remove(1);
        shares.remove(1);
        assert_eq!(shares.gives_way_to(GREEDY), Some(2));
    }

    #[test]
    fn a_machine_is_an_ipv4_address_or_half_an_ipv6_address() {
        let of = |text: &str| Holder::of_address(text.parse().expect("an address"));
        assert_eq!(of("127.0.0.1:1"), Holder::Shared);
        assert_eq!(of("[::1]:1"), Holder::Shared);
        assert_eq!(of("[::ffff:127.0.0.1]:1"), Holder::Shared);
        assert_eq!(of("10.0.0.1:1"), of("[::ffff:10.0.0.1]:2"));
        assert_ne!(of("10.0.0.1:1"), of("10.0.0.2:1"));
        assert_eq!(of("[2001:db8::1]:1"), of("[2001:db8::2:3]:2"));
        assert_ne!(of("[2001:db8::1]:1"), of("[2001:db8:0:1::1]:1"));
        // All link-local addresses have the same first half.
        assert_ne!(of("[fe80::1]:1"), of("[fe80::2]:1"));
    }
}
