//! The network between machines: the fate of each wire packet.

use super::Host;
use super::trace::Trace;
use crate::fault::{Fault, LinkFaults};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use trine_transport::prng::Prng;
use trine_transport::time::{Duration, Instant};

/// Time on the wire without any fault, least and most.
const LATENCY: (u64, u64) = (8_000, 25_000);
/// A packet that others overtake is late by at most this.
const REORDER_MAX_NS: u64 = 400_000;
/// A packet that is replayed comes again after this, least and most.
pub(crate) const REPLAY_NS: (u64, u64) = (50_000_000, 8_000_000_000);
/// Most bits that flip in one corrupted packet.
const FLIPS_MAX: u64 = 4;

/// One packet that will arrive.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) at: Instant,
    pub(crate) bytes: Vec<u8>,
    /// Whether the packet went the usual way and may share a datagram with its neighbours.
    pub(crate) ordinary: bool,
}

/// Packets seen, and faults that fired.
#[derive(Clone, Debug, Default)]
pub(crate) struct NetworkStats {
    pub(crate) packets_sent: u64,
    pub(crate) packets_delivered: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) fired: BTreeMap<Fault, u64>,
}

impl NetworkStats {
    pub(crate) fn fire(&mut self, fault: Fault) {
        *self.fired.entry(fault).or_default() += 1;
    }
}

/// All links of the simulation.
pub(crate) struct Network {
    prng: Prng,
    link_faults: LinkFaults,
    /// The links that carry nothing, by cut, until `heal`.
    cuts: BTreeMap<u64, Cut>,
    clogs: BTreeMap<(Host, Host), Instant>,
    /// When the last ordinary packet of each link arrives: without a fault a link keeps the order.
    last_arrival: FxHashMap<(Host, Host), Instant>,
    pub(crate) stats: NetworkStats,
}

/// The two sides that a cut separates.
#[derive(Clone, Debug)]
pub(crate) enum Cut {
    /// The listed hosts from all others, both ways.
    Partition(BTreeSet<Host>),
    /// One direction of one link.
    OneWay(Host, Host),
}

impl Cut {
    fn hits(&self, from: Host, to: Host) -> bool {
        match self {
            Cut::Partition(side) => side.contains(&from) != side.contains(&to),
            Cut::OneWay(one, other) => (from, to) == (*one, *other),
        }
    }

    fn fault(&self) -> Fault {
        match self {
            Cut::Partition(_) => Fault::Partition,
            Cut::OneWay(..) => Fault::OneWay,
        }
    }
}

impl Network {
    pub(crate) fn new(prng: Prng) -> Self {
        Self {
            prng,
            link_faults: LinkFaults::default(),
            cuts: BTreeMap::new(),
            clogs: BTreeMap::new(),
            last_arrival: FxHashMap::default(),
            stats: NetworkStats::default(),
        }
    }

    pub(crate) fn set_link_faults(&mut self, link_faults: LinkFaults) {
        self.link_faults = link_faults;
    }

    /// Cuts links until [`Network::heal`] is called with the same number.
    pub(crate) fn cut(&mut self, number: u64, cut: Cut) {
        self.cuts.insert(number, cut);
    }

    pub(crate) fn heal(&mut self, number: u64) {
        self.cuts.remove(&number);
    }

    /// Holds all packets of one direction back until `until`.
    pub(crate) fn clog(&mut self, from: Host, to: Host, until: Instant) {
        self.clogs.insert((from, to), until);
    }

    /// Whether nothing is wrong with any link.
    pub(crate) fn is_calm(&self, now: Instant) -> bool {
        self.link_faults == LinkFaults::default()
            && self.cuts.is_empty()
            && self.clogs.values().all(|until| *until <= now)
    }

    /// Takes every fault away.
    pub(crate) fn calm(&mut self) {
        self.link_faults = LinkFaults::default();
        self.cuts.clear();
        self.clogs.clear();
    }

    /// The fate of a packet: nothing, one arrival, or several.
    pub(crate) fn send(
        &mut self,
        now: Instant,
        from: Host,
        to: Host,
        bytes: Vec<u8>,
        arrivals: &mut Vec<Arrival>,
        trace: &mut Trace,
    ) {
        self.stats.packets_sent += 1;
        self.stats.bytes_sent += bytes.len() as u64;
        if let Some(fault) = self.swallows(from, to, bytes.len()) {
            trace.note(now, || format!("lost {from} -> {to}: {fault}"));
            return self.stats.fire(fault);
        }
        if self.prng.chance(self.link_faults.usual.duplicate) {
            self.stats.fire(Fault::Duplication);
            let late = self.latency() + self.prng.below(REORDER_MAX_NS);
            let why = Some((Fault::Duplication, late));
            let copy = self.arrival(now, (from, to), bytes.clone(), why, trace);
            arrivals.push(copy);
        }
        if self.prng.chance(self.link_faults.replay) {
            self.stats.fire(Fault::Replay);
            let late = self.prng.in_range(REPLAY_NS.0..=REPLAY_NS.1);
            let why = Some((Fault::Replay, late));
            let copy = self.arrival(now, (from, to), bytes.clone(), why, trace);
            arrivals.push(copy);
        }
        let late = self.lateness();
        let arrival = self.arrival(now, (from, to), bytes, late, trace);
        arrivals.push(arrival);
    }

    fn swallows(&mut self, from: Host, to: Host, len: usize) -> Option<Fault> {
        if let Some(cut) = self.cuts.values().find(|cut| cut.hits(from, to)) {
            return Some(cut.fault());
        }
        if self.link_faults.mtu != 0 && len > self.link_faults.mtu {
            return Some(Fault::Mtu);
        }
        self.prng
            .chance(self.link_faults.usual.loss)
            .then_some(Fault::Loss)
    }

    /// Extra time for a packet that leaves the order of its link, and why it does.
    fn lateness(&mut self) -> Option<(Fault, u64)> {
        let reordered = self.prng.chance(self.link_faults.usual.reorder);
        let delayed = self.prng.chance(self.link_faults.delayed);
        if delayed {
            self.stats.fire(Fault::Delay);
            let (_, most) = self.link_faults.usual.delay.unwrap_or_default();
            let late = self.latency() + self.prng.below(most.as_nanos().max(1));
            return Some((Fault::Delay, late));
        }
        if reordered {
            self.stats.fire(Fault::Reordering);
            let late = self.latency() + self.prng.below(REORDER_MAX_NS);
            return Some((Fault::Reordering, late));
        }
        None
    }

    fn latency(&mut self) -> u64 {
        self.prng.in_range(LATENCY.0..=LATENCY.1)
    }

    fn arrival(
        &mut self,
        now: Instant,
        (from, to): (Host, Host),
        mut bytes: Vec<u8>,
        late: Option<(Fault, u64)>,
        trace: &mut Trace,
    ) -> Arrival {
        let corrupted = self.prng.chance(self.link_faults.usual.corrupt);
        if corrupted && !bytes.is_empty() {
            self.stats.fire(Fault::Corruption);
            self.corrupt(&mut bytes);
        }
        let mut at = now + Duration::from_nanos(late.map_or(0, |(_, late)| late));
        if late.is_none() {
            at += Duration::from_nanos(self.latency());
            let last = self.last_arrival.entry((from, to)).or_insert(at);
            at = at.max(*last);
            *last = at;
        }
        let clogged_until = self.clogs.get(&(from, to)).copied();
        let clogged = clogged_until.filter(|&until| until > at);
        if let Some(until) = clogged {
            self.stats.fire(Fault::Clog);
            at = until;
        }
        if late.is_some() || corrupted || clogged.is_some() {
            trace.note(now, || {
                let late = late.map(|(why, _)| why);
                let corrupted = corrupted.then_some(Fault::Corruption);
                let clogged = clogged.map(|_| Fault::Clog);
                let why = [late, corrupted, clogged].into_iter().flatten();
                let why: Vec<String> = why.map(|fault| fault.to_string()).collect();
                let ms = at.as_nanos() as f64 / 1e6;
                format!(
                    "fate {from} -> {to}: {}, arrives at {ms:.6} ms",
                    why.join(", ")
                )
            });
        }
        Arrival {
            at,
            bytes,
            ordinary: late.is_none() && !corrupted,
        }
    }

    /// Flips bits, or cuts the end off.
    fn corrupt(&mut self, bytes: &mut Vec<u8>) {
        if self.prng.below(8) == 0 {
            let keep = self.prng.below(bytes.len() as u64) as usize;
            bytes.truncate(keep);
            return;
        }
        for _ in 0..self.prng.in_range(1..=FLIPS_MAX) {
            let bit = self.prng.below(bytes.len() as u64 * 8);
            bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_transport::backend::Faults;
    use trine_transport::prng::Ratio;

    const A: Host = Host(0);
    const B: Host = Host(1);

    fn send_many(network: &mut Network, count: usize) -> Vec<Arrival> {
        let mut arrivals = Vec::new();
        for number in 0..count {
            let now = Instant::from_nanos(number as u64 * 100);
            network.send(
                now,
                A,
                B,
                vec![number as u8; 100],
                &mut arrivals,
                &mut Trace::Off,
            );
        }
        arrivals
    }

    #[test]
    fn a_healthy_link_delivers_all_in_order() {
        let mut network = Network::new(Prng::new(1));
        let arrivals = send_many(&mut network, 1_000);
        assert_eq!(arrivals.len(), 1_000);
        assert!(arrivals.windows(2).all(|pair| pair[0].at <= pair[1].at));
        assert!(network.stats.fired.is_empty());
    }

    #[test]
    fn each_fault_fires_at_its_rate_and_is_counted() {
        let mut network = Network::new(Prng::new(1));
        let fifth = Ratio::percent(20);
        network.set_link_faults(LinkFaults {
            usual: Faults {
                loss: fifth,
                duplicate: fifth,
                reorder: fifth,
                corrupt: fifth,
                delay: Some((Duration::ZERO, Duration::from_millis(5))),
            },
            delayed: fifth,
            replay: fifth,
            mtu: 0,
        });
        send_many(&mut network, 10_000);
        for fault in [
            Fault::Loss,
            Fault::Duplication,
            Fault::Reordering,
            Fault::Delay,
            Fault::Corruption,
            Fault::Replay,
        ] {
            let fired = network.stats.fired[&fault];
            assert!((1_000..2_500).contains(&fired), "{fault}: {fired}");
        }
    }

    #[test]
    fn a_partition_separates_the_sides_until_it_heals() {
        let mut network = Network::new(Prng::new(1));
        network.cut(7, Cut::Partition(BTreeSet::from([A])));
        assert!(send_many(&mut network, 10).is_empty());
        network.heal(7);
        assert_eq!(send_many(&mut network, 10).len(), 10);
    }

    #[test]
    fn a_one_way_cut_lets_the_other_direction_pass() {
        let mut network = Network::new(Prng::new(1));
        network.cut(1, Cut::OneWay(B, A));
        assert_eq!(send_many(&mut network, 10).len(), 10);
        let mut arrivals = Vec::new();
        network.send(Instant::ZERO, B, A, vec![1], &mut arrivals, &mut Trace::Off);
        assert!(arrivals.is_empty());
    }

    #[test]
    fn a_clogged_link_delivers_everything_at_its_end() {
        let mut network = Network::new(Prng::new(1));
        let until = Instant::ZERO + Duration::from_secs(1);
        network.clog(A, B, until);
        assert!(
            send_many(&mut network, 10)
                .iter()
                .all(|arrival| arrival.at == until)
        );
    }
}
