//! Who holds how many sessions. When there is no room for another one, the address with most of them gives one up.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};

use crate::keys::KeyId;

use crate::config::{PUSHED_OUT_AT_ONCE, PUSHED_OUT_EVERY, PUSHERS_MAX};
use crate::time::Instant;

/// Whom the sessions from a route are counted for.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Holder {
    /// A caller for whom [`Config::sessions_reserved`](crate::Config::sessions_reserved) and half of the memory of
    /// messages are kept, such as another member of a group.
    Privileged,
    /// A caller that has proven who it is, wherever it calls from. The number is the program's name for it.
    Identity(u64),
    /// All callers at this address: an IPv4 address, the first half of an IPv6 address, or another backend's name of a
    /// machine.
    Address(u64),
    /// Callers that nothing tells apart, such as those of one machine over loopback. They have no share of their own.
    #[default]
    Shared,
}

impl Holder {
    /// The holder of a session whose peer has proven this key, whatever its address.
    #[must_use]
    pub fn of_key(key: &KeyId) -> Self {
        Self::Identity(key.hash())
    }

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

    /// Whether it is counted against others, and so can have too much.
    fn has_a_share(self) -> bool {
        matches!(self, Self::Identity(_) | Self::Address(_))
    }
}

/// The server ends of an endpoint's sessions by the identity or the address that holds them.
#[derive(Default)]
pub(super) struct Shares {
    /// The sessions of each holder that has a share of its own, in the order in which they were opened.
    held: BTreeMap<Holder, VecDeque<u16>>,
    /// These holders by the number of their sessions.
    by_count: BTreeSet<(usize, Holder)>,
    /// Whom each session is counted for, by index.
    holders: BTreeMap<u16, Holder>,
    /// How many of them privileged holders have.
    privileged: usize,
    /// The holders that pushed sessions of others out lately. Each until when it has used its allowance up: those that it
    /// pushed out, one after the other, each for as long as one takes.
    pushers: BTreeMap<Holder, Instant>,
}

impl Shares {
    /// A session was opened at `index`.
    pub(super) fn add(&mut self, index: u16, holder: Holder) {
        self.holders.insert(index, holder);
        self.privileged += usize::from(holder == Holder::Privileged);
        if !holder.has_a_share() {
            return;
        }
        let held = self.held.entry(holder).or_default();
        self.by_count.remove(&(held.len(), holder));
        held.push_back(index);
        self.by_count.insert((held.len(), holder));
    }

    /// The session at `index` is over.
    pub(super) fn remove(&mut self, index: u16) {
        let Some(holder) = self.holders.remove(&index) else {
            return;
        };
        self.privileged -= usize::from(holder == Holder::Privileged);
        let Some(held) = self.held.get_mut(&holder) else {
            return;
        };
        self.by_count.remove(&(held.len(), holder));
        held.retain(|of| *of != index);
        if held.is_empty() {
            self.held.remove(&holder);
        } else {
            self.by_count.insert((held.len(), holder));
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

    /// The session that gives way to another one of `holder`: the newest of the holder with most sessions. Callers that
    /// were there before a greedy neighbour at their address keep theirs. `None` if `holder` would have as many as that
    /// one then. So nobody can take the sessions of those that have fewer.
    pub(super) fn gives_way_to(&self, holder: Holder) -> Option<u16> {
        let own = match holder {
            Holder::Shared => return None,
            Holder::Privileged => 0,
            Holder::Identity(_) | Holder::Address(_) => {
                self.held.get(&holder).map_or(0, VecDeque::len)
            }
        };
        let (count, greediest) = self.by_count.last()?;
        let newest = self.held.get(greediest)?.back()?;
        (*count > own + 1).then_some(*newest)
    }
}

impl Shares {
    /// Whether `holder` may push a session of another holder out now. It is counted then.
    pub(super) fn may_push_out(&mut self, now: Instant, holder: Holder) -> bool {
        if !holder.has_a_share() {
            return true;
        }
        if self.pushers.len() >= PUSHERS_MAX {
            self.pushers.retain(|_, until| *until > now);
        }
        let until = self.pushers.get(&holder).copied().unwrap_or(now).max(now);
        let has_some_left = until < now + PUSHED_OUT_EVERY.saturating_mul(PUSHED_OUT_AT_ONCE);
        let is_remembered = self.pushers.len() < PUSHERS_MAX || self.pushers.contains_key(&holder);
        if has_some_left && is_remembered {
            self.pushers.insert(holder, until + PUSHED_OUT_EVERY);
        }
        has_some_left && is_remembered
    }
}

#[cfg(test)]
impl Shares {
    /// The counts are those of these server ends.
    pub(super) fn check(&self, servers: impl Iterator<Item = (u16, Holder)>) {
        let holders: BTreeMap<u16, Holder> = servers.collect();
        assert_eq!(self.holders, holders, "each server end has a holder");
        let privileged = holders
            .values()
            .filter(|holder| **holder == Holder::Privileged);
        assert_eq!(self.privileged, privileged.count());
        let mut held: BTreeMap<Holder, BTreeSet<u16>> = BTreeMap::new();
        for (index, holder) in holders.iter().filter(|(_, holder)| holder.has_a_share()) {
            held.entry(*holder).or_default().insert(*index);
        }
        let counted = self
            .held
            .iter()
            .map(|(holder, of)| (*holder, of.iter().copied().collect()));
        assert_eq!(counted.collect::<BTreeMap<_, _>>(), held);
        let by_count = held.iter().map(|(holder, of)| (of.len(), *holder));
        assert_eq!(self.by_count, by_count.collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Duration;

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
    fn a_caller_pushes_no_more_out_than_its_allowance() {
        let mut shares = Shares::default();
        let mut now = Instant::from_nanos(1);
        let allowed = |shares: &mut Shares, now, holder| {
            (0..1_000)
                .take_while(|_| shares.may_push_out(now, holder))
                .count() as u64
        };
        assert_eq!(allowed(&mut shares, now, GREEDY), PUSHED_OUT_AT_ONCE);
        assert_eq!(
            allowed(&mut shares, now, MODEST),
            PUSHED_OUT_AT_ONCE,
            "its own"
        );
        now += PUSHED_OUT_EVERY.saturating_mul(3);
        assert_eq!(allowed(&mut shares, now, GREEDY), 3);
        now += PUSHED_OUT_EVERY.saturating_mul(10 * PUSHED_OUT_AT_ONCE);
        assert_eq!(allowed(&mut shares, now, GREEDY), PUSHED_OUT_AT_ONCE);
        assert!((0..1_000).all(|_| shares.may_push_out(now, Holder::Privileged)));
        for number in 10..20_000 {
            shares.may_push_out(now, Holder::Address(number));
            now += Duration::from_micros(100);
        }
        assert!(shares.pushers.len() <= PUSHERS_MAX);
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
