//! Who has which Ethernet address: an ARP cache with limits, called with the time.
//!
//! ```text
//!              wanted                      answered, asks, or announces itself
//!   (absent) ----------> Asking ---------------------------------------------> Known
//!                          |  no answer to ASKS_MAX questions                    | older than KNOWN_FOR and used
//!                          v                                                     v
//!                       (absent) <------------------------------------------- asked again, still used
//!                                   no answer to ASKS_MAX questions
//! ```
//!
//! ARP trusts every answer, here as everywhere. An attacker on the segment can divert packets, and the handshake above
//! keeps him from being believed.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use super::arp::{Arp, ArpOperation};
use super::mac::MacAddr;
use trine_transport::time::{Duration, Instant};

/// Neighbours remembered at once; beyond it the longest unused one makes room.
pub const NEIGHBOURS_MAX: usize = 4096;
/// How long an answer is believed before it is asked for again, if the neighbour is still used.
pub const KNOWN_FOR: Duration = Duration::from_secs(30);
/// Time between two questions for one address.
pub const ASK_EVERY: Duration = Duration::from_millis(20);
/// Unanswered questions after which a neighbour counts as gone.
pub const ASKS_MAX: u32 = 50;

/// The cache. Its owner sends the questions that it asks for.
#[derive(Debug, Default)]
pub struct Neighbours {
    entries: HashMap<Ipv4Addr, Neighbour>,
    /// Grows with every change of an address, so that the owner of a copy can tell that it is old.
    generation: u64,
}

#[derive(Copy, Clone, Debug)]
struct Neighbour {
    /// `None` while the first answer is awaited.
    mac: Option<MacAddr>,
    /// When the address was last confirmed, or first wanted.
    since: Instant,
    /// When it was last needed for sending.
    used: Instant,
    /// When it was last asked for, and how often without an answer.
    asked: Option<Instant>,
    asks: u32,
    /// Configured by hand: never asked for, never changed.
    fixed: bool,
}

impl Neighbour {
    fn new(now: Instant, mac: Option<MacAddr>) -> Self {
        Self {
            mac,
            since: now,
            used: now,
            asked: None,
            asks: 0,
            fixed: false,
        }
    }

    /// Whether the entry needs a question now.
    fn is_due(&self, now: Instant) -> bool {
        let old = now.saturating_since(self.since) >= KNOWN_FOR && self.used > self.since;
        let wanted = self.mac.is_none() || old;
        wanted
            && !self.fixed
            && self
                .asked
                .is_none_or(|asked| now.saturating_since(asked) >= ASK_EVERY)
    }

    fn is_gone(&self) -> bool {
        self.asks >= ASKS_MAX
    }
}

impl Neighbours {
    /// Remembers an address that needs no ARP.
    pub fn fix(&mut self, ip: Ipv4Addr, mac: MacAddr) {
        self.generation += 1;
        let entry = Neighbour {
            fixed: true,
            ..Neighbour::new(Instant::ZERO, Some(mac))
        };
        self.entries.insert(ip, entry);
    }

    /// Grows with every change of an address.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The address to send to, if it is known; otherwise `tick` will ask for it.
    pub fn resolve(&mut self, now: Instant, ip: Ipv4Addr) -> Option<MacAddr> {
        if let Some(entry) = self.entries.get_mut(&ip) {
            entry.used = now;
            return entry.mac;
        }
        self.make_room();
        self.entries.insert(ip, Neighbour::new(now, None));
        None
    }

    /// Learns from an ARP packet as RFC 826 says: update known entries, add only hosts that talk to
    /// us.
    ///
    /// Returns whether the packet is a question for `own_ip`, which its owner then answers.
    pub fn on_arp(&mut self, now: Instant, own_ip: Ipv4Addr, arp: &Arp) -> bool {
        let for_us = arp.target_ip == own_ip && arp.sender_ip != own_ip;
        if !arp.sender_ip.is_unspecified() && arp.sender_ip != own_ip {
            self.learn(now, arp.sender_ip, arp.sender_mac, for_us);
        }
        for_us && arp.operation == ArpOperation::Request
    }

    fn learn(&mut self, now: Instant, ip: Ipv4Addr, mac: MacAddr, add: bool) {
        match self.entries.get_mut(&ip) {
            Some(entry) if entry.fixed => {}
            Some(entry) => {
                if entry.mac != Some(mac) {
                    self.generation += 1;
                }
                let used = entry.used;
                *entry = Neighbour {
                    used,
                    ..Neighbour::new(now, Some(mac))
                };
            }
            None if add => {
                self.make_room();
                self.generation += 1;
                self.entries.insert(ip, Neighbour::new(now, Some(mac)));
            }
            None => {}
        }
    }

    /// Forgets who did not answer and names who has to be asked now.
    pub fn tick(&mut self, now: Instant, mut ask: impl FnMut(Ipv4Addr)) {
        let before = self.entries.len();
        self.entries.retain(|_, entry| !entry.is_gone());
        if self.entries.len() != before {
            self.generation += 1;
        }
        for (ip, entry) in &mut self.entries {
            if entry.is_due(now) {
                entry.asked = Some(now);
                entry.asks += 1;
                ask(*ip);
            }
        }
    }

    /// Evicts the longest unused neighbour when the cache is full.
    fn make_room(&mut self) {
        if self.entries.len() < NEIGHBOURS_MAX {
            return;
        }
        let oldest = self
            .entries
            .iter()
            .filter(|(_, entry)| !entry.fixed)
            .min_by_key(|(ip, entry)| (entry.used, **ip));
        if let Some(ip) = oldest.map(|(ip, _)| *ip) {
            self.entries.remove(&ip);
            self.generation += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
    const PEER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
    const OTHER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 3]);
    const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    fn asked(neighbours: &mut Neighbours, now: Instant) -> Vec<Ipv4Addr> {
        let mut asked = Vec::new();
        neighbours.tick(now, |ip| asked.push(ip));
        asked
    }

    fn answer_from(mac: MacAddr) -> Arp {
        Arp::ask(OWN_MAC, OWN, PEER).answer(mac)
    }

    #[test]
    fn asks_until_it_is_answered() {
        let mut neighbours = Neighbours::default();
        assert!(asked(&mut neighbours, at(0)).is_empty());
        assert_eq!(neighbours.resolve(at(0), PEER), None);
        assert_eq!(asked(&mut neighbours, at(0)), [PEER]);
        assert!(asked(&mut neighbours, at(19)).is_empty(), "not too often");
        assert_eq!(asked(&mut neighbours, at(20)), [PEER]);
        assert!(
            !neighbours.on_arp(at(21), OWN, &answer_from(PEER_MAC)),
            "an answer wants no answer"
        );
        assert_eq!(neighbours.resolve(at(21), PEER), Some(PEER_MAC));
        assert!(asked(&mut neighbours, at(50)).is_empty());
    }

    #[test]
    fn gives_up_and_forgets() {
        let mut neighbours = Neighbours::default();
        neighbours.resolve(at(0), PEER);
        let questions: usize = (0..10_000)
            .map(|now| asked(&mut neighbours, at(now)).len())
            .sum();
        assert_eq!(questions, ASKS_MAX as usize);
        assert_eq!(neighbours.resolve(at(10_000), PEER), None);
        assert_eq!(
            asked(&mut neighbours, at(10_000)),
            [PEER],
            "wanted again, asked again"
        );
    }

    #[test]
    fn an_old_address_is_confirmed_only_while_it_is_used() {
        let mut neighbours = Neighbours::default();
        neighbours.resolve(at(0), PEER);
        neighbours.on_arp(at(0), OWN, &answer_from(PEER_MAC));
        assert!(asked(&mut neighbours, at(31_000)).is_empty(), "unused");
        assert_eq!(
            neighbours.resolve(at(31_000), PEER),
            Some(PEER_MAC),
            "old, but used meanwhile"
        );
        assert_eq!(asked(&mut neighbours, at(31_000)), [PEER]);
        neighbours.on_arp(at(31_001), OWN, &answer_from(PEER_MAC));
        assert!(asked(&mut neighbours, at(40_000)).is_empty());
    }

    #[test]
    fn a_new_address_replaces_the_old_one_at_once() {
        let mut neighbours = Neighbours::default();
        neighbours.resolve(at(0), PEER);
        neighbours.on_arp(at(0), OWN, &answer_from(PEER_MAC));
        let generation = neighbours.generation();
        neighbours.on_arp(at(1), OWN, &answer_from(PEER_MAC));
        assert_eq!(neighbours.generation(), generation, "nothing changed");
        let announcement = Arp::ask(OTHER_MAC, PEER, PEER);
        assert!(!neighbours.on_arp(at(2), OWN, &announcement));
        assert_eq!(neighbours.resolve(at(2), PEER), Some(OTHER_MAC));
        assert!(neighbours.generation() > generation);
    }

    #[test]
    fn unknown_senders_are_learnt_only_when_they_ask_for_us() {
        let mut neighbours = Neighbours::default();
        assert!(!neighbours.on_arp(
            at(0),
            OWN,
            &Arp::ask(PEER_MAC, PEER, Ipv4Addr::new(10, 0, 0, 9))
        ));
        assert_eq!(neighbours.entries.len(), 0);
        assert!(neighbours.on_arp(at(0), OWN, &Arp::ask(PEER_MAC, PEER, OWN)));
        assert_eq!(neighbours.resolve(at(0), PEER), Some(PEER_MAC));
    }

    #[test]
    fn a_fixed_address_cannot_be_talked_away() {
        let mut neighbours = Neighbours::default();
        neighbours.fix(PEER, PEER_MAC);
        neighbours.on_arp(at(0), OWN, &answer_from(OTHER_MAC));
        assert_eq!(neighbours.resolve(at(90_000), PEER), Some(PEER_MAC));
        assert!(asked(&mut neighbours, at(90_000)).is_empty());
    }

    #[test]
    fn somebody_with_our_address_is_not_a_neighbour() {
        let mut neighbours = Neighbours::default();
        assert!(!neighbours.on_arp(at(0), OWN, &Arp::ask(OTHER_MAC, OWN, OWN)));
        assert_eq!(neighbours.entries.len(), 0);
    }

    #[test]
    fn a_flood_of_addresses_is_bounded() {
        let mut neighbours = Neighbours::default();
        neighbours.fix(PEER, PEER_MAC);
        for flood in 0..2 * NEIGHBOURS_MAX as u32 {
            let ip = Ipv4Addr::from_bits(0x0b00_0000 + flood);
            neighbours.on_arp(at(u64::from(flood)), OWN, &Arp::ask(OTHER_MAC, ip, OWN));
        }
        assert_eq!(neighbours.entries.len(), NEIGHBOURS_MAX);
        assert_eq!(
            neighbours.resolve(at(0), PEER),
            Some(PEER_MAC),
            "the fixed one stays"
        );
    }
}
